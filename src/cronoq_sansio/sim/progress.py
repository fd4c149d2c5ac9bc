"""What is shown while seeds run: one line of text. The clock is an argument, and writing is somebody else's."""

import re
from dataclasses import dataclass

EVERY = 30
"""Seconds between two lines where nobody watches."""
BAR = 20
"""Cells of the bar."""


@dataclass(slots=True)
class Progress:
    """How far a run is."""

    start: float
    """Seconds, of any clock."""
    seeds: int | None
    """That shall run."""
    budget: float | None
    events: int | None
    what: str = ""
    """Of a part of the run: the planted bug that is looked for."""

    def line(self, now: float, seeds: int, events: int, failures: int) -> str:
        """The line, for what is done by now."""
        passed = max(now - self.start, 0.001)
        share = self.share(passed, seeds, events)
        words = [f"{seeds:,} of {self.seeds:,} seeds" if self.seeds else f"{seeds:,} seed{'' if seeds == 1 else 's'}"]
        words += [f"{events:,} events", f"{events / passed:,.0f}/s"]
        words.append("no failure" if not failures else f"{failures:,} failure{'s' if failures > 1 else ''}")
        if share is not None:
            cells = int(share * BAR)
            words.insert(0, f"[{'#' * cells}{'.' * (BAR - cells)}] {share:4.0%}")
            if share > 0.01:
                words.append(f"{clock(passed / share - passed)} left")
        return "  ".join(([self.what] if self.what else []) + words)

    def share(self, passed: float, seeds: int, events: int) -> float | None:
        """The part that is done, by the bound that will be met first; None when there is none."""
        shares = []
        if self.seeds:
            shares.append(seeds / self.seeds)
        if self.budget:
            shares.append(passed / self.budget)
        if self.events:
            shares.append(events / self.events)
        return min(max(shares), 1.0) if shares else None


_LESS = tuple(map(re.compile, (r"\[[#.]*\] *", r"  [\d,]+/s", r"  [\d,]+ events", r"  [\d:]+ left")))
"""What a line can do without, the least important first."""


def fitted(line: str, width: int) -> str:
    """As much of the line as goes into so many characters."""
    for part in _LESS:
        if len(line) > width:
            line = part.sub("", line, count=1)
    return line[:width]


def clock(seconds: float) -> str:
    """`0:07`, `12:30`, `3:05:00`."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
