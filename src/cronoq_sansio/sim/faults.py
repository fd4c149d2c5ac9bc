"""The kinds of faults that a simulated world meets, what each of them can meet, and how often that happened.

Swarm testing (Groce and others 2012): each seed switches each kind off with p = ½ and draws a rate for the others,
because faults hide each other: who crashes every second never sees a lease expire. `Coverage` counts kind × operation.
A kind that never met anything has shown nothing, however long the run was, and the run says so.
"""

from collections.abc import Iterable, Sequence

from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.values import value

OUTCOMES = ("complete", "fail", "nack", "heartbeat", "aborted")
"""What a worker says of a lease."""
REPORTS = (*OUTCOMES, "slots")
"""What a worker says."""
HELD_CALLS = (
    *("submit", "submit and wait", "batch", "cancel", "get", "wait", "list"),
    *("add schedule", "remove schedule", "list schedules"),
)
"""What a caller asks and may have to wait for: for the store, or for an end. Figures of the server wait for nothing,
and the end of a watch is no fault: every watch ends like that."""
CALLS = (*HELD_CALLS, "watch", "workers", "snapshot")
"""What a caller asks."""
CHANGES = ("submit", "submit and wait", "batch", "cancel", "add schedule", "remove schedule")
"""Calls that change something."""
WRITES = ("insert", "dispatch", "return", "end", "retry", "edge", "schedule")
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
    Fault("report delayed", REPORTS, "a worker's report arrives much later, in any order with others"),
    Fault("report reordered", REPORTS, "a worker's report overtakes the one before it"),
    Fault("zombie", OUTCOMES, "a worker reports a lease that it lost"),
    Fault("zombie of another term", OUTCOMES, "a worker comes back on a new stream with a lease of another term"),
    Fault("lease of another worker", OUTCOMES, "a worker reports a lease that another one holds"),
    Fault("report after the end", REPORTS, "a worker's report arrives when its stream is closed"),
    Fault(
        "worker death",
        ("before the lease", "running", "done before the report", "after the report before the commit"),
        "a worker's connection is gone at one of four points",
    ),
    Fault(
        "heartbeat at the edge",
        tuple(f"{when} {end}" for end in ("expiry", "timeout") for when in ("1 ns before", "at", "1 ns after")),
        "a heartbeat around the end of a lease, or of its attempt's time",
    ),
    Fault("slots cut", ("held", "unsent"), "a worker offers fewer slots than it uses, or than are on their way to it"),
    Fault(
        "odd worker",
        (
            *("never registers", "gone before it registers", "registers late", "registers twice"),
            *("reports before it registers", "unknown pool", "old protocol", "too many slots", "empty message"),
            "output too large",
        ),
        "a worker does what the protocol allows and hardly anybody does, or what it forbids",
    ),
    Fault(
        "odd request",
        (
            *("unknown id", "unknown key", "unknown pool", "wait for no time", "watch of nobody", "list to the end"),
            *("empty batch", "key twice in a batch", "circle in a batch", "batch over the bound", "too many at once"),
            *("bad cron", "bad time zone", "unknown schedule", "unknown resource", "no attempts"),
        ),
        "a caller asks for what hardly anybody asks for, or for what there is not",
    ),
    Fault("herd", ("fixed starts", "retries", "children", "schedules"), "very many tasks are due at one instant"),
    Fault("clock step", ("forward", "back"), "the wall clock is set"),
    Fault("pause", ("leases running", "nothing running", "commit in flight"), "the process stands still"),
    Fault("reply lost", CALLS, "a caller never hears the answer, or the rest of it, and may ask again"),
    Fault("caller gone", HELD_CALLS, "a caller goes away while it waits"),
    Fault("caller gone at once", CALLS, "a caller goes away in the read that brings its request"),
    Fault("deadline", CALLS, "a call runs out of time"),
    Fault("asked twice", CHANGES, "the same request arrives twice"),
    Fault("commit refused", WRITES, "a transaction fails before it is applied"),
    Fault("commit unknown", WRITES, "a transaction is applied, and an error is returned"),
    Fault(
        "commit slow", ("stalled", "pressure", "goes on"), "a transaction takes longer than leases, or callers, wait"
    ),
    Fault("store behind", ("cascades held", "nothing to hold", "steps wait"), "what is written piles up"),
    Fault("store outage", ("leases running", "nothing running"), "a transaction hangs until the term ends", 2),
    Fault("query refused", ("find", "list"), "the store cannot be asked"),
    Fault("row damaged", ("waiting", "running"), "the store cannot read a row when a term recovers"),
    Fault("stale leader", ("change", "read", "watch", "report"), "somebody talks to a server that lost the store"),
    Fault("crash before commit", WRITES, "the process dies while its transaction is not applied", END),
    Fault(
        "crash after commit", WRITES, "the process dies when its transaction is applied, before anybody is told", END
    ),
    Fault(
        "crash while telling", ("replies", "leases", "aborts", "events"), "the process dies when some were told", END
    ),
    Fault(
        "fault of the term",
        ("everything in flight", "calls open", "just begun"),
        "the term ends and a fresh one recovers",
        2,
    ),
    Fault("take-over", (*WRITES, "nothing"), "another process takes the store while the old one still serves", END),
    Fault("leadership flaps", ("taken", "regained"), "the store is lost to another process, and won back", 2),
    Fault("graceful stop", ("leases running", "nothing running", "asked again"), "the server is stopped in order", 2),
    Fault(
        "other settings",
        (
            *("schedules", "fewer pools", "fewer resources", "impatient", "strict", "other limits"),
            *("smaller tasks", "tight"),
        ),
        "a restart with another configuration",
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}

RATES = (4, 8, 16, 32, 64)
"""Of a kind that is on: it strikes once in so many chances."""
OFF = 0
LOTS = 512
"""Of which one is drawn, so that the rarest kind has one."""


class Swarm:
    """Which kinds are on in one world, and how often they strike."""

    __slots__ = ("_lots", "rates")

    def __init__(self, rates: dict[str, int]) -> None:
        self.rates = rates
        """Of every kind: once in so many chances; 0 = never."""
        self._lots: list[list[str]] = []

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
        for lots in self._lots:
            lots[:] = [""]

    def lots(self, rarer: dict[str, int]) -> list[str]:
        """What to draw one of where one of several kinds may strike: the name of a kind, or nothing.

        `rarer`: up to four kinds, and how much less often than usual each of them strikes there. One draw is cheaper
        than one for each kind, and at most one of them strikes. A smaller pick is no fault, and each kind has a place
        of its own: what is drawn means the same when another kind is switched off.
        """
        place, lots = LOTS // RATES[0], [""]
        if any(self.rates[kind] for kind in rarer):
            lots = [""] * LOTS
        for index, (kind, times) in enumerate(rarer.items()):
            if self.rates[kind]:
                count, end = LOTS // (self.rates[kind] * times), LOTS - index * place
                lots[end - count : end] = [kind] * count
        assert len(lots) in (1, LOTS), "kinds do not fit"
        self._lots.append(lots)
        return lots


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
