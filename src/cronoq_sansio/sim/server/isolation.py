"""A tenant notices nothing of another one's load in another pool.

Two servers live through the same: on one of them the tenant's callers and workers are alone, on the other one a
neighbour (`neighbour.py`) has a pool and workers of his own and very much to do. The first is an ordinary world with
those acts that callers and workers do, and with their faults. Whatever they hand in there is handed in to the second
server as well, at the same instant and with its own ids; in between the neighbour acts. Both must say the same to the
tenant's callers and workers, in the same order and at the same instants, once ids are replaced by their order
(`anonymous.py`).

What all pools share on purpose is out of the way: the bounds over all pools are out of reach, nobody else needs the
tenant's resources or uses its keys, backoffs have no jitter, which comes out of one generator, and a step is durable
when it is made, so that no commit is longer for the neighbour's rows. Processes and the store have no faults here.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.settings import LimitSettings, OutputSettings, ResourceSettings
from cronoq_sansio.sim.choices import Choices
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.faults import OFF, Swarm
from cronoq_sansio.sim.server import healing, worlds
from cronoq_sansio.sim.server.anonymous import FIRST_TASK, Names, translated
from cronoq_sansio.sim.server.callers import Ask, Callers
from cronoq_sansio.sim.server.neighbour import POOL, Neighbour
from cronoq_sansio.sim.server.node import Node
from cronoq_sansio.sim.server.specs import POOLS
from cronoq_sansio.sim.server.workers import Worker, Workers
from cronoq_sansio.sim.server.world import MachineFactory, ServerWorld
from cronoq_sansio.values import value

FAULTS = frozenset(
    (
        *("report lost", "report duplicated", "report delayed", "zombie", "worker death", "heartbeat at the edge"),
        *("slots cut", "reply lost", "caller gone", "deadline", "asked twice", "query refused"),
        *("report after the end", "odd worker"),
    )
)
"""What may happen to the tenant's callers and workers."""
ACTS: tuple[str, ...] = (
    *(name for actor in (Callers, Workers) for name, often in actor.OFTEN.items() for _ in range(often)),
    *("pass_time",) * 12,
    *("answer",) * 6,
    *("haunt",) * 4,
    *("report_too_late", "come_oddly") * 2,
)
RESOURCES = (
    ResourceSettings("press", "semaphore", permits=3),
    ResourceSettings("ink", "token_bucket", rate=20.0, burst=5),
)
"""Of the neighbour."""
SHOWN = 6
"""Lines before a difference that are shown."""


def plan_for(seed: int) -> worlds.Plan:
    """An ordinary world with one pool more, and nothing that pools share within reach."""
    random = Random(seed)
    plan = worlds.draw(random)
    settings = plan.settings
    limits = LimitSettings(key_retention=settings.limits.key_retention or 20 * SECOND)
    theirs = random.choice(settings.pools)
    pools = [
        *settings.pools,
        replace(theirs, name=POOL, max=16, max_pending=random.choice((40, 200)), max_pending_by_class=(None,) * 4),
    ]
    settings = replace(
        settings,
        limits=limits,
        outputs=OutputSettings(),
        pools=tuple(replace(pool, retry=replace(pool.retry, jitter=False)) for pool in pools),
        resources=(*settings.resources, *RESOURCES),
    )
    return replace(plan, settings=settings, volatile=True, first_task=FIRST_TASK)


class Side(ServerWorld):
    """One of the two servers."""

    def __init__(self, seed: int, choices: Choices, swarm: Swarm, machine: MachineFactory | None) -> None:
        self.names = Names(POOL)
        self.lines: list[tuple[Any, ...]] = []
        """What the tenant was told: when, who, and what."""
        super().__init__(seed, choices, swarm, machine, plan=plan_for(seed), acts=ACTS)

    def said(self, node: Node, actions: Sequence[Any]) -> None:
        """The server says this."""
        super().said(node, actions)
        for action in actions:
            self.hear(action)

    def hear(self, action: Any) -> None:
        """Write down what the tenant is told."""
        kind, plain = type(action), self.names.plain
        if kind is Answer:
            self._line(action.request.sink, plain(action.outcome))
        elif kind is m.Reject:
            self._line(action.call.sink, plain(action.rejection))
        elif kind is m.StartEvents:
            self._line(action.call.sink, "begins")
        elif kind is m.SendEvent:
            watchers: list[Any] = [call.sink for call in action.calls if call.open and self.mine(call.sink)]
            for ask in sorted(
                watchers, key=lambda ask: ask.number
            ):  # watchers of everything come before those of pools
                self._line(ask, plain(action.event))
        elif kind is m.SendLease:
            lease = action.lease
            self._line(action.stream.sink, ("Lease", plain(lease.id), plain(lease.task.id), lease.attempt))
        elif kind is m.SendToWorker:
            self._line(action.stream.sink, plain(action.message))
        elif kind is m.CloseWorker:
            self._line(action.stream.sink, ("Close", plain(action.rejection), action.why))
        elif kind is LogDrop:
            self.lines.append((self.now, "log", plain(action.drop)))
        else:
            assert kind is m.ReadStore

    def mine(self, _sink: Any) -> bool:
        """Whether a call or a worker is of the tenant."""
        return True

    def _line(self, sink: Any, what: Any) -> None:
        self.lines.append((self.now, str(sink), what))


@value
class Batch:
    """What was handed in at once, or time that passed."""

    when: int
    lines: int
    """What the tenant had been told before."""
    events: tuple[Any, ...]
    """Empty: time passed until then, with every timer when it is due."""
    between: bool
    """It came while time passed: callers go away when they are told something."""


class Alone(Side):
    """The server on which the tenant is alone: it decides what callers and workers do."""

    def __init__(self, seed: int, choices: Choices, swarm: Swarm, machine: MachineFactory | None) -> None:
        self.handed_in: list[Batch] = []
        """From outside, since the other one has taken it."""
        self._passing = False
        super().__init__(seed, choices, swarm, machine)

    def count(self, node: Node, events: Sequence[Any]) -> None:
        """The server is about to handle these."""
        super().count(node, events)
        outside = tuple(event for event in events if type(event) is not TimerFired)
        if outside:
            self.handed_in.append(Batch(self.now, len(self.lines), outside, self._passing))

    def advance(self, nanoseconds: int) -> None:
        """Time passes, with every timer when it is due."""
        for node in self.nodes:
            node.flush()
        self._passing = True
        super().advance(nanoseconds)
        self._passing = False
        self.handed_in.append(Batch(self.now, 0, (), False))


class Loaded(Side):
    """The server that the neighbour uses as well."""

    def __init__(self, seed: int, choices: Choices, other: Alone, machine: MachineFactory | None) -> None:
        self._other = other
        self._calls: dict[m.Call, Ask] = {}
        self._workers: dict[m.WorkerStream, Worker] = {}
        self._mine: dict[Any, None] = {}
        """Calls and workers of the tenant here."""
        super().__init__(seed, choices, Swarm(dict.fromkeys(other.swarm.rates, OFF)), machine)
        self.neighbour = Neighbour(self, choices)

    def mine(self, sink: Any) -> bool:
        """Whether a call or a worker is of the tenant."""
        return sink in self._mine

    def hear(self, action: Any) -> None:
        """Write down what the tenant is told; tell the neighbour the rest."""
        names = ("request", "call", "stream")
        call_or_stream = next((getattr(action, name) for name in names if hasattr(action, name)), None)
        if call_or_stream is None or call_or_stream.sink in self._mine:
            super().hear(action)
        else:
            self.neighbour.heard(action)

    def play(self) -> None:
        """The same is handed in here as in the other one since the last time."""
        other, (node,) = self._other, self.nodes
        handed_in, other.handed_in = other.handed_in, []
        for batch in handed_in:
            if not batch.events:
                self.advance(batch.when - self.now)
                continue
            if batch.between:
                self._reach(node, batch)
            self.now = batch.when  # later than it was when timers were late there
            for event in batch.events:
                self._hand_in(node, event)
            node.flush()

    def _reach(self, node: Node, batch: Batch) -> None:
        """Time passes until the tenant has been told as much."""
        while self.now < batch.when or len(self.lines) < batch.lines:
            wake = node.wake()
            if wake is None or wake > batch.when:
                return
            self.now = max(self.now, wake)
            node.fire()

    def act(self) -> None:
        """The neighbour does something, and all that follows from it follows at once."""
        self.neighbour.act()
        self.advance(0)
        self.look()

    def _hand_in(self, node: Node, event: Any) -> None:
        kind = type(event)
        if kind is m.CallReceived:
            self._call(node, event)
        elif kind is m.CallEnded:
            ask = self._calls.pop(event.call)
            node.asks.pop(ask, None)
            node.inbox.append(m.CallEnded(ask.call))
        elif kind is m.WorkerConnected:
            theirs = event.stream.sink
            worker = Worker(theirs.number, node, theirs.pool, theirs.labels, theirs.slots)
            self._workers[event.stream] = worker
            self._mine[worker] = node.workers[worker] = None
            node.inbox.append(m.WorkerConnected(worker.stream, ANYONE))
        elif kind is m.WorkerSent:
            worker = self._workers[event.stream]
            node.inbox.append(m.WorkerSent(worker.stream, self._translated(event.message)))
        elif kind is m.WorkerGone:
            worker = self._workers[event.stream]
            node.workers.pop(worker, None)
            node.inbox.append(m.WorkerGone(worker.stream, event.why))
        else:
            assert kind is m.StoreAnswered
            number = event.query.number
            index = next(index for index, query in enumerate(node.queries) if query.number == number)
            node.answer_query(index, event.answer if isinstance(event.answer, Rejection) else None)

    def _call(self, node: Node, event: m.CallReceived) -> None:
        theirs: Any = event.call.sink
        request = self._translated(event.request)
        if type(request) in (m.ListTasks, m.Watch) and not request.pools:
            request = replace(request, pools=POOLS)  # the neighbour's pool is nothing that the tenant asks for
        ask = Ask(theirs.number, theirs.op, request, node, "")
        self._calls[event.call] = ask
        self._mine[ask] = node.asks[ask] = None
        node.inbox.append(m.CallReceived(ask.call, ANYONE, request, event.deadline))

    def _translated(self, said: Any) -> Any:
        return translated(said, self._other.names, self.names)


class IsolationWorld:
    """Both servers."""

    def __init__(
        self,
        seed: int,
        choices: Choices,
        swarm: Swarm,
        machine: MachineFactory | None = None,
    ) -> None:
        swarm = Swarm({name: rate if name in FAULTS else OFF for name, rate in swarm.rates.items()})
        self._alone = Alone(seed, choices, swarm, machine)
        self._loaded = Loaded(seed, choices, self._alone, machine)
        self.coverage = self._alone.coverage
        self._same = 0
        """Lines that were compared."""

    @property
    def events(self) -> int:
        """Handed in so far, to both."""
        return self._alone.events + self._loaded.events

    def step(self) -> None:
        """One act of the tenant, and then of the neighbour."""
        self._alone.step()
        self._alone.advance(0)  # whatever is due by now
        self._play()
        self._loaded.act()
        self._compare()

    def heal(self) -> None:
        """What is under way comes to its end on both servers, beside each other no more."""
        for side in (self._alone, self._loaded):
            side.swarm.heal()
            healing.heal(side)

    def digest(self) -> str:
        """Of everything that was handed in and said."""
        return self._alone.digest() + self._loaded.digest()

    def transcript(self) -> str:
        """What the tenant was told last."""
        last = self._alone.lines[max(self._same - SHOWN, 0) : self._same]
        ways = ((name, side.lines[self._same :][:SHOWN]) for name, side in (("-", self._alone), ("+", self._loaded)))
        return "\n".join([*(f"  {line}" for line in last), *(f"{sign} {line}" for sign, way in ways for line in way)])

    def _play(self) -> None:
        try:
            self._loaded.play()
        except LookupError:  # an id that only the other server has shown
            self._compare()
            raise
        self._compare()

    def _compare(self) -> None:
        """Raises `Violation` when the tenant was told something else."""
        alone, loaded, same = self._alone.lines, self._loaded.lines, self._same
        if alone[same:] == loaded[same:]:
            self._same = len(alone)
            return
        while same < min(len(alone), len(loaded)) and alone[same] == loaded[same]:
            same += 1
        self._same = same
        without, with_it = (lines[same] if same < len(lines) else "nothing" for lines in (alone, loaded))
        details = f"without it: {without}\nwith it: {with_it}"
        raise Violation(Kind.SAFETY, "another tenant's load shows", details)
