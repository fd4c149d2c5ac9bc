"""`python -m cronoq_sansio.sim`: the one module of the pure package that does I/O. It decides nothing.

Arguments are read in `arguments`, what the command does stands in `commands`, texts are made in `report`. Here are
processes, clocks, files and the terminal.
"""

import os
import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until all is imported there is nothing to tell

import contextlib
import gc
import hashlib
import io
import pickle
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import IO, BinaryIO, NoReturn

import cronoq_sansio
from cronoq_sansio.inert import escape
from cronoq_sansio.limits import MAX_CONFIG_FILE, MAX_RECORDING_LINE
from cronoq_sansio.recording.replay import UNUSABLE, bounded_lines, is_recording, replay_recording
from cronoq_sansio.settings_walk import Problem
from cronoq_sansio.sim import report, trace
from cronoq_sansio.sim.arguments import PLANT, REPLAY, SCENARIO, Options, UsageError, help_text, parse
from cronoq_sansio.sim.commands import Broken, Run, Runner, Tick, find_plants, replay_trace, run_seeds
from cronoq_sansio.sim.plants import BEDS, PLANTS
from cronoq_sansio.sim.progress import EVERY, fitted
from cronoq_sansio.sim.scenario.load import load_scenario
from cronoq_sansio.sim.scenario.run import run_scenario
from cronoq_sansio.sim.seeds import Play, Played, played
from cronoq_sansio.sim.tally import BROKEN, CLOSED_PIPE, DONE, INTERRUPTED, USAGE
from cronoq_sansio.toml import parse_toml

PACKAGE = Path(cronoq_sansio.__file__).parent
DEPTH = 2
"""Seeds that a process has before it: it goes on while its result is read."""
COLLECTOR = (20_000, 10, 10)
"""Thresholds of the collector of circles: nearly all that a seed makes and drops is freed without it."""
AHEAD = 64
"""Seeds per process that may be done before the slowest one, whose results wait for it."""
REDRAWN = 0.1
"""Seconds between two drawings of the progress."""


class Unwritable(Exception):
    """The report cannot be written; the text says why."""

    code: int = BROKEN


PlaySeed = Callable[[Play], Played]


# --- processes


def work() -> None:
    """What a process for seeds does: plays in, results out, until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relax_collector()
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
    """One seed, in this process. A world is a circle: it is freed before the next one comes, and that counts too."""
    found = played(play, time.process_time, time.perf_counter)
    begun = time.process_time()
    gc.collect()
    spent = time.process_time() - begun
    return replace(found, cpu=found.cpu + spent, yardsticks=found.yardsticks * (1 + spent / max(found.cpu, 1e-9)))


def relax_collector() -> None:
    """The modules are not looked through again and again for circles, and what a seed makes is not so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


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
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
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
            tell(f"\r{fitted(text, width):<{width}}")
        else:
            self._next = now + EVERY
            tell(f"{text}\n")

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            tell(f"\r{' ' * (columns() - 1)}\r")
            self._drawn = False


def columns() -> int:
    """Of the terminal; one that does not know has 80."""
    return max(os.get_terminal_size(sys.stderr.fileno()).columns or 80, 2)


def tell(text: str) -> None:
    """On stderr; where it is closed or full the exit code has to do."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        drop(2)
    except (ValueError, AttributeError):
        pass


def complain(text: str) -> None:
    """Sentences on stderr, one a line."""
    tell("".join(f"Error: {escape(line)}\n" for line in text.split("\n")))


def drop(number: int) -> None:
    """Nothing can be written to stdout (1) or stderr (2), and the interpreter flushes once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def keep_free() -> None:
    """No file gets the number of a stream that is closed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


# --- files


def code_digest() -> str:
    """Of the program: every source file of the pure package."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file that the command line names. Raises `UsageError`, for what goes wrong while it is read too."""
    if "\0" in path:
        raise UsageError(f"{path} cannot be read: no file has a NUL in its name")
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def text_of(path: str, data: bytes, most: int) -> str:
    """Of a file. Raises `UsageError`."""
    if len(data) > most:
        raise UsageError(f"{path} is longer than {most:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: byte {error.start:,} is not UTF-8") from None


def read_toml(path: str) -> str:
    """A configuration or a scenario. Raises `UsageError`."""
    with opened(path) as file:
        text = text_of(path, file.read(MAX_CONFIG_FILE + 1), MAX_CONFIG_FILE)
    if text.startswith("\ufeff"):
        raise UsageError(f"{path} begins with a byte order mark; save it as UTF-8 without one")
    return text


class System:
    """The `commands.Outside` of this process; `play` runs a seed in the place of the real thing, for tests."""

    def __init__(self, quiet: bool, play: PlaySeed | None) -> None:
        self.shown = Shown(quiet)
        self._play = play

    def clock(self) -> float:
        """Seconds since whenever."""
        return time.monotonic()

    def cpu_clock(self) -> float:
        """Of this process."""
        return time.process_time()

    def show(self, line: Callable[[float], str]) -> None:
        """The progress."""
        self.shown.show(line)

    def code(self) -> str:
        """Of what is installed here."""
        return code_digest()

    def cpus(self) -> int:
        """That this process may use."""
        return cpus()

    def runner(self, jobs: int) -> AbstractContextManager[Runner]:
        """This process, or several others."""
        return Here(self._play or measured) if jobs == 1 or self._play is not None else Processes(jobs, 1)

    def second_runner(self, jobs: int) -> AbstractContextManager[Runner]:
        """Always others."""
        return Here(self._play) if self._play is not None else Processes(jobs, 1_000)

    def write(self, folder: str, name: str, text: str) -> str:
        """All of it or nothing."""
        path = Path(folder, name)
        temporary = None
        try:
            number, temporary = tempfile.mkstemp(dir=folder, prefix=".cronoq-sim-")  # mode 0600
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
            temporary = None
        except OSError as error:
            raise Broken(f"the trace {path} cannot be written: {error.strerror}") from None
        finally:  # the disk was full, or somebody interrupted
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
        return str(path)

    def quote(self, words: Iterable[str]) -> str:
        """For a POSIX shell."""
        return shlex.join(words)


# --- what the command does


def replay_file(run: Run, system: System) -> tuple[int, str]:
    """Play a trace or a recording: the exit code, and the report."""
    options = run.options
    with opened(options.file) as file:
        first = file.readline(MAX_RECORDING_LINE + 1)
        if is_recording(first.decode("ascii", "replace")):
            return recorded(options, system, first, file)
        text = text_of(options.file, first + file.read(max(trace.MAX_BYTES + 1 - len(first), 0)), trace.MAX_BYTES)
    if not trace.is_trace(text[:1_000]):
        raise UsageError(
            f"{options.file} is neither a trace of a failed seed nor a recording: its first line says neither"
        )
    tally, note = replay_trace(run, text)
    return tally.exit_code, report.as_json(tally, note) if options.json else report.text(tally, note)


def recorded(options: Options, system: System, first: bytes, file: BinaryIO) -> tuple[int, str]:
    """Play a recording."""
    if "--shrink" in options.given:
        raise UsageError("--shrink is for traces of failed seeds; a recording is replayed as it is")

    def lines() -> Iterator[str]:
        yield first.decode("ascii")
        for number, line in enumerate(bounded_lines(lambda size: file.readline(size).decode("ascii")), 2):
            system.show(lambda _, number=number: f"replaying line {number:,}")  # type: ignore[misc]
            yield line

    with interruptible() as interrupted:
        found = replay_recording(lines(), interrupted=interrupted)
    if found.outcome == UNUSABLE:
        raise UsageError(f"{options.file} cannot be replayed: {found.detail}")
    return found.exit_code, report.recording_json(found) if options.json else f"{found.text()}\n"


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether a signal came that should end this process; a second one does. Outside the main thread none comes."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    before = {}
    with contextlib.suppress(ValueError):
        before = {number: signal.signal(number, note) for number in handled}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def try_scenario(options: Options, system: System) -> tuple[int, str]:
    """Run a scenario: the exit code, and the report."""
    loaded = load_scenario(read_toml(options.file))
    if isinstance(loaded, tuple):
        refuse(options.file, loaded)
    config = None
    if loaded.config is not None:
        path = str(Path(options.file).parent / loaded.config)
        text = read_toml(path)
        try:
            config = parse_toml(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not valid TOML: {error}") from None
    scenario = loaded.with_config(config)
    if isinstance(scenario, tuple):
        refuse(options.file, scenario)
    with interruptible() as interrupted:
        found = run_scenario(
            scenario,
            lambda share, tasks: system.show(lambda _: f"{share:4.0%} of the time, {tasks:,} tasks"),
            interrupted,
        )
    code = INTERRUPTED if found.interrupted else DONE
    if options.json:
        return code, report.dumped(found.as_json())
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout and sys.stdout.isatty() else 100
    return code, found.text(width).rstrip("\n") + "\n"


def refuse(path: str, problems: Iterable[Problem]) -> NoReturn:
    """Everything that is wrong with a file."""
    raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))


def say(text: str, *, json: bool = False) -> None:
    """The report, on stdout, harmless to terminals. Raises `BrokenPipeError`, and `Unwritable` for other trouble."""
    out = sys.stdout
    if json and (getattr(out, "encoding", None) or "").lower().replace("-", "") != "utf8":
        text = report.in_ascii(text)
    try:
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")  # an old locale has no µ
        out.write(escape(text, keep="\n"))
        out.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError, AttributeError) as error:  # full, closed, or closed before the start
        raise Unwritable(getattr(error, "strerror", None) or "stdout is closed") from None


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
    system = System(options.quiet, play)
    try:
        code, text = done(Run(options, system, PLANTS, system.clock()), system)
    finally:
        system.shown.clear()
    try:
        say(text, json=options.json)
    except Unwritable as error:
        error.code = code or error.code  # what was found counts for more
        raise
    return code


def done(run: Run, system: System) -> tuple[int, str]:
    """What the mode says: the exit code, and the report."""
    options = run.options
    if options.mode == SCENARIO:
        return try_scenario(options, system)
    if options.mode == REPLAY:
        return replay_file(run, system)
    if options.mode == PLANT:
        plants = find_plants(run)
        return plants.exit_code, report.plants_json(plants) if options.json else report.plants_found_text(plants)
    tally = run_seeds(run)
    return tally.exit_code, report.as_json(tally) if options.json else report.text(tally)


def main(arguments: Sequence[str] | None = None, play: PlaySeed | None = None) -> int:
    """The command; `play` runs a seed in the place of the real thing, for tests."""
    try:
        return command(sys.argv[1:] if arguments is None else arguments, play)
    except UsageError as error:
        complain(str(error))
        return USAGE
    except KeyboardInterrupt:
        complain("interrupted before there was anything to report")
        return INTERRUPTED
    except Unwritable as error:
        complain(f"the report cannot be written: {error}")
        drop(1)
        return error.code
    except BrokenPipeError:
        drop(1)
        return CLOSED_PIPE


if __name__ == "__main__":
    keep_free()
    if callable(signal.getsignal(signal.SIGINT)):  # it is not ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever limits the time wants the report too
    try:
        relax_collector()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(main())
