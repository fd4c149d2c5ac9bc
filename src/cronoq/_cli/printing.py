"""Text for people. What came from a server is shown so that it cannot do anything to a terminal.

On a terminal tables are made by rich, with colours for statuses; elsewhere they are columns of plain text.
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TextIO

from cronoq_sansio.clock import SECOND
from cronoq_sansio.inert import escape

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - the alias of 3.11 is the same
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

_STYLES = {
    "blocked": "dim",
    "succeeded": "green",
    "running": "cyan",
    "retrying": "yellow",
    "failed": "red",
    "dead_lettered": "red",
    "missed": "red",
    "shed": "red",
    "cancelled": "magenta",
    "skipped": "magenta",
}


def moment(nanoseconds: int | None) -> str:
    """UTC to the second, `-` for None."""
    if nanoseconds is None:
        return "-"
    try:
        return (_EPOCH + timedelta(seconds=nanoseconds // SECOND)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:  # a year that no calendar here has
        return f"{nanoseconds // SECOND}s"


def age(nanoseconds: int | None, now: int | None = None) -> str:
    """`5s ago`, `2m ago`, `in 2h`, `3d ago`; `now` in Unix nanoseconds."""
    if nanoseconds is None:
        return "-"
    seconds = ((time.time_ns() if now is None else now) - nanoseconds) // SECOND
    length = duration(abs(seconds))
    return f"{length} ago" if seconds >= 0 else f"in {length}"


def duration(seconds: int) -> str:
    """In the largest unit that fits: `90` is `1m`."""
    size, unit = next((step for step in _STEPS if seconds >= step[0]), (1, "s"))
    return f"{seconds // size}{unit}"


def span(seconds: float) -> str:
    """A measured time: three digits and a unit."""
    if seconds < 1:
        return f"{seconds * 1_000:.3g}ms"
    return f"{seconds:.3g}s" if seconds < 1_000 else duration(int(seconds))


def pairs(labels: dict[str, str] | Any) -> str:
    """`a=1,b=2`, in order of names; `-` for none."""
    return ",".join(f"{escape(name)}={escape(value)}" for name, value in sorted(labels.items())) or "-"


def document(value: Any) -> None:
    """JSON on stdout, for programs. ASCII, so that it looks the same whatever the encoding of the terminal is."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def note(text: str) -> None:
    """A line for people on stderr, beside the output."""
    print(escape(text), file=sys.stderr, flush=True)


def warn_shards(names: Iterable[str]) -> None:
    """Shards that did not answer, on stderr."""
    if listed := ", ".join(names):
        note(f"Warning: shards that did not answer: {listed}")


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


class Table:
    """A table that may be printed in parts: rows are kept until `flush`, the heading stands above the first part."""

    def __init__(self, columns: Sequence[str], *, right: Iterable[str] = (), status: str | None = None) -> None:
        """`right`: columns of numbers; `status`: the column with the status of a task, for its colour."""
        self._columns = tuple(columns)
        self._right = frozenset(right)
        self._status = status
        self._widths = [len(column) for column in columns]
        self._rows: list[tuple[str, ...]] = []
        self._headed = False

    def add(self, *cells: object) -> None:
        """One row; texts of a server are escaped here, empty ones shown as `-`."""
        row = tuple(escape(str(cell)) or "-" for cell in cells)
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        self._rows.append(row)

    def flush(self) -> None:
        """Print what was added since the last time."""
        rows, self._rows = self._rows, []
        if is_terminal(sys.stdout):
            self._print_rich(rows)
        else:
            for row in [] if self._headed else [self._columns]:
                self._print_plain(row)
            for row in rows:
                self._print_plain(row)
        self._headed = True
        sys.stdout.flush()

    def _print_plain(self, row: Sequence[str]) -> None:
        cells = [
            cell.rjust(width) if column in self._right else cell.ljust(width)
            for column, width, cell in zip(self._columns, self._widths, row, strict=True)
        ]
        print("  ".join(cells).rstrip())

    def _print_rich(self, rows: list[tuple[str, ...]]) -> None:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=not self._headed
        )
        for column, width in zip(self._columns, self._widths, strict=True):
            table.add_column(
                column,
                justify="right" if column in self._right else "left",
                min_width=min(width, 24),
                no_wrap=column == "ID",
                overflow="fold",
            )
        for row in rows:
            table.add_row(
                *(
                    Text(cell, style=status_style(cell) if column == self._status else "")
                    for column, cell in zip(self._columns, row, strict=True)
                )
            )
        Console(file=sys.stdout, soft_wrap=False).print(table)


def status_style(status: str) -> str:
    """The colour of a status, as rich names it."""
    return _STYLES.get(status, "")
