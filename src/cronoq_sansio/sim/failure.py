"""How a simulated run fails, and the trace with which it is repeated."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How a run fails; the values are exit codes of the command."""

    SAFETY = 3
    """A promise or an invariant was broken."""
    LIVENESS = 4
    """After all faults were healed something did not come to its end."""
    DIVERGENCE = 5
    """Engine and model, or two runs of the same seed, differ."""
    COVERAGE = 6
    """A kind of fault met nothing: the run has shown nothing about it."""


class Violation(AssertionError):
    """Something that must hold does not."""

    def __init__(self, kind: Kind, what: str, details: str = "") -> None:
        """`what`: one line without ids and times; two runs that fail with the same words have the same fault."""
        super().__init__(f"{what}: {details}" if details else what)
        self.kind = kind
        self.what = what
        self.details = details


@dataclass(slots=True)
class Trace:
    """Everything that was decided in one run: with it the run is repeated to the last byte."""

    world: str
    """`server`, `lockstep` or `isolation`."""
    seed: int
    """Of settings and beginnings; what happens is in `steps`."""
    rates: dict[str, int]
    """Of each kind of fault: once in so many chances; 0 = off."""
    steps: list[list[int]]
    """Of each step what was picked; the first pick names the act."""
    plant: str = ""
    """The planted bug with which it fails; empty = none."""
    hash: str = ""
    """Of the whole run."""


@dataclass(slots=True)
class Failure:
    """What went wrong in one run."""

    kind: Kind
    what: str
    """See `Violation`."""
    details: str
    """What differs, and where."""
    seed: int
    step: int
    """After so many steps; the last one of the trace when it was found in the healed phase."""
    trace: Trace
    transcript: str = ""
    """What happened last, for people; only of a run that was narrated."""
