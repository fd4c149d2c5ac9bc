"""What many seeds gave: the report of `run`, failures that are alike counted once, what it cost, the exit code."""

from dataclasses import dataclass, field, replace

from cronoq_sansio.sim.arguments import Options
from cronoq_sansio.sim.failure import Failure, Kind, Trace
from cronoq_sansio.sim.run import Outcome, Report
from cronoq_sansio.sim.seeds import Played
from cronoq_sansio.sim.trace import Written

KEPT = 10
"""Failures that are told apart. Each has its trace; a run in which everything fails must not keep thousands."""
JUDGED_SEEDS = 50
"""Seeds of whole servers from which on it says something that a kind met nothing: each is on in half of them."""
JUDGED_STEPS = 500
"""Acts of such a seed; a shorter one may end before its faults strike."""

BY_HAND = """\
This program wrote the file, and must come to the same. If steps, rates or the seed were changed by hand, write
"hash": "" into the file: then nothing is compared. If nobody changed it, the program does not do the same every time:
run the seed of the file with --twice, and report what that says together with the file."""
"""What to do about a trace that is not the same run any more."""

DONE, BROKEN, USAGE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


@dataclass(slots=True)
class Told:
    """A failure, and what is known about it for people."""

    failure: Failure
    alike: int = 1
    """Seeds that failed like this."""
    again: str = ""
    """The command that runs the seed once more."""
    trace: str = ""
    """The file; empty when none was written."""
    short: Failure | None = None
    """After less."""
    short_trace: str = ""


@dataclass(slots=True)
class Tally:
    """Everything that a run gave so far."""

    options: Options
    report: Report
    told: list[Told] = field(default_factory=list)
    """The first of each, in the order of the seeds."""
    failed: int = 0
    """Seeds."""
    others: int = 0
    """Seeds that failed in a way for which no room was left."""
    compared: int = 0
    """Seeds that ran twice."""
    worlds: dict[str, int] = field(default_factory=dict)
    """Seeds of each world."""
    cpu: float = 0.0
    yardsticks: float = 0.0
    seconds: float = 0.0
    jobs: int = 1
    interrupted: bool = False
    broken: str = ""
    """Why the run could not go on."""

    @property
    def events(self) -> int:
        """Of all worlds."""
        return sum(self.report.events.values())

    def add(self, played: Played) -> None:
        """Take in one more seed."""
        outcome = played.outcome
        self.cpu += played.cpu
        self.yardsticks += played.yardsticks
        self.worlds[outcome.world] = self.worlds.get(outcome.world, 0) + 1
        failure = outcome.failure
        if failure is not None and not self.fail(failure):
            outcome = replace(outcome, failure=None)
        self.report.add(outcome)

    def fail(self, failure: Failure) -> bool:
        """Count a failure; True when it is the first of its kind and is kept."""
        self.failed += 1
        for told in self.told:
            if (told.failure.kind, told.failure.what) == (failure.kind, failure.what):
                told.alike += 1
                return False
        if len(self.told) >= KEPT:
            self.others += 1
            return False
        self.told.append(Told(failure))
        return True

    def replace(self, difference: Failure) -> None:
        """The one seed is not the run that it should be: how it failed, if it did, says nothing."""
        self.failed, self.told = 1, [Told(difference)]
        self.report.failures = [difference]

    def compare(self, first: Outcome, second: Outcome) -> None:
        """The same seed in two processes."""
        self.compared += 1
        difference = differs(first, second)
        if difference is not None and self.fail(difference):
            self.report.failures.append(difference)

    def holes(self) -> list[str]:
        """What has shown nothing: kinds, or kinds with their operations. Empty when it is not to be judged."""
        judged = self.options.coverage != "off" and self.worlds.get("server", 0) >= JUDGED_SEEDS
        if not judged or self.options.steps < JUDGED_STEPS or self.interrupted or self.broken:
            return []
        coverage = self.report.coverage
        if self.options.coverage == "kinds":
            return coverage.idle_kinds(self.report.faults)
        return [f"{kind} × {operation}" for kind, operation in coverage.holes(self.report.faults)]

    @property
    def exit_code(self) -> int:
        """The gravest that happened."""
        if self.interrupted:
            return INTERRUPTED
        kinds = [told.failure.kind.value for told in self.told]
        if kinds:
            return min(kinds)
        if self.broken:
            return BROKEN
        return Kind.COVERAGE.value if self.holes() else DONE


def differs(first: Outcome, second: Outcome) -> Failure | None:
    """The failure when two runs of a seed are not the same."""
    if first.hash == second.hash and _how(first) == _how(second):
        return None
    details = f"hash {first.hash}, {_how(first)}\nhash {second.hash}, {_how(second)}"
    return _divergence(first, "the same seed in two processes is not the same run", details)


def not_the_same(failure: Failure, again: Outcome) -> Failure | None:
    """The failure when the trace of a failed seed does not fail in the same way once more."""
    found = again.failure
    alike = found is not None and (found.kind, found.what, found.step) == (failure.kind, failure.what, failure.step)
    if alike and again.hash == failure.trace.hash:
        return None
    details = f"hash {failure.trace.hash}, {_end(failure)}\nhash {again.hash}, {_end(found)}"
    return _divergence(again, "a failed seed, replayed, is not the same run", details)


def judged(written: Written, again: Outcome, same_program: bool) -> tuple[Failure | None, str]:
    """What the replay of a file is compared with: the failure when it differs, and a sentence about it."""
    expected = written.trace.hash
    found = again.failure
    same_end = (found.kind, found.what) == (written.kind, written.what) if found is not None else written.kind is None
    told = _written_end(written)
    if expected and again.hash == expected and same_end:
        return None, "The replay came to the hash and to the end that the trace carries."
    if not expected:
        return None, f"The trace carries no hash to compare. Its end, as it was written down: {told}."
    if same_program:
        details = (
            f"expected, by the file:  hash {expected}, {told}\ncame, from its steps:   hash {again.hash}, {_end(found)}"
        )
        difference = _divergence(again, "the replay of a trace is not the same run", f"{details}\n{BY_HAND}")
        difference.transcript = found.transcript if found is not None else ""
        return difference, ""
    return None, f"Another version of the program wrote the trace, so the hash may differ. It ended then with {told}."


def _written_end(written: Written) -> str:
    if written.kind is None:
        return "no failure"
    return f"{written.kind.name.lower()} at step {written.step:,}: {written.what}"


def _divergence(run: Outcome, what: str, details: str) -> Failure:
    nothing = Trace(run.world, run.seed, {}, [], hash=run.hash)
    return Failure(Kind.DIVERGENCE, what, details, run.seed, run.steps, nothing)


def _end(failure: Failure | None) -> str:
    return (
        f"{failure.kind.name.lower()} at step {failure.step:,}: {failure.what}" if failure is not None else "no failure"
    )


def _how(outcome: Outcome) -> str:
    return f"{outcome.steps:,} steps, {outcome.events:,} events, {_end(outcome.failure)}"


@dataclass(slots=True)
class FoundPlant:
    """The search for one planted bug."""

    name: str
    seeds: int = 0
    """That ran."""
    failure: Failure | None = None
    """Of the last of them; None = it was not found."""
    without: Failure | None = None
    """Of the same seed when the bug is not planted: then something else is broken."""

    @property
    def is_found(self) -> bool:
        """The bug, and nothing else, was found."""
        return self.failure is not None and not self.fails_anyway

    @property
    def fails_anyway(self) -> bool:
        """The seed fails in the same way without the bug."""
        return (
            self.failure is not None
            and self.without is not None
            and (self.failure.kind, self.failure.what) == (self.without.kind, self.without.what)
        )


@dataclass(slots=True)
class Plants:
    """The search for some planted bugs."""

    options: Options
    found: list[FoundPlant] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    """When only one was looked for."""
    interrupted: bool = False
    broken: str = ""

    @property
    def exit_code(self) -> int:
        """Zero when every bug was found."""
        if self.interrupted:
            return INTERRUPTED
        anyway = [found.without.kind.value for found in self.found if found.fails_anyway and found.without is not None]
        if anyway:
            return min(anyway)
        if self.broken:
            return BROKEN
        return DONE if all(found.is_found for found in self.found) else Kind.COVERAGE.value
