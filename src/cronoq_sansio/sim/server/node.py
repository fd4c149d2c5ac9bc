"""One incarnation of a simulated server: a term, from its claim of the store to its end.

It does with an outbox, a service and an engine what the runtime does (design.md sections 2 and 3), in virtual time and
without a socket: one step per read, group commit with one transaction in flight, a transaction that fails is written
again as it was, a fenced term ends and tells everybody that the outcome is unknown. What becomes of a transaction, and
when, is decided outside (`operators.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cronoq_sansio import limits
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import CascadesHeld, CommitsResumed, CommitsStalled, TimerFired
from cronoq_sansio.engine.records import Record
from cronoq_sansio.outbox import StepsDurable
from cronoq_sansio.service.messages import FindTask, ReadStore, StopFinished, StoreAnswered, StorePressure, StoreQuery
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server import checks
from cronoq_sansio.sim.server.holders import Holders
from cronoq_sansio.sim.server.store import Fenced
from cronoq_sansio.sim.server.view import View

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.workers import Worker
    from cronoq_sansio.sim.server.world import ServerWorld

LOAD_PORTION = 7  #: records; small, so that there are several


class Transaction:
    """What is being written."""

    __slots__ = ("begun", "records", "seen", "through")

    def __init__(self, through: int, records: list[Record], begun: int, seen: tuple[int, int]) -> None:
        self.through = through
        self.seen = seen
        """How many ends and starts of tasks there were by then."""
        self.records = records
        self.begun = begun


class Node:
    """A term that serves, or has ended."""

    def __init__(self, world: "ServerWorld", number: int, settings: Settings, skew: int, wall_offset: int) -> None:
        self.world = world
        self.number = number
        self.settings = settings
        self.skew = skew
        """Its clock is ahead of the world's by so much."""
        self.serving = False
        self.stopping = False
        self.paused = False
        self.doomed = 0
        """The process dies when it has performed so many more actions; 0 = it does not."""
        self.inbox: list[Any] = []
        """Events of the read that is going on."""
        self.asks: dict[Ask, None] = {}
        """Open calls."""
        self.workers: dict[Worker, None] = {}
        """Open worker streams."""
        self.queries: list[StoreQuery] = []
        self._last_query = 0
        self.flight: Transaction | None = None
        self.written = self.durable = 0
        """The last step with writes, and the last one that is known to be in the store."""
        self._steps: list[Step[Any, Any]] = []
        self._stalled = False
        self._pressed = False
        self._cascades_held = False
        self._told = 0, 0
        self._volatile = world.store.volatile
        self._begin(wall_offset)

    @property
    def now(self) -> int:
        """Of its own clock."""
        return self.world.now + self.skew

    def _begin(self, wall_offset: int) -> None:
        """Claim and recover."""
        world, settings = self.world, self.settings
        self.epoch, first_task, first_lease = world.store.claim()
        self.engine = engine = Engine.recover(
            settings,
            first_task_id=first_task,
            first_lease_id=first_lease,
            seed=world.seed * 1_000 + self.epoch,
            now=self.now,
            wall_offset=wall_offset,
        )
        rows = world.store.load(self.now + wall_offset - settings.limits.key_retention)
        self.damaged = world.operators.damage(rows)
        for start in range(0, len(rows), LOAD_PORTION):
            engine.load(rows[start : start + LOAD_PORTION])
        while engine.settle(self.now):
            pass
        self.view = View(world, settings, self.skew, self.now, self.damaged)
        self.holders = Holders(self)
        step = engine.begin(self.now)
        self.outbox, self.service = world.machine(engine, settings, self.now, volatile=self._volatile)
        self.serving = True
        self.view.wrote(step.writes, self.now)
        self.view.begun()
        checks.recovered(self, step.writes)
        if step.writes:
            self.written = step.number
            self._steps.append(step)
        self._kick()

    # --- the driver

    def handle(self, *events: Any) -> None:
        """These, after what has been received in the meantime: one step."""
        if self.inbox:
            events = (*self.inbox, *events)
            self.inbox = []
        self._handle(events)

    def flush(self) -> None:
        """One step for what has been received."""
        if self.inbox:
            events, self.inbox = self.inbox, []
            self._handle(events)

    def _handle(self, events: Sequence[Any]) -> None:
        if not self.serving:
            return
        world = self.world
        now = world.now + self.skew
        world.count(self, events)
        before = checks.digest(self) if self.holders.heard(events) else None
        step = self.outbox.handle(events, now)
        if before is not None:
            checks.unmoved(self, step, before)
        if step.writes:
            self.view.wrote(step.writes, now)
            self.written = step.number
            self._steps.append(step)
            if self._volatile:
                self._kick()
            elif self.flight is not None and world.on("store behind"):
                self._weigh()
        self.engine.check_invariants(step)
        if self.holders.grace is not None:
            self.holders.stop_goes_on()
        if self.holders.over:
            self.holders.followed()
        if self.holders.wanted is not None:
            self.holders.passed_on()
        if step.at_once:
            self._perform(step.at_once)
        if self.holders.fired:
            self.holders.outlived()
        self._kick()

    def _perform(self, actions: Sequence[Any]) -> None:
        world = self.world
        world.said(self, actions)
        performers = world.performers
        for action in actions:
            if not self.serving:
                return
            performers[type(action)](self, action)
            if self.doomed:
                self.doomed -= 1
                if not self.doomed:
                    world.operators.doom(self, action)

    def wake(self) -> int | None:
        """When something happens here by itself, on the world's clock."""
        if self.paused:
            return None
        due = self.outbox.next_timeout()
        due = None if due is None else due - self.skew
        flight = self.flight
        if flight is not None:
            bound = limits.MAX_STORE_OUTAGE if self._pressed else limits.COMMIT_PRESSURE
            late = flight.begun + (bound if self._stalled else limits.COMMIT_STALLED) + 1
            if due is None or late < due:
                due = late
        return due

    def fire(self) -> None:
        """The time of `wake` has come."""
        self._check_flight()
        due = self.outbox.next_timeout()
        if self.serving and due is not None and due <= self.now:
            self.handle(TimerFired())

    def _check_flight(self) -> None:
        flight = self.flight
        if flight is None:
            return
        age = self.world.now - flight.begun
        if age > limits.COMMIT_STALLED and not self._stalled:
            self._stalled = True
            self._slow("stalled")
            self.handle(CommitsStalled())
        if age > limits.COMMIT_PRESSURE and not self._pressed:
            self._pressed = True
            self._slow("pressure")
            self.handle(StorePressure("a commit has not finished"))
        if age > limits.MAX_STORE_OUTAGE:
            self.end("the store has not taken a commit")

    def _slow(self, what: str) -> None:
        if self.world.on("commit slow"):  # else it is a store that hangs until the term ends
            self.world.strike("commit slow", what)

    # --- group commit

    def _kick(self) -> None:
        if self.flight is not None or not self._steps or not self.serving:
            return
        steps, self._steps = self._steps, []
        records = steps[0].writes if len(steps) == 1 else [record for step in steps for record in step.writes]
        if self._volatile:
            self.world.store.commit(self.epoch, records)
            self.world.ledger.committed(records)
        else:
            seen = len(self.view.ends), len(self.view.starts)
            self.flight = Transaction(steps[-1].number, records, self.world.now, seen)

    def settled(self) -> bool:
        """Everything that was written is durable, and told."""
        return self.flight is None and not self._steps

    def told(self) -> tuple[int, int]:
        """How many ends and starts of tasks are durable, and known to everybody whom they concern."""
        if self.settled():
            return len(self.view.ends), len(self.view.starts)
        return self._told

    def unwritten(self) -> list[Record]:
        """What this term has made, and the store may not have yet."""
        records = [] if self.flight is None else list(self.flight.records)
        for step in self._steps:
            records += step.writes
        return records

    def apply(self) -> bool:
        """The transaction in flight reaches the store. False when it was fenced, and the term is over."""
        assert self.flight is not None
        try:
            self.world.store.commit(self.epoch, self.flight.records)
        except Fenced:
            self.end("fenced")
            return False
        self.world.ledger.committed(self.flight.records)
        return True

    def confirm(self) -> None:
        """The store says that the transaction in flight is done: go on, and tell what is durable now."""
        flight, self.flight = self.flight, None
        assert flight is not None
        self._kick()
        if self._stalled:
            self._stalled = False
            self._slow("goes on")
            self.handle(CommitsResumed(self.world.now - flight.begun))
        self.durable = flight.through
        self.handle(StepsDurable(flight.through))
        self._told = flight.seen
        if self._cascades_held:
            self._cascades_held = False
            waited = self.engine.dependencies.unsettled > 0
            self.world.strike("store behind", "cascades held" if waited else "nothing to hold")
            self.handle(CascadesHeld(False))
        if self._pressed:
            self._pressed = False
            self.handle(StorePressure(None))

    def _weigh(self) -> None:
        """Steps wait behind the transaction in flight: where the store is behind they are now too many."""
        world = self.world
        if not self._cascades_held and world.one_in(world.swarm.rates["store behind"]):
            self._cascades_held = True
            self.inbox.append(CascadesHeld(True))
        elif not self._pressed and world.strikes("store behind", "steps wait"):
            self._pressed = True
            self.inbox.append(StorePressure("more steps wait for it than it takes"))

    def forgive(self, lateness: int) -> None:
        """The process itself stood still so long: it is not the store's lateness."""
        if self.flight is not None:
            self.flight.begun += lateness

    # --- queries

    def read_store(self, action: ReadStore) -> None:
        """A query goes to the store; the answer comes later."""
        if action.query.number <= self._last_query:
            raise Violation(Kind.SAFETY, "the store is asked twice, or out of order", str(action.query))
        self._last_query = action.query.number
        self.queries.append(action.query)

    def answer_query(self, index: int, refusal: Any = None) -> None:
        """The store answers one of the queries."""
        query = self.queries.pop(index)
        store = self.world.store
        answer = refusal
        if refusal is None:
            answer = store.find(query) if isinstance(query, FindTask) else store.list(query)
        self.handle(StoreAnswered(query, answer))

    # --- the end

    def end(self, why: str) -> None:
        """The term is over. Open calls hear that the outcome is unknown, workers are sent away."""
        if not self.serving:
            return
        self.serving = False
        self.inbox = []
        self.queries.clear()
        self.flight = None
        self._steps.clear()
        self.world.term_ended(self, why)

    def stop_finished(self, _action: StopFinished) -> None:
        """A graceful stop is complete."""
        checks.stopped(self)
        self.end("stopped")

    def dropped(self, action: LogDrop) -> None:
        """Fires of a schedule did not happen."""
        self.world.ledger.dropped(self, action.drop)
