"""What was found of each planted bug, in a file: which seed, how many before it, by which check.

Knows nothing of the simulator or of the machine, so that documentation and tests can read it.
"""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from os import replace
from pathlib import Path
from typing import Any

APART = 100_000
"""Seeds between the beginnings of two series."""


@dataclass
class Found:
    """What one series found."""

    series: int
    needed: int
    """Seeds until it was found; 0 = never."""
    took: float = 0.0
    """Seconds of CPU time for the seed that failed."""
    kind: str = ""
    """A `Kind`, or HANG for a seed that does not end."""
    what: str = ""
    """The words of the failure."""

    @property
    def seed(self) -> int:
        """The one that failed."""
        return self.series * APART + self.needed - 1


@dataclass
class Entry:
    """What is known of one plant."""

    series: list[Found] = field(default_factory=list)

    def median(self, cap: int) -> float:
        """Of the seeds that were needed; above `cap` when most series never found it."""
        needed = [found.needed or cap + 1 for found in self.series]
        return statistics.median(needed) if needed else cap + 1

    def seeds(self) -> list[int]:
        """Those that find it, the one with the least work first."""
        return [found.seed for found in sorted(self.series, key=lambda found: found.took) if found.needed]

    def usual(self) -> tuple[str, str]:
        """The kind of failure, and the words, with which it is found most often."""
        counts = Counter((found.kind, found.what) for found in self.series if found.needed)
        return counts.most_common(1)[0][0] if counts else ("", "")


class Ledger:
    """What was found so far, in a file: measuring may be interrupted and goes on where it was."""

    def __init__(self, path: Path, cap: int) -> None:
        self._path = path
        self.cap = cap
        self.machine: dict[str, Any] = {}
        self.plants: dict[str, Entry] = {}
        if path.exists():
            document = json.loads(path.read_text(encoding="utf-8"))
            self.cap, self.machine = document["cap"], document["machine"]
            for name, series in document["plants"].items():
                self.plants[name] = Entry([Found(*found) for found in series])

    def forget(self, cap: int) -> None:
        """Begin anew."""
        self.cap, self.machine, self.plants = cap, {}, {}

    def begin(self, cap: int, code: str) -> str:
        """Why these series cannot stand beside those that are there; empty when they can."""
        found = self.machine.get("code", code)
        if self.plants and (self.cap, found) != (cap, code):
            return f"the ledger is of cap {self.cap} and code {found}, not {cap} and {code}; --anew begins another one"
        self.cap = cap
        return ""

    def missing(self, names: Sequence[str], count: int) -> list[tuple[str, int]]:
        """Plant and number of each series that was not played yet."""
        return [
            (name, number)
            for number in range(count)
            for name in names
            if number not in {found.series for found in self.plants.get(name, Entry()).series}
        ]

    def add(self, name: str, found: Found) -> None:
        """Keep what a series found."""
        entry = self.plants.setdefault(name, Entry())
        entry.series = sorted([*entry.series, found], key=lambda found: found.series)

    def save(self, names: Sequence[str], machine: Mapping[str, Any]) -> None:
        """Write the file, for these plants."""
        self.machine = dict(machine)
        plants = {name: [astuple(found) for found in self.plants[name].series] for name in names if name in self.plants}
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in plants.items())
        head = json.dumps({"cap": self.cap, "machine": self.machine}, indent=1)[:-2]
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f'{head},\n "plants": {{\n{lines}\n }}\n}}\n', encoding="utf-8")
        replace(fresh, self._path)
