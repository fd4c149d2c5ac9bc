"""What the command of the simulator does, one function per mode.

Pure: files, processes, clocks and the terminal come from an `Outside`, which `__main__` has.
"""

import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import tee
from typing import Protocol

from cronoq_sansio.sim import trace
from cronoq_sansio.sim.arguments import PROGRAM, Options, UsageError, command_of
from cronoq_sansio.sim.failure import Failure
from cronoq_sansio.sim.plants.planting import Plant
from cronoq_sansio.sim.progress import Progress
from cronoq_sansio.sim.run import Report, replay
from cronoq_sansio.sim.seeds import Play, Played, plays, replayed
from cronoq_sansio.sim.shrinking import BRIEF, BUDGET, shrunk
from cronoq_sansio.sim.tally import FoundPlant, Plants, Tally, Told, judged, not_the_same

Tick = Callable[[], None]
Runner = Callable[[Iterable[Play], Tick], Generator[Played, None, None]]
"""Runs seeds and hands back what came of them, in their order; calls the tick now and then."""


JOBS_PER_CPU = 4
"""More only wait for each other: hundreds take minutes to start."""


class Broken(Exception):
    """The run cannot go on; the text says why."""


class Outside(Protocol):
    """What is not pure."""

    def clock(self) -> float:
        """Seconds, never going back."""

    def cpu_clock(self) -> float:
        """Seconds that this process has used."""

    def show(self, line: Callable[[float], str]) -> None:
        """Draw the progress when it is time; the line is made of the clock."""

    def code(self) -> str:
        """Digest of the program."""

    def cpus(self) -> int:
        """That may be used."""

    def runner(self, jobs: int) -> AbstractContextManager[Runner]:
        """Who runs seeds."""

    def second_runner(self, jobs: int) -> AbstractContextManager[Runner]:
        """Who runs seeds once more: processes in which names hash in another way."""

    def write(self, folder: str, name: str, text: str) -> str:
        """Write a file for its owner alone; its path. Raises `Broken`."""

    def quote(self, words: Iterable[str]) -> str:
        """A command as a shell reads it."""


@dataclass(slots=True)
class Run:
    """What one run of the command works with."""

    options: Options
    outside: Outside
    plants: Mapping[str, Plant]
    start: float

    def is_over(self) -> bool:
        """The time is over."""
        budget = self.options.budget
        return budget is not None and self.outside.clock() - self.start >= budget

    def jobs(self) -> int:
        """How many processes are worth it. Raises `UsageError`."""
        cpus = self.outside.cpus()
        wanted = self.options.jobs or cpus
        if wanted > JOBS_PER_CPU * cpus:
            raise UsageError(f"--jobs is at most {JOBS_PER_CPU * cpus} here, {JOBS_PER_CPU} for each CPU, not {wanted}")
        if self.options.twice:
            wanted = max(wanted // 2, 1)
        return min(wanted, self.options.seeds) if self.options.seeds is not None else wanted


def run_seeds(run: Run) -> Tally:
    """Run them all, and tell of those that failed."""
    options, outside = run.options, run.outside
    jobs = run.jobs()
    tally = Tally(options, Report(options.faults), jobs=jobs)
    progress = Progress(run.start, options.seeds, options.budget, options.events)

    def tick() -> None:
        outside.show(lambda now: progress.line(now, tally.report.seeds, tally.events, tally.failed))

    seeds: Iterator[Play] = plays(options, "", run.is_over)
    again: Iterator[Play] = iter([next(plays(options, "", lambda: False))])
    if options.twice:
        seeds, again = tee(seeds)
    try:
        with outside.runner(jobs) as one, outside.second_runner(jobs if options.twice else 1) as other:
            second = other(again, tick)
            for result in one(seeds, tick):
                tally.add(result)
                repeated = next(second, None)
                if repeated is not None:
                    tally.compare(result.outcome, repeated.outcome)
                if options.events is not None and tally.events >= options.events:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)
    tally.seconds = outside.clock() - run.start
    tell_all(run, tally)
    return tally


def tell_all(run: Run, tally: Tally) -> None:
    """Write the trace of each failure, play it with narration, and cut it down."""
    try:
        for number, told in enumerate(list(tally.told)):
            if not tally.interrupted:
                wanted = run.options.shrink
                tell(run, tally, told, shrink=number == 0 if wanted is None else wanted)
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)


def tell(run: Run, tally: Tally, told: Told, *, shrink: bool) -> None:
    """One failure."""
    failure = told.failure
    words = [*PROGRAM.split(), *command_of(failure.seed, run.options)]
    if not failure.trace.steps:  # two runs of a seed differ: neither can be played from what is known
        told.again = run.outside.quote([*words, "--twice"])
        return
    told.again = run.outside.quote(words)
    told.trace = write_trace(run, failure)
    again = replay(replace(failure.trace, hash=""))
    difference = not_the_same(failure, again)
    if difference is not None:
        tally.fail(difference)
        return
    if again.failure is not None:
        failure.transcript = again.failure.transcript
    if shrink:
        cut_down(run, told)


def cut_down(run: Run, told: Told) -> None:
    """The same failure after less."""
    failure = told.failure

    def progress(steps: int, kinds: int, share: float) -> None:
        line = f"shrinking seed {failure.seed}: {steps:,} steps, {kinds} kinds of faults  {share:.0%}"
        run.outside.show(lambda _: line)

    told.short = shrunk(failure, BUDGET if run.options.shrink else BRIEF, progress)
    told.short_trace = write_trace(run, told.short, "short")


def write_trace(run: Run, failure: Failure, suffix: str = "") -> str:
    """Write it; the path."""
    plant = re.sub(r"[^a-z0-9]+", "-", failure.trace.plant.lower()).strip("-")
    name = "-".join(filter(None, ["cronoq-sim-seed", str(failure.seed), plant, suffix]))
    text = trace.encode(trace.of_failure(failure, run.outside.code()))
    return run.outside.write(run.options.trace_dir, f"{name}.json", text)


def find_plants(run: Run) -> Plants:
    """Look for one planted bug, or for each."""
    options = run.options
    wanted = list(run.plants) if options.plant == "all" else [options.plant]
    plants = Plants(options)
    try:
        with run.outside.runner(run.jobs()) as one:
            for number, name in enumerate(wanted, 1):
                plants.found.append(find_plant(run, one, name, f"{name} ({number} of {len(wanted)})"))
        if options.plant != "all" and plants.found[0].failure is not None:
            tally = Tally(options, Report(options.faults), [Told(plants.found[0].failure)])
            tell_all(run, tally)
            plants.told, plants.interrupted, plants.broken = tally.told, tally.interrupted, tally.broken
    except KeyboardInterrupt:
        plants.interrupted = True
    except Broken as broken:
        plants.broken = str(broken)
    return plants


def find_plant(run: Run, one: Runner, name: str, what: str) -> FoundPlant:
    """Run seeds with the bug until one fails, and that seed without it."""
    options = run.options
    progress = Progress(run.outside.clock(), options.seeds, options.budget, options.events, what)
    found = FoundPlant(name)
    events = 0

    def tick() -> None:
        run.outside.show(lambda now: progress.line(now, found.seeds, events, 0))

    with contextlib.closing(one(plays(options, name, run.is_over), tick)) as results:
        for result in results:
            found.seeds += 1
            events += result.outcome.events
            found.failure = result.outcome.failure
            if found.failure is not None or (options.events is not None and events >= options.events):
                break
    if found.failure is not None:
        alone = replace(options, seed=found.failure.seed, seeds=1)
        for result in one(plays(alone, "", lambda: False), tick):
            found.without = result.outcome.failure
    return found


def replay_trace(run: Run, text: str) -> tuple[Tally, str]:
    """Play a trace; what came of it, and a sentence about what the file says. Raises `UsageError`."""
    try:
        written = trace.decode(text, tuple(run.plants))
    except trace.TraceError as error:
        raise UsageError(f"{run.options.file}, {error}") from None
    run.options = replace(run.options, seed=written.trace.seed)
    tally = Tally(run.options, Report(tuple(name for name, rate in written.trace.rates.items() if rate)))
    note = ""
    try:
        run.outside.show(lambda _: f"replaying {len(written.trace.steps):,} steps of seed {written.trace.seed}")
        played = replayed(replace(written.trace, hash=""), run.outside.cpu_clock, run.outside.clock)
        tally.add(played)
        tally.seconds = run.outside.clock() - run.start
        difference, note = judged(written, played.outcome, written.code in ("", run.outside.code()))
        if difference is not None:
            tally.replace(difference)
        for told in tally.told:
            told.trace = run.options.file
            if run.options.shrink and told.failure.trace.steps:
                cut_down(run, told)
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)
    return tally, note
