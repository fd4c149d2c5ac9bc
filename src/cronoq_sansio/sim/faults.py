"""The kinds of faults that a simulated world meets, what each of them can meet, and how often that happened.

Swarm testing (Groce and others 2012): each seed switches each kind off with p = ½ and draws a rate for the others,
because faults hide each other: who crashes every second never sees a lease expire. `Coverage` counts kind × operation.
A kind that never met anything has shown nothing, however long the run was, and the run says so.
"""

from collections.abc import Iterable, Sequence

from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.values import value

REPORTS = ("complete", "fail", "nack", "heartbeat", "aborted", "slots")
"""What a worker says."""
CALLS = (
    *("submit", "submit and wait", "batch", "cancel", "get", "wait", "list", "watch"),
    *("add schedule", "remove schedule", "list schedules", "workers", "snapshot"),
)
"""What a caller asks."""
CHANGES = ("submit", "submit and wait", "batch", "cancel", "add schedule", "remove schedule")
"""Calls that change something."""
WRITES = ("insert", "dispatch", "end", "retry", "schedule", "nothing")
"""What a transaction holds; it may hold several."""


@value
class Fault:
    """One kind of fault."""

    name: str
    meets: tuple[str, ...]
    """The operations that it can meet."""
    what: str
    """For people."""
    rarer: int = 1
    """It strikes so many times less often than others: after it most of the world begins anew."""


END = 16  #: how much rarer the ends of terms are, so that a term lives long enough to have something to lose
FAULTS = (
    Fault("report lost", REPORTS, "a worker's report never arrives"),
    Fault("report duplicated", REPORTS, "a worker's report arrives twice"),
    Fault("report delayed", REPORTS, "a worker's report arrives after others that were sent later"),
    Fault("zombie", ("complete", "fail", "nack", "heartbeat", "aborted"), "a worker reports a lease that it lost"),
    Fault(
        "worker death",
        ("before the lease", "running", "done before the report", "after the report before the commit"),
        "a worker's connection is gone at one of four points",
    ),
    Fault("heartbeat at the edge", ("1 ns early", "in the very moment", "1 ns late"), "around the end of a lease"),
    Fault("slots cut", ("held", "unsent", "idle"), "a worker offers fewer slots than it uses"),
    Fault("herd", ("fixed starts", "retries", "keys", "schedule"), "very many tasks are due at one instant"),
    Fault("clock step", ("forward", "back"), "the wall clock is set"),
    Fault("pause", ("leases running", "nothing running"), "the process stands still"),
    Fault("reply lost", CALLS, "a caller never hears the answer, and may ask again"),
    Fault("caller gone", CALLS, "a caller goes away before its answer"),
    Fault("deadline", CALLS, "a call runs out of time"),
    Fault("asked twice", CHANGES, "the same request arrives twice"),
    Fault("commit refused", WRITES, "a transaction fails before it is applied"),
    Fault("commit unknown", WRITES, "a transaction is applied, and an error is returned"),
    Fault("commit slow", ("stalled", "pressure"), "a transaction takes longer than leases, or callers, wait"),
    Fault("query refused", ("find", "list"), "the store cannot be asked"),
    Fault("crash before commit", WRITES, "the process dies while its transaction is not applied", END),
    Fault(
        "crash after commit", WRITES, "the process dies when its transaction is applied, before anybody is told", END
    ),
    Fault("crash while telling", ("replies", "leases", "aborts"), "the process dies when some were told", END),
    Fault(
        "fault of the term", ("calls open", "workers connected", "idle"), "the term ends and a fresh one recovers", 2
    ),
    Fault("take-over", WRITES, "another process takes the store while the old one still serves", END),
    Fault("leadership flaps", ("taken", "regained"), "the store is lost to another process, and won back", 2),
    Fault("graceful stop", ("leases running", "nothing running"), "the server is stopped in order", 2),
    Fault(
        "other settings",
        ("the same", "schedules", "fewer pools", "fewer resources", "impatient", "strict", "other limits"),
        "a restart with another configuration",
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}

RATES = (4, 8, 16, 32, 64)
"""Of a kind that is on: it strikes once in so many chances."""
OFF = 0


class Swarm:
    """Which kinds are on in one world, and how often they strike."""

    __slots__ = ("rates",)

    def __init__(self, rates: dict[str, int]) -> None:
        self.rates = rates
        """Of every kind: once in so many chances; 0 = never."""

    @classmethod
    def draw(cls, choices: Choices, allowed: Iterable[str]) -> "Swarm":
        """Each allowed kind is on with p = ½."""
        known = set(allowed)
        return cls(
            {
                fault.name: choices.pick(RATES) * fault.rarer
                if choices.pick((True, False)) and fault.name in known
                else OFF
                for fault in FAULTS
            }
        )

    def heal(self) -> None:
        """No fault from now on."""
        self.rates = dict.fromkeys(self.rates, OFF)


class Coverage:
    """How often each kind of fault met each operation."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def note(self, kind: str, operation: str) -> None:
        """The kind struck there."""
        pair = (kind, operation)
        self.counts[pair] = self.counts.get(pair, 0) + 1

    def add(self, other: "Coverage") -> None:
        """Take over what another one counted."""
        for pair, count in other.counts.items():
            self.counts[pair] = self.counts.get(pair, 0) + count

    def idle_kinds(self, allowed: Iterable[str]) -> list[str]:
        """Kinds that met nothing at all."""
        met = {kind for kind, _ in self.counts}
        return [name for name in names(allowed) if name not in met]

    def holes(self, allowed: Iterable[str]) -> list[tuple[str, str]]:
        """Operations that a kind can meet and never met."""
        return [
            (name, operation)
            for name in names(allowed)
            for operation in BY_NAME[name].meets
            if (name, operation) not in self.counts
        ]


def names(allowed: Iterable[str]) -> Sequence[str]:
    """The allowed kinds, in the order of the table."""
    wanted = set(allowed)
    return [fault.name for fault in FAULTS if fault.name in wanted]
