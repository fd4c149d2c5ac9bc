"""What the figures should be, and why one is missed when it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.rounds import Ratio, Results


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that one run of all benchmarks found."""

    server: Results
    engine: dict[str, list[float]]
    recovery: dict[str, float]
    profiles: list[dict[str, Any]]
    client: Results
    imports: dict[str, float]
    stream: dict[str, list[float]]
    machine: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and its bound. `why` is printed when it is missed: the cause, without figures."""

    figure: str
    bound: float
    at_least: bool
    take: Callable[[Measured], Ratio]
    why: str

    def met(self, measured: Measured) -> bool:
        """Whether the median keeps the bound."""
        median = self.take(measured).median
        return median >= self.bound if self.at_least else median <= self.bound

    def miss(self, measured: Measured) -> str:
        """By how much the bound is missed, as a share of it."""
        return f"{abs(self.take(measured).median / self.bound - 1):.0%}"


def _ratio(case: str, server: str, base: str, figure: str) -> Callable[[Measured], Ratio]:
    return lambda measured: measured.server.ratio(case, server, base, figure)


def _client(load: str, client: str) -> Callable[[Measured], Ratio]:
    return lambda measured: measured.client.ratio(load, client, "grpcio", "cpu_us")


def _stream(figure: str) -> Callable[[Measured], Ratio]:
    return lambda measured: stream_ratio(measured.stream, figure)


def stream_ratio(figures: dict[str, list[float]], figure: str) -> Ratio:
    """`seconds` or `cpu` of one HTTP/2 stream, of a bare echo's, round by round."""
    pairs = zip(figures[f"http2.{figure}"], figures[f"plain.{figure}"], strict=True)
    return Ratio.of([ours / plain for ours, plain in pairs])


def _imports(measured: Measured) -> Ratio:
    figures = measured.imports
    return Ratio(figures["ratio"], figures["ratio_low"], figures["ratio_high"], int(figures["rounds"]))


def _engine(name: str) -> Callable[[Measured], Ratio]:
    return lambda measured: Ratio.of(measured.engine[name])


def _recovery(measured: Measured) -> Ratio:
    figures = measured.recovery
    return Ratio(figures["ratio"], figures["ratio_low"], figures["ratio_high"], int(figures["rounds"]))


UNARY = (
    "What is left is the work on each call, from the frame to the row and back, and no single item of it is large; see"
    " the profile by ring below."
)
ALONE = (
    "A call that comes alone pays for a whole turn: Trio's loop, two system calls of the socket and two of epoll, and"
    " everything that a read costs however little it brings. The kernel and Trio alone are more than a half of the"
    " target, and the rest is Python that runs with cold caches."
)
LEASING = (
    "Half of it is the engine and the service's book-keeping: records, leases, results and their indexes, about twenty"
    " small objects for each task."
)
COMMIT = (
    "A lease and a completion are two state rows and two pages more or less of SQLite's log, written in the writer's"
    " thread, and the answer waits for one more turn of the event loop; the memory figure that this is compared with"
    " has neither."
)
FIRING = (
    "A step in which 50 schedules fire leaves little of what other tasks need in the caches of the processor, the same"
    " as any other work of two milliseconds; the engine does nothing more for them."
)
ENGINE = "The profile of the engine alone has no single large item; its parts are in the profile of stream traffic."
MANY = "Tasks that wait are spread over more memory than the processor's caches hold; nothing looks at all of them."
ASIDE = (
    "It does not depend on how many wait: as soon as one does, each step asks whether something can be called, on a"
    " path that is left out while nobody waits."
)
CHECKS = "Each record of a step is compared with its task and with the tables that hold it."
NAMING = (
    "Each fire looks at the clocks of its zone before and after croniter's search, and searches again when a change"
    " of the clocks is near."
)
SIMULATING = (
    "Small worlds in which everything happens at once: recoveries, schedules, fixed starts and dependencies are a large"
    " part of all events, and few of them share a step."
)
LOADING = (
    "Each task is built anew from its rows: specification, record, task, queue entry and index entry, while sqlite3"
    " alone makes one tuple of it."
)
CALLING = (
    "Frames, header blocks, gRPC and flow control are Python here and C in grpcio, and so is the check of a"
    " specification before it is sent. What remains is spread: the event loop wakes a task per call, and next to that"
    " the largest parts are writing the request and reading the answer."
)
STREAMING = (
    "A frame of the largest size is cut out of what was read, counted against two windows, told as an event and put"
    " into a write again; a bare echo hands on what it reads, whatever it is."
)
WORKING = (
    "Each lease is a task of the event loop that can be cut off alone, which is about a third of what a lease costs;"
    " decoding it, the session machine and encoding the report are most of the rest."
)
IMPORTING = "protobuf, anyio and ssl come along, and are a large part of it."

TARGETS: tuple[Target, ...] = (
    Target(
        "server CPU per unary Submit, memory store, 4 × 32 in flight, of `aio`'s",
        0.10,
        False,
        _ratio("submit", "memory", "aio", "cpu_us"),
        UNARY,
    ),
    Target(
        "server CPU per unary Submit, memory store, 1 × 1 in flight, of `aio`'s",
        0.3,
        False,
        _ratio("one", "memory", "aio", "cpu_us"),
        ALONE,
    ),
    Target(
        "server CPU per lease and completion, memory store, one stream, 32 slots, of `aio`'s",
        0.17,
        False,
        _ratio("drain", "memory", "aio", "cpu_us"),
        LEASING,
    ),
    Target(
        "server CPU per unary Submit, SQLite FULL, of our own with the memory store",
        2.0,
        False,
        _ratio("submit", "sqlite", "memory", "cpu_us"),
        COMMIT,
    ),
    Target(
        "server CPU per lease and completion, SQLite FULL, of our own with the memory store",
        2.0,
        False,
        _ratio("drain", "sqlite", "memory", "cpu_us"),
        COMMIT,
    ),
    Target(
        "rate of leases and completions, SQLite FULL, 32 slots, of `aio`'s no-op",
        0.8,
        True,
        _ratio("drain", "sqlite", "aio", "rate"),
        COMMIT,
    ),
    Target(
        "rate of leases and completions, SQLite FULL, 256 slots, of `aio`'s no-op",
        0.8,
        True,
        _ratio("drain256", "sqlite", "aio", "rate"),
        COMMIT,
    ),
    *(
        Target(
            "engine alone: one task submitted, dispatched and completed with 1,000 waiting,"
            f" {events}, in units of `sum(range(1000))` in the same process",
            bound,
            False,
            _engine(name),
            ENGINE,
        )
        for events, name, bound in (("one event per step", "plain.1", 1.0), ("16 events per step", "plain.16", 0.7))
    ),
    Target(
        "engine alone: the same with 1,000,000 waiting, one event per step, of that with 1,000",
        1.5,
        False,
        _engine("million.1"),
        MANY,
    ),
    Target(
        "memory per waiting task, engine alone, of 1,000,000 with a 16-byte key and no payload, KiB of VmRSS",
        1.5,
        False,
        _engine("kib_per_waiting_task"),
        "Each waiting task has a specification, a task object and three index entries.",
    ),
    *(
        Target(
            f"engine alone: the same while 300,000 tasks of the pool wait for {what}, one event per step, of that"
            " without them",
            1.1,
            False,
            _engine(name),
            ASIDE,
        )
        for what, name in (("one empty token bucket", "bucket.1"), ("a label that no worker has", "label.1"))
    ),
    Target(
        "engine alone: the same while another task of the pool waits for its fixed start and a schedule is armed there,"
        " one event per step, of that without them",
        1.1,
        False,
        _engine("timed.1"),
        ENGINE,
    ),
    Target(
        "engine alone: the same while 10,000 schedules of another pool are due in one second, as many fires as tasks,"
        " one event per step, of that without them",
        1.5,
        False,
        _engine("recurring.1"),
        FIRING,
    ),
    Target(
        "per-step invariant checks, one event per step, of the engine's own steps",
        1.0,
        False,
        _engine("checks.plain.1"),
        CHECKS,
    ),
    *(
        Target(f"next fire of random cron expressions in zones of tzdata, {what}", bound, False, _engine(name), NAMING)
        for what, name, bound in (
            ("median, of the median of bare croniter calls", "cron.median", 1.5),
            ("the most expensive one, of the median of bare croniter calls", "cron.worst", 50.0),
        )
    ),
    Target("an event of a simulated server with all checks, in units", 2.0, False, _engine("sim.server"), SIMULATING),
    Target(
        "recovery from SQLite, tasks per second, of the rate at which sqlite3 alone reads the rows",
        0.2,
        True,
        _recovery,
        LOADING,
    ),
    *(
        Target(
            f"client CPU per unary Submit, our client under {name}, 10 in flight, of grpcio's",
            0.5,
            False,
            _client("submit", client),
            CALLING,
        )
        for client, name in (("asyncio", "asyncio"), ("trio", "Trio"))
    ),
    *(
        Target(
            f"worker CPU per task that does nothing, our worker under {name}, 10 slots, of the same worker on grpcio",
            0.4,
            False,
            _client("worker", client),
            WORKING,
        )
        for client, name in (("asyncio", "asyncio"), ("trio", "Trio"))
    ),
    *(
        Target(
            f"{what} of 64 KiB payloads there and back in one HTTP/2 stream, of a bare Trio echo's",
            1.5,
            False,
            _stream(figure),
            STREAMING,
        )
        for what, figure in (("time", "seconds"), ("processor time of both ends", "cpu"))
    ),
    Target(
        "time of `import cronoq.client`, of `import trio`'s",
        2.0,
        False,
        _imports,
        IMPORTING,
    ),
)
