"""A whole server in virtual time: incarnations over one store, callers, workers, operators, and every kind of fault.

One *step* is one act, chosen by the choices among `ACTS`; what an act leaves to chance is chosen there too. So the
picks are the run. Between acts nothing happens: time passes in acts, a transaction is written in an act, a message
arrives in one. Acts that are faults happen only where their kind is on (`faults.Swarm`).

Checks. Every step of a term goes through its `View` (what is written, O(1) per record) and through the engine's own
invariants; everything that is said to somebody goes through the `Ledger` (what was promised). Every `FULL_SCAN` events
everything is recounted (`checks.py`). After the acts all faults are healed and everything must come to its end
(`healing.py`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.faults import Coverage, Swarm
from cronoq_sansio.sim.server import checks, healing, worlds
from cronoq_sansio.sim.server.callers import Callers
from cronoq_sansio.sim.server.ledger import Ledger
from cronoq_sansio.sim.server.narrator import Narrator
from cronoq_sansio.sim.server.node import Node
from cronoq_sansio.sim.server.operators import Operators
from cronoq_sansio.sim.server.rush import Rush
from cronoq_sansio.sim.server.store import SimStore
from cronoq_sansio.sim.server.strangers import Strangers
from cronoq_sansio.sim.server.together import Together
from cronoq_sansio.sim.server.workers import Workers

GLANCE = 200
"""Events between two looks at what is due, and at what waits without a reason, while few tasks live."""
FULL_SCAN = 1_000
"""Events between two recounts of everything."""
PRIME, OFFSET, MASK = 0x100000001B3, 0xCBF29CE484222325, (1 << 64) - 1
MAX_WAKES = 2_000
"""Timers that may fire while time passes once; more means that they never come to rest."""


ACTS: tuple[str, ...] = tuple(
    name
    for actor in (Callers, Workers, Strangers, Operators, Together)
    for name, often in actor.OFTEN.items()
    for _ in range(often)
)
"""What may happen in a step, each as often as it is to be chosen. The first pick of a step is an index of these."""
BUSY_ACTS = (*ACTS, *(name for name, often in Rush.OFTEN.items() for _ in range(often)))
"""The same of a busy world."""


class Machine(Protocol):
    """What stands between the driver and the engine; `Outbox` is one."""

    def handle(self, events: Sequence[Any], now: int) -> Any:
        """Apply events: a `Step` whose `at_once` may be performed now."""

    def next_timeout(self) -> int | None:
        """When `handle([TimerFired()], …)` is due."""


class Inspected(Protocol):
    """What the full scans look at; `Service` is one."""

    def check_invariants(self) -> None:
        """Assert what must hold between steps."""

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that grows."""


MachineFactory = Callable[..., tuple[Machine, Inspected]]
"""Called with engine, settings, now and the keyword `volatile`."""


def machine_of(engine: Engine, settings: Settings, now: int, *, volatile: bool) -> tuple[Machine, Inspected]:
    """An outbox around a service, as in the server."""
    service = Service(engine, settings, now, volatile=volatile)
    return Outbox(service, volatile=volatile), service


class ServerWorld:
    """Everything that there is in one run."""

    def __init__(
        self,
        seed: int,
        choices: Choices,
        swarm: Swarm,
        machine: MachineFactory | None = None,
        *,
        narrate: bool = False,
        plan: worlds.Plan | None = None,
        acts: Sequence[str] = (),
        scan: int = 0,
    ) -> None:
        """`plan`: None = as the seed draws it; `acts`: a step is one of them; `scan`: events between recounts."""
        self.seed = seed
        self.choices = choices
        self.pick = choices.pick
        self.swarm = swarm
        self.coverage = Coverage()
        self.machine = machine or machine_of
        self.events = 0
        self.next_rebuilt = 0
        """Events after which an engine is made of the rows again (`rebuilt.py`)."""
        self.stale = 0
        """Steps of stale reports that were looked at."""
        self._hash = OFFSET ^ seed
        self.words = 0
        """Of what was said since they were mixed in last: tasks, their status, leases, codes of refusals."""
        if plan is None:
            plan = worlds.draw(Random(seed))
        self.settings = plan.settings
        self.herd = plan.herd
        self.now = plan.beginning
        self.wall_shift = 0
        """The wall clocks of all hosts are ahead of the world's time by so much."""
        self.latest_wall = 0
        """What they showed when they were set back, at most: stored times may be ahead of them until then."""
        self.narrator = Narrator(self) if narrate else None
        self.store = SimStore(volatile=plan.volatile, first_task=plan.first_task)
        self.ledger = Ledger(self)
        self.nodes: list[Node] = []
        """Those that serve; more than one only while a new one has taken over and the old one does not know it."""
        self.terms = 0
        self.callers = Callers(self)
        self.workers = Workers(self)
        self.operators = Operators(self)
        self.strangers = Strangers(self)
        self.together = Together(self)
        self.rush = Rush(self)
        self.performers = self._performers()
        self._scan_every = self._next_scan = scan or FULL_SCAN
        self._next_glance = min(GLANCE, self._scan_every)
        actors = (self.callers, self.workers, self.strangers, self.operators, self.together, self.rush)
        self._names = acts or (BUSY_ACTS if plan.busy else ACTS)
        self._acts = {name: getattr(actor, name) for actor in actors for name in actor.OFTEN}
        self.operators.start_term(skew=plan.skew)

    def _performers(self) -> dict[type, Callable[[Node, Any], None]]:
        """Who hears of which action of a term."""
        return {
            Answer: self.callers.replied,
            m.Reject: self.callers.rejected,
            m.StartEvents: self.callers.started,
            m.SendEvent: self.callers.told,
            m.SendLease: self.workers.leased,
            m.SendToWorker: self.workers.told,
            m.CloseWorker: self.workers.closed,
            m.ReadStore: Node.read_store,
            m.StopFinished: Node.stop_finished,
            LogDrop: Node.dropped,
        }

    # --- a run

    def step(self) -> None:
        """One act."""
        name = self.pick(self._names)
        if not self.nodes:
            name = "restart"
        if self.narrator is not None:
            self.narrator.act(name)
        self._acts[name]()
        for node in self.nodes:
            node.flush()
        self.look()

    def look(self) -> None:
        """Recount everything, when enough has happened since the last time."""
        if self.events >= self._next_glance:
            self._next_glance = self.events + GLANCE
            if self.events >= self._next_scan:
                self._next_scan = self.events + self._scan_every
                checks.scan(self)
            else:
                checks.glance(self)

    def heal(self) -> None:
        """No faults from now on; everything must come to its end."""
        self.swarm.heal()
        healing.heal(self)

    def digest(self) -> str:
        """Of everything that was handed in and said."""
        return f"{self._hash:016x}"

    def transcript(self) -> str:
        """What happened last."""
        return self.narrator.text() if self.narrator is not None else ""

    # --- for those who act

    def on(self, kind: str) -> bool:
        """Whether a kind of fault happens in this world at all."""
        return self.swarm.rates[kind] > 0

    def strikes(self, kind: str, operation: str, often: int = 1) -> bool:
        """Whether a fault happens now to this operation; `often` times as often as usual where it is rarely met."""
        rate = self.swarm.rates[kind]
        if not rate:
            return False
        if often > 1:
            rate = max(rate // often, 1)
        if self.pick(range(rate)) != rate - 1:
            return False
        self.strike(kind, operation)
        return True

    def strike(self, kind: str, operation: str) -> None:
        """A fault happens to this operation."""
        self.coverage.note(kind, operation)
        if self.narrator is not None:
            self.narrator.fault(kind, operation)

    def one_in(self, number: int) -> bool:
        """True once in so many times."""
        return self.pick(range(number)) == number - 1

    def some_node(self) -> Node | None:
        """One that serves."""
        nodes = self.nodes
        if len(nodes) < 2:
            return nodes[0] if nodes else None
        return self.pick(nodes) if self.on("stale leader") else nodes[-1]

    def advance(self, nanoseconds: int) -> None:
        """Time passes, with every timer when it is due."""
        end = self.now + nanoseconds
        for _ in range(MAX_WAKES):
            first, due = None, end
            for node in self.nodes:
                node.flush()
            for node in self.nodes:
                wake = node.wake()
                if wake is not None and wake <= due:
                    first, due = node, wake
            if first is None:
                self.now = end
                return
            self.now = max(self.now, due)
            first.fire()
        raise Violation(Kind.LIVENESS, "timers never come to rest", f"{MAX_WAKES} wake-ups within {nanoseconds} ns")

    # --- from the nodes

    def count(self, node: Node, events: Sequence[Any]) -> None:
        """A node is about to handle these."""
        self.events += len(events)
        self._mix(self.now * 4 + node.number, len(events))
        if self.narrator is not None:
            self.narrator.handled(node, events)

    def said(self, node: Node, actions: Sequence[Any]) -> None:
        """A node says this."""
        self._mix(node.engine.number, self.words * 64 + len(actions))
        self.words = 0
        if self.narrator is not None:
            self.narrator.said(node, actions)

    def _mix(self, first: int, second: int) -> None:
        """FNV-1a over integers: the same on every machine."""
        self._hash = (((self._hash ^ first) * PRIME ^ second) * PRIME) & MASK

    def term_ended(self, node: Node, why: str) -> None:
        """A node does not serve any more."""
        if self.narrator is not None:
            self.narrator.ended(node, why)
        self.nodes = [other for other in self.nodes if other is not node]
        self.callers.lost(node)
        self.workers.lost(node)
