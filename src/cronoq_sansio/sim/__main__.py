"""`python -m cronoq_sansio.sim`: the one module of the pure package that does I/O. It decides nothing.

Arguments are read in `arguments`, seeds are run in `run`, texts are made in `report`. Here are files, processes, clocks
and the terminal.
"""

import contextlib
import hashlib
import os
import pickle
import re
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from itertools import count, tee
from pathlib import Path
from typing import IO

import cronoq_sansio
from cronoq_sansio.sim import report, trace
from cronoq_sansio.sim.arguments import PLANT, PROGRAM, REPLAY, Options, UsageError, command_of, help_text, parse
from cronoq_sansio.sim.failure import Failure
from cronoq_sansio.sim.plants import BEDS, PLANTS
from cronoq_sansio.sim.progress import EVERY, Progress
from cronoq_sansio.sim.run import Report, replay
from cronoq_sansio.sim.seeds import Play, Played, played, plays, replayed
from cronoq_sansio.sim.shrinking import BRIEF, BUDGET, shrunk
from cronoq_sansio.sim.tally import (
    CLOSED_PIPE,
    DONE,
    INTERRUPTED,
    USAGE,
    FoundPlant,
    Plants,
    Tally,
    Told,
    judged,
    not_the_same,
)

PACKAGE = Path(cronoq_sansio.__file__).parent
DEPTH = 2
"""Seeds that a process has before it: it goes on while its result is read."""
AHEAD = 64
"""Seeds per process that may be done before the slowest one, whose results wait for it."""
REDRAWN = 0.1
"""Seconds between two drawings of the progress."""

PlaySeed = Callable[[Play], Played]
Tick = Callable[[], None]


class Broken(Exception):
    """The run cannot go on; the text says why."""


# --- processes


def work() -> None:
    """What a process for seeds does: plays in, results out, until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything else writes may not come between
    while True:
        try:
            index, play = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        data = pickle.dumps((index, measured(play)))
        out.write(len(data).to_bytes(4, "big") + data)
        out.flush()


def measured(play: Play) -> Played:
    """One seed, in this process."""
    return played(play, time.process_time, time.perf_counter)


class Worker:
    """One process for seeds."""

    def __init__(self, hash_seed: int) -> None:
        paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(paths)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from cronoq_sansio.sim.__main__ import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environ,
            process_group=0,  # Ctrl-C is for the parent alone
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self.output: IO[bytes] = self._process.stdout
        self._read = bytearray()
        self.waiting: dict[int, Play] = {}

    def give(self, index: int, play: Play) -> None:
        """One more seed."""
        self.waiting[index] = play
        try:
            self._input.write(pickle.dumps((index, play)))
            self._input.flush()
        except BrokenPipeError:
            self._died()

    def take(self) -> list[tuple[int, Played]]:
        """What it has sent. Raises `Broken` when it is gone."""
        data = os.read(self.output.fileno(), 1 << 20)
        if not data:
            self._died()
        self._read += data
        found = []
        while len(self._read) >= 4 and len(self._read) >= 4 + (size := int.from_bytes(self._read[:4], "big")):
            index, result = pickle.loads(self._read[4 : 4 + size])
            del self._read[: 4 + size]
            del self.waiting[index]
            found.append((index, result))
        return found

    def _died(self) -> None:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        seeds = ", ".join(str(play.seed) for play in self.waiting.values())
        self._errors.seek(0)
        last = self._errors.read()[-2_000:].decode(errors="replace").strip().rpartition("\n")[2]
        raise Broken(f"a process {how} with seed {seeds} before it" + (f": {ascii(last)[1:-1]}" if last else ""))

    def end(self) -> None:
        """At once."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.output.close()
        self._process.wait()
        self._errors.close()


class Processes:
    """Some processes that run seeds, and hand back what came of them in the order of the seeds."""

    def __init__(self, jobs: int, first_hash_seed: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._indices = count()
        for number in range(jobs):
            worker = Worker(first_hash_seed + number)
            self._workers.append(worker)
            self._selector.register(worker.output, selectors.EVENT_READ, worker)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._selector.close()

    def __call__(self, seeds: Iterable[Play], tick: Tick) -> Generator[Played, None, None]:
        """Run them; who stops asking leaves what is still running to be dropped."""
        coming = iter(seeds)
        done: dict[int, Played] = {}
        order: list[int] = []
        open_ended = True
        while True:
            while order and order[0] in done:
                yield done.pop(order.pop(0))
            for depth in range(1, DEPTH + 1):
                for worker in self._workers:
                    if open_ended and len(worker.waiting) < depth and len(order) < AHEAD * len(self._workers):
                        play = next(coming, None)
                        open_ended = play is not None
                        if play is not None:
                            order.append(next(self._indices))
                            worker.give(order[-1], play)
            if not order and not open_ended:
                return
            known = set(order)
            for key, _ in self._selector.select(REDRAWN):
                done.update((index, result) for index, result in key.data.take() if index in known)
            tick()


class Here:
    """Runs seeds in this process."""

    def __init__(self, play: PlaySeed) -> None:
        self._play = play

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, seeds: Iterable[Play], tick: Tick) -> Generator[Played, None, None]:
        """Run them."""
        for play in seeds:
            tick()
            yield self._play(play)


def cpus() -> int:
    """That this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


# --- the terminal


class Shown:
    """The progress: a line that is drawn again and again on a terminal, else a line from time to time."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._next = clock() + (0 if self._terminal else EVERY)
        self._drawn = False

    def show(self, line: Callable[[float], str]) -> None:
        """Draw the line when it is time."""
        now = self._clock()
        if self._quiet or now < self._next:
            return
        text = line(now)
        if self._terminal:
            self._next = now + REDRAWN
            self._drawn = True
            width = columns() - 1
            sys.stderr.write(f"\r{text[:width]:<{width}}")
        else:
            self._next = now + EVERY
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            sys.stderr.write(f"\r{' ' * (columns() - 1)}\r")
            sys.stderr.flush()
            self._drawn = False


def columns() -> int:
    """Of the terminal; one that does not know has 80."""
    return max(os.get_terminal_size(sys.stderr.fileno()).columns or 80, 20)


def complain(text: str) -> None:
    """A sentence on stderr."""
    sys.stderr.write(f"Error: {text}\n")
    sys.stderr.flush()


# --- files


def code_digest() -> str:
    """Of the program: every source file of the pure package."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def write_trace(options: Options, failure: Failure, suffix: str = "") -> str:
    """Write it, for its owner alone; the path."""
    plant = re.sub(r"[^a-z0-9]+", "-", failure.trace.plant.lower()).strip("-")
    name = "-".join(filter(None, ["cronoq-sim-seed", str(failure.seed), plant, suffix]))
    path = Path(options.trace_dir, f"{name}.json")
    text = trace.encode(trace.of_failure(failure, code_digest()))
    try:
        number, temporary = tempfile.mkstemp(dir=options.trace_dir, prefix=".cronoq-sim-")  # mode 0600
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise Broken(f"the trace {path} cannot be written: {error.strerror}") from None
    return str(path)


def read_text(path: str, most: int) -> str:
    """A file that the command line names. Raises `UsageError`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UsageError(f"{path} is longer than {most:,} bytes")
        return data.decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: byte {error.start:,} is not UTF-8") from None


# --- what the command does


def runner(options: Options, play: PlaySeed | None, jobs: int) -> "Here | Processes":
    """Who runs the seeds."""
    if play is not None:
        return Here(play)
    return Processes(jobs, 1) if jobs > 1 else Here(measured)


def jobs_of(options: Options) -> int:
    """How many processes are worth it."""
    wanted = options.jobs or cpus()
    wanted = max(wanted // 2, 1) if options.twice else wanted
    return min(wanted, options.seeds) if options.seeds is not None else wanted


def run_seeds(options: Options, play: PlaySeed | None) -> Tally:
    """Run them all, and tell of those that failed."""
    jobs = jobs_of(options)
    tally = Tally(options, Report(options.faults), jobs=jobs)
    shown = Shown(options.quiet)
    start = time.monotonic()
    progress = Progress(start, options.seeds, options.budget, options.events)

    def tick() -> None:
        shown.show(lambda now: progress.line(now, tally.report.seeds, tally.events, tally.failed))

    def is_over() -> bool:
        return options.budget is not None and time.monotonic() - start >= options.budget

    seeds: Iterator[Play] = plays(options, "", is_over)
    again: Iterator[Play] = iter([next(plays(options, "", lambda: False))])
    if options.twice:
        seeds, again = tee(seeds)
    try:
        with runner(options, play, jobs) as one, runner_of_second(play, jobs, options.twice) as other:
            second = other(again, tick)
            for result in one(seeds, tick):
                tally.add(result)
                repeated = next(second, None)
                if repeated is not None:
                    tally.compare(result.outcome, repeated.outcome)
                if options.events is not None and tally.events >= options.events:
                    break
            tally.seconds = time.monotonic() - start
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)
    tally.seconds = tally.seconds or time.monotonic() - start
    tell_all(tally, shown)
    shown.clear()
    return tally


def runner_of_second(play: PlaySeed | None, jobs: int, twice: bool) -> "Here | Processes":
    """Who runs seeds once more: processes in which names hash in another way."""
    return Here(play) if play is not None else Processes(jobs if twice else 1, 1_000)


def tell_all(tally: Tally, shown: Shown) -> None:
    """Write the trace of each failure, play it with narration, and cut it down."""
    try:
        for number, told in enumerate(list(tally.told)):
            if not tally.interrupted:
                wanted = tally.options.shrink
                tell(tally, told, shown, shrink=number == 0 if wanted is None else wanted)
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)


def tell(tally: Tally, told: Told, shown: Shown, *, shrink: bool) -> None:
    """One failure."""
    options = tally.options
    failure = told.failure
    words = command_of(failure.seed, options)
    if not failure.trace.steps:  # two runs of a seed differ: neither can be played from what is known
        told.again = shlex.join([*PROGRAM.split(), *words, "--twice"])
        return
    told.again = shlex.join([*PROGRAM.split(), *words])
    told.trace = write_trace(options, failure)
    again = replay(replace(failure.trace, hash=""))
    difference = not_the_same(failure, again)
    if difference is not None:
        tally.fail(difference)
        return
    if again.failure is not None:
        failure.transcript = again.failure.transcript
    if shrink:
        told.short = cut_down(options, failure, shown)
        told.short_trace = write_trace(options, told.short, "short")


def cut_down(options: Options, failure: Failure, shown: Shown) -> Failure:
    """The same failure after less."""

    def progress(steps: int, kinds: int, share: float) -> None:
        shown.show(lambda _: f"shrinking seed {failure.seed}: {steps:,} steps, {kinds} kinds of faults  {share:.0%}")

    return shrunk(failure, BUDGET if options.shrink else BRIEF, progress)


def find_plants(options: Options, play: PlaySeed | None) -> Plants:
    """Look for one planted bug, or for each."""
    wanted = list(PLANTS) if options.plant == "all" else [options.plant]
    shown = Shown(options.quiet)
    plants = Plants(options)
    jobs = jobs_of(options)
    start = time.monotonic()
    try:
        with runner(options, play, jobs) as one:
            for number, name in enumerate(wanted, 1):
                what = f"{name} ({number} of {len(wanted)})"
                plants.found.append(find_plant(options, one, name, shown, start, what))
        if len(wanted) == 1 and plants.found[0].failure is not None:
            tally = Tally(options, Report(options.faults), [Told(plants.found[0].failure)])
            tell_all(tally, shown)
            plants.told, plants.interrupted, plants.broken = tally.told, tally.interrupted, tally.broken
    except KeyboardInterrupt:
        plants.interrupted = True
    except Broken as broken:
        plants.broken = str(broken)
    shown.clear()
    return plants


def find_plant(
    options: Options, one: "Here | Processes", name: str, shown: Shown, start: float, what: str
) -> FoundPlant:
    """Run seeds with the bug until one fails, and that seed without it."""
    begin = time.monotonic()
    progress = Progress(begin, options.seeds, options.budget, options.events, what)
    found = FoundPlant(name)
    events = 0

    def tick() -> None:
        shown.show(lambda now: progress.line(now, found.seeds, events, 0))

    def is_over() -> bool:
        return options.budget is not None and time.monotonic() - start >= options.budget

    with contextlib.closing(one(plays(options, name, is_over), tick)) as results:
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


def replay_file(options: Options) -> tuple[Tally, str]:
    """Play a trace; what came of it, and a sentence about what the file says."""
    text = read_text(options.file, trace.MAX_BYTES)
    if not trace.is_trace(text[:1_000]):
        raise UsageError(f"{options.file} is no trace of a failed seed: it does not begin with {trace.FORMAT!r}")
    try:
        written = trace.decode(text, tuple(PLANTS))
    except trace.TraceError as error:
        raise UsageError(f"{options.file}, {error}") from None
    options = replace(options, seed=written.trace.seed)
    tally = Tally(options, Report(tuple(name for name, rate in written.trace.rates.items() if rate)))
    shown = Shown(options.quiet)
    start = time.monotonic()
    note = ""
    try:
        shown.show(lambda _: f"replaying {len(written.trace.steps):,} steps of seed {written.trace.seed}")
        result = replayed(replace(written.trace, hash=""), time.process_time, time.perf_counter)
        tally.add(result)
        tally.seconds = time.monotonic() - start
        difference, note = judged(written, result.outcome, written.code in ("", code_digest()))
        if difference is not None:
            tally.fail(difference)
        for told in tally.told:
            told.trace = options.file
            if options.shrink and told.failure.trace.steps:
                told.short = cut_down(options, told.failure, shown)
                told.short_trace = write_trace(options, told.short, "short")
    except KeyboardInterrupt:
        tally.interrupted = True
    except Broken as broken:
        tally.broken = str(broken)
    shown.clear()
    return tally, note


def say(text: str) -> None:
    """The report, on stdout. Raises `BrokenPipeError`."""
    sys.stdout.write(text)
    sys.stdout.flush()


def version() -> str:
    """Of the product, as it is installed."""
    try:
        return metadata.version("cronoq-trio")
    except metadata.PackageNotFoundError:
        return "of a checkout"


def command(arguments: Sequence[str], play: PlaySeed | None) -> int:
    """Do what the arguments say; the exit code. Raises `UsageError`, `BrokenPipeError`, `KeyboardInterrupt`."""
    options = parse(arguments, PLANTS)
    shows: dict[str, Callable[[], str]] = {
        "help": help_text,
        "version": lambda: f"cronoq-trio {version()}, code {code_digest()}\n",
        "faults": report.faults_text,
        "plants": lambda: report.plants_text(BEDS),
    }
    if options.show:
        say(shows[options.show]())
        return DONE
    if not Path(options.trace_dir).is_dir():
        raise UsageError(f"--trace-dir {options.trace_dir} is no directory")
    if options.mode == PLANT:
        plants = find_plants(options, play)
        say(report.plants_json(plants) if options.json else report.plants_found_text(plants))
        return plants.exit_code
    if options.mode == REPLAY:
        tally, note = replay_file(options)
    else:
        tally, note = run_seeds(options, play), ""
    say(report.as_json(tally, note) if options.json else report.text(tally, note))
    return tally.exit_code


def main(arguments: Sequence[str] | None = None, play: PlaySeed | None = None) -> int:
    """The command; `play` runs a seed in the place of the real thing, for tests."""
    try:
        return command(sys.argv[1:] if arguments is None else arguments, play)
    except UsageError as error:
        complain(f"{error}")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more at its end
        return CLOSED_PIPE


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever limits the time wants the report too
    sys.exit(main())
