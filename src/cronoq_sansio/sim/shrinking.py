"""Cuts a failed run down to a short one that fails in the same way: fewer kinds of faults, fewer steps, smaller picks.

Each try plays a changed trace. It counts when the run fails with the same kind and the same words; what else is
different in it does not matter. Tries are paid for in steps, so the time is bounded whatever they do.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cronoq_sansio.sim.failure import Failure, Trace
from cronoq_sansio.sim.faults import OFF
from cronoq_sansio.sim.run import Outcome, replay
from cronoq_sansio.sim.server.world import MachineFactory
from cronoq_sansio.sim.shrink import shrink

BUDGET = 400_000
"""Steps that all tries together may play, when nothing else is said: half a minute."""
BRIEF = 100_000
"""The same for a failure that nobody asked to shrink: a few seconds."""
SCANS = (64, 8, 1)
"""Events between two recounts that are tried: what only a recount finds is then found early."""
TRY = 50
"""Steps that a try costs beyond those that it plays: its beginning, and the phase in which everything heals."""

Progress = Callable[[int, int, float], None]
"""Told of each try: the number of steps so far, of kinds of faults, and the part of the budget that is used up."""


def shrunk(
    failure: Failure,
    budget: int = BUDGET,
    progress: Progress | None = None,
    *,
    machine: MachineFactory | None = None,
) -> Failure:
    """The same failure after less, with a transcript; at worst the one that was given.

    At most `budget` steps are played, and those of one more try.
    """
    search = _Search(failure, budget, progress, machine)
    search.run()
    return search.told()


class _Search:
    def __init__(
        self, failure: Failure, budget: int, progress: Progress | None, machine: MachineFactory | None
    ) -> None:
        self._wanted = (failure.kind, failure.what)
        self._machine = machine
        self._progress = progress
        self._budget = budget
        self._left = budget
        trace = failure.trace
        self.best = replace(failure, trace=replace(trace, rates=dict(trace.rates), steps=list(trace.steps)))

    def run(self) -> None:
        """From what saves most to what saves least, and again while it helps."""
        self._closer_scans()
        self._fewer_kinds()
        smaller = True
        while smaller and self._left > 0:
            before = self._size()
            self._fewer_steps()
            self._fewer_kinds()
            self._smaller_picks()
            self._closer_scans()
            smaller = self._size() != before

    def told(self) -> Failure:
        """The best one, played once more for its transcript."""
        outcome = replay(_bare(self.best.trace), machine=self._machine)
        return outcome.failure if self._same(outcome) and outcome.failure is not None else self.best

    def _size(self) -> tuple[int, int, int]:
        trace = self.best.trace
        return len(_kinds(trace)), len(trace.steps), sum(sum(picks) + len(picks) for picks in trace.steps)

    def _same(self, outcome: Outcome) -> bool:
        found = outcome.failure
        return found is not None and (found.kind, found.what) == self._wanted

    def _try(self, trace: Trace) -> bool:
        """Play it; keep it when it fails in the same way."""
        if self._left <= 0:
            return False
        outcome = replay(_bare(trace), machine=self._machine, narrate=False)
        self._left -= outcome.steps + TRY
        kept = self._same(outcome)
        if kept and outcome.failure is not None:
            self.best = outcome.failure
        if self._progress is not None:
            size = self._size()
            self._progress(size[1], size[0], min(1 - self._left / self._budget, 1.0))
        return kept

    def _closer_scans(self) -> None:
        """What a recount finds happened before it, at worst a thousand events. The largest that helps is enough."""
        for scan in SCANS if self.best.trace.world == "server" else ():
            if not self.best.trace.scan or scan < self.best.trace.scan:
                before = self.best
                if self._try(replace(before.trace, scan=scan)) and self.best.step >= before.step:
                    self.best = before
        self._cut()

    def _fewer_kinds(self) -> None:
        def fails(kinds: Sequence[str]) -> bool:
            trace = self.best.trace
            rates = {name: rate if name in kinds else OFF for name, rate in trace.rates.items()}
            return self._try(replace(trace, rates=rates))

        kinds = _kinds(self.best.trace)
        if kinds and not fails(()):
            shrink(kinds, fails, self._left)

    def _fewer_steps(self) -> None:
        def fails(steps: Sequence[list[int]]) -> bool:
            return self._try(replace(self.best.trace, steps=list(steps)))

        steps = self.best.trace.steps
        if steps and not fails(()):
            shrink(steps, fails, self._left)
        self._cut()

    def _cut(self) -> None:
        """What came after the failure is no part of it."""
        del self.best.trace.steps[self.best.step :]

    def _smaller_picks(self) -> None:
        """Zeros at the end of a step say nothing; each other pick is tried as zero, and as half of what it is."""
        trace = self.best.trace
        self.best = replace(self.best, trace=replace(trace, steps=[_trimmed(picks) for picks in trace.steps]))
        index = 0
        while index < len(self.best.trace.steps) and self._left > 0:
            if self.best.trace.steps[index] and not self._with_step(index, []):
                place = 0
                while self._left > 0 and index < len(self.best.trace.steps):
                    picks = self.best.trace.steps[index]
                    if place >= len(picks):
                        break
                    if picks[place] and not self._with_pick(index, place, 0):
                        self._with_pick(index, place, picks[place] // 2)
                    place += 1
            index += 1
        self._cut()

    def _with_pick(self, index: int, place: int, pick: int) -> bool:
        picks = list(self.best.trace.steps[index])
        if pick == picks[place]:
            return False
        picks[place] = pick
        return self._with_step(index, _trimmed(picks))

    def _with_step(self, index: int, picks: list[int]) -> bool:
        steps = list(self.best.trace.steps)
        steps[index] = picks
        return self._try(replace(self.best.trace, steps=steps))


def _kinds(trace: Trace) -> list[str]:
    """The kinds that are on."""
    return [name for name, rate in trace.rates.items() if rate != OFF]


def _bare(trace: Trace) -> Trace:
    """To be played: a replay writes its hash into it."""
    return replace(trace, hash="", steps=list(trace.steps))


def _trimmed(picks: Sequence[int]) -> list[int]:
    """Without zeros at the end: where nothing was picked, the first option is taken."""
    kept = list(picks)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept
