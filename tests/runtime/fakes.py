"""Fakes of what surrounds the runtime: a machine, a performer, a store whose commits the test decides."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import trio.testing

from cronoq._runtime.clock import Clock, WallDrift
from cronoq._runtime.driver import Driver
from cronoq._stores.base import Batch, Claim, Done, StoreError
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.engine.records import Edge, LoadedRecord, OutputStored, Record, TaskInserted
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service.messages import FindTask, ListFinished, StoredPage, StoredTask
from cronoq_sansio.spec import TaskSpec
from cronoq_sansio.values import value

WALL = 1_700_000_000 * SECOND


@value
class Said:
    """An action: something to say once step `after` is durable."""

    text: str
    after: int


@value
class Write:
    """An event: make a row of `size` bytes and say `text` when it is durable. `rows`: so many, the others empty."""

    text: str
    size: int = 0
    rows: int = 1
    edges: int = 0
    """Of the first one."""


@value
class Report:
    """An event: store an output of `size` bytes and say `text` when it is durable."""

    text: str
    size: int


@value
class Say:
    """An event: say `text` at once."""

    text: str


@value
class Explode:
    """An event: a bug in the machine."""


def spec(size: int = 0, key: str = "", pool: str = "default") -> TaskSpec:
    return TaskSpec(b"", "", "", pool, 2, key, None, None, (), size)


class FakeMachine:
    """Does what its events say and remembers the others."""

    def __init__(self) -> None:
        self.number = 0
        self.seen: list[Any] = []
        self.batches: list[list[Any]] = []
        self.due: int | None = None
        self.busy = False
        """True: there is always more to do."""

    def handle(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        self.number += 1
        step: Step[Any, Any] = Step(self.number)
        self.batches.append(list(events))
        for event in events:
            if isinstance(event, Write):
                edges = (Edge(1, "", 1),) * event.edges
                step.writes.append(TaskInserted(self.number, spec(event.size), 1, now, edges))
                step.writes += [OutputStored(self.number, b"", "")] * (event.rows - 1)
                step.once_durable.append(Said(event.text, self.number))
            elif isinstance(event, Report):
                step.writes.append(OutputStored(self.number, bytes(event.size), ""))
                step.once_durable.append(Said(event.text, self.number))
            elif isinstance(event, Say):
                step.at_once.append(Said(event.text, 0))
            elif isinstance(event, Explode):
                raise KeyError("a secret payload")
            else:
                if isinstance(event, TimerFired) and self.due is not None and self.due <= now and not self.busy:
                    self.due = None
                self.seen.append(event)
        return step

    def released(self, actions: Sequence[Any], now: int) -> list[Any]:
        return list(actions)

    def wanted(self, action: Any) -> bool:
        return True

    def next_timeout(self) -> int | None:
        return self.due


class FakePerformer:
    """Remembers what was said, and how often it was flushed. `answers`: events that arise when a text is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.flushes = 0
        self.held = (False, False)
        self.over = False
        self.answers: dict[str, list[Any]] = {}
        self.on_say: Callable[[str], None] = lambda _text: None
        self.ticks = 0
        self.looks: list[int] = []
        self.touched: list[str] = []
        self._arisen: list[Any] = []

    def perform(self, actions: Sequence[Any]) -> None:
        for action in actions:
            self.touched.append(action.text)
            self.said.append(action.text)
            self._arisen += self.answers.pop(action.text, [])
            self.on_say(action.text)

    def flush(self) -> list[Any]:
        self.flushes += 1
        self.touched = []
        arisen, self._arisen = self._arisen, []
        return arisen

    def hold(self, calls: bool, workers: bool) -> None:
        self.held = (calls, workers)

    def looked(self, duration: int) -> None:
        self.looks.append(duration)

    def tick(self) -> None:
        self.ticks += 1

    def ended(self) -> None:
        self.over = True


class FakeStore:
    """Keeps batches until the test decides their outcome; `auto` decides at once."""

    def __init__(self, *, volatile: bool = False) -> None:
        self.volatile = volatile
        self.auto: Callable[[Batch], StoreError | None] | None = None
        self.tried: list[Batch] = []
        self.tried_at: list[float] = []
        self.stored: dict[int, TaskInserted] = {}
        self.found: Callable[[FindTask], StoredTask | None] = lambda _query: None
        self.closed = False
        self.claims = 0
        self._done: Done | None = None

    async def open(self) -> None:
        pass

    async def claim(self, unix_seconds: int) -> Claim:
        self.claims += 1
        return Claim(self.claims, self.claims << 48 | 1, self.claims << 48 | 1)

    async def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        for portion in ():
            yield portion

    def begin_commit(self, batch: Batch, done: Done) -> None:
        assert self._done is None, "two batches in flight"
        self.tried.append(batch)
        self.tried_at.append(anyio.current_time())
        self._done = done
        if self.auto is not None:
            self.decide(self.auto(batch))

    def apply(self, writes: Iterable[Record]) -> None:
        """As a volatile store."""
        batch = Batch()
        batch.add(len(self.tried) + 1, writes)
        self.tried.append(batch)
        self.stored.update(batch.inserted)

    def decide(self, error: StoreError | None = None) -> None:
        done, self._done = self._done, None
        assert done is not None, "no batch in flight"
        if error is None:
            self.stored.update(self.tried[-1].inserted)
        done(error)

    @property
    def writing(self) -> bool:
        return self._done is not None

    async def find(self, query: FindTask) -> StoredTask | None:
        await anyio.lowlevel.checkpoint()
        return self.found(query)

    async def list(self, query: ListFinished) -> StoredPage:
        await anyio.lowlevel.checkpoint()
        return StoredPage((), query.after)

    async def prune(self, before: int) -> int:
        return 0

    async def close(self) -> None:
        self.closed = True


class Stage:
    """A driver with all its fakes, on the clock of the test."""

    def __init__(self, *, volatile: bool = False) -> None:
        self.wall_moved = 0
        self.machine = FakeMachine()
        self.performer = FakePerformer()
        self.store = FakeStore(volatile=volatile)
        self.clock = Clock(anyio.current_time, lambda: WALL + round(anyio.current_time() * SECOND) + self.wall_moved)
        self.outbox = Outbox(self.machine, volatile=volatile)
        self.driver = Driver(self.outbox, self.store, self.clock, WallDrift(self.clock, 0), self.performer)
        self.ended: BaseException | None = None

    @property
    def said(self) -> list[str]:
        return self.performer.said

    async def run(self) -> None:
        """As the term runs it: what ends it is kept."""
        try:
            await self.driver.run()
        except Exception as error:
            self.ended = error

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        await trio.testing.wait_all_tasks_blocked()
