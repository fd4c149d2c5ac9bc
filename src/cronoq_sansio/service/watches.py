"""`Tasks.Watch`: who gets which event.

Theory. A watcher names ids and keys (an event passes when it has one of them), pools (and it must be of one of them),
each if given. So watchers that name ids or keys stand under these, the others under their pools or under everything,
and an event is looked up three times, however many watchers there are: it costs what is interested in it. Those that
want every transition stand in a second index of the same form, which moves of live tasks are looked up in; the engine
is told (`TransitionsWatched`) whether anybody does, and builds nothing for nobody.

An event carries the step that it shows and is held by the outbox like everything else, so nobody hears of what a crash
could take back. One action serves all watchers of an event. How much a caller may leave unread is bounded where its
bytes are.

Events times watchers is work that one caller could make without bound: a thousand watchers and a batch of a thousand
tasks are two million deliveries. So deliveries come out of a bucket; watchers that it does not reach lose the stream
with DATA_LOSS, the latest comers first, and can watch again.
"""

from typing import TYPE_CHECKING, TypeVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import TaskEnded, TaskMoved
from cronoq_sansio.engine.events import TransitionsWatched
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import EVENT_BURST, EVENT_RATE
from cronoq_sansio.service.messages import Call, Request, SendEvent, StartEvents, StatusEvent, Watch
from cronoq_sansio.service.turn import Turn

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

Watchers = dict[Call, None]
Name = TypeVar("Name")
Wanted = TypeVar("Wanted")

TOO_MANY = Rejection(Code.DATA_LOSS, "more events than can be told to so many watchers; some were dropped, watch again")
COST = SECOND // EVENT_RATE
"""Nanoseconds that one delivery takes out of the bucket."""


class Watcher:
    """What an open call watches for."""

    __slots__ = ("request",)

    def __init__(self, request: Watch) -> None:
        self.request = request


class Filters:
    """Watchers by what they want to see."""

    __slots__ = ("_general", "by_id", "by_key", "by_pool", "everything")

    def __init__(self) -> None:
        self.everything: Watchers = {}
        self.by_pool: dict[str, Watchers] = {}
        self.by_id: dict[int, dict[Call, tuple[str, ...]]] = {}
        self.by_key: dict[str, dict[Call, tuple[str, ...]]] = {}
        """With the pools that the event must be of."""
        self._general: dict[str, tuple[Call, ...]] = {}
        """By pool, those that name neither ids nor keys; the same tuple for all events of the pool."""

    def add(self, call: Call, request: Watch) -> None:
        """A watcher comes."""
        for task_id in request.ids:
            self.by_id.setdefault(task_id, {})[call] = request.pools
        for key in request.keys:
            self.by_key.setdefault(key, {})[call] = request.pools
        if request.ids or request.keys:
            return
        for pool in request.pools:
            self.by_pool.setdefault(pool, {})[call] = None
        if not request.pools:
            self.everything[call] = None
        self._general.clear()

    def remove(self, call: Call, request: Watch) -> None:
        """It goes."""
        for task_id in dict.fromkeys(request.ids):
            _remove(self.by_id, task_id, call)
        for key in dict.fromkeys(request.keys):
            _remove(self.by_key, key, call)
        if request.ids or request.keys:
            return
        for pool in dict.fromkeys(request.pools):
            _remove(self.by_pool, pool, call)
        if not request.pools:
            del self.everything[call]
        self._general.clear()

    def interested(self, task_id: int, pool: str, key: str) -> tuple[Call, ...]:
        """Who gets an event of this task, each once."""
        general = self._general.get(pool)
        if general is None:
            general = self._general[pool] = (*self.everything, *self.by_pool.get(pool, ()))
        by_id = self.by_id.get(task_id)
        by_key = self.by_key.get(key) if key else None
        if by_id is None and by_key is None:
            return general
        named = {**(by_id or {}), **(by_key or {})}
        return general + tuple(call for call, pools in named.items() if not pools or pool in pools)

    def check_invariants(self, watchers: dict[Call, Watch]) -> None:
        """The indexes hold exactly `watchers`, and no empty entry."""
        fresh = Filters()
        for call, request in watchers.items():
            fresh.add(call, request)
        for name in ("everything", "by_pool", "by_id", "by_key"):
            assert getattr(self, name) == getattr(fresh, name), f"watchers {name} are not the open ones"


class Watches:
    """Every open watch."""

    def __init__(self, engine: "Engine", turn: Turn) -> None:
        self._engine = engine
        self._turn = turn
        self.open: dict[Call, Watch] = {}
        self._cut: dict[Call, None] = {}
        """Those that lost their events, until the outbox lets them be told so."""
        self._ends = Filters()
        self._moves = Filters()
        self._moving = 0
        """How many want every transition."""
        self.unsettled = False
        """One of these has come or gone, and the engine may not know it yet: `settle` is to be called."""
        self._full_at = turn.now
        """When the bucket of deliveries is full again; the further ahead, the less is in it."""

    def __len__(self) -> int:
        return len(self.open) + len(self._cut)

    def received(self, call: Call, request: Request) -> None:
        """A caller wants events from now on."""
        assert type(request) is Watch
        for pool in request.pools:
            if not self._engine.has_pool(pool):
                self._turn.reject(call, Rejection(Code.UNKNOWN_POOL, f"unknown pool {pool!r}"))
                return
        call.wait = Watcher(request)
        self.open[call] = request
        self._ends.add(call, request)
        if request.all_transitions:
            self._moves.add(call, request)
            self._moving += 1
            self.unsettled = True
            self.settle()
        self._turn.at_once.append(StartEvents(call, 0))

    def closed(self, call: Call, watcher: Watcher) -> None:
        """The call is over."""
        if call in self._cut:
            del self._cut[call]
        else:
            self._forget(call, watcher.request)

    def _forget(self, call: Call, request: Watch) -> None:
        del self.open[call]
        self._ends.remove(call, request)
        if request.all_transitions:
            self._moves.remove(call, request)
            self._moving -= 1
            self.unsettled = True

    def settle(self) -> None:
        """Tell the engine when the first one that wants transitions has come, or the last one has gone.

        Calls are closed outside of steps too, so `unsettled` is looked at in every step, until the engine knows.
        """
        if self._engine.watched != (self._moving > 0):
            self._turn.events.append(TransitionsWatched(self._moving > 0))
        elif not self._turn.events:  # none is on its way that says otherwise
            self.unsettled = False

    def moved(self, moved: TaskMoved) -> None:
        """A live task reached a status."""
        calls = self._moves.interested(moved.task_id, moved.pool, moved.key)
        if calls:
            event = StatusEvent(
                moved.task_id, moved.pool, moved.key, moved.status, moved.attempt, moved.at, moved.message
            )
            self._send(calls, event, moved.after)

    def ended(self, ended: TaskEnded) -> None:
        """A task has ended, and somebody watches something (`open`)."""
        task = ended.task
        spec = task.spec
        calls = self._ends.interested(task.id, spec.pool, spec.key)
        if calls:
            event = StatusEvent(task.id, spec.pool, spec.key, task.status, task.attempt, task.finished, task.message)
            self._send(calls, event, ended.after)

    def _send(self, calls: tuple[Call, ...], event: StatusEvent, after: int) -> None:
        """Tell as many as the bucket has room for."""
        now = self._turn.now
        full_at = max(self._full_at, now)
        told = calls[: EVENT_BURST - (full_at - now) // COST]
        self._full_at = full_at + len(told) * COST
        if told:
            self._turn.once_durable.append(SendEvent(told, event, after))
        for call in calls[len(told) :]:
            watcher = call.wait
            assert type(watcher) is Watcher
            self._forget(call, watcher.request)  # at once: the next event is not for it
            self._cut[call] = None
            self._turn.reject(call, TOO_MANY, after)

    def all(self) -> list[Call]:
        """Every open watch, in the order in which they came."""
        return list(self.open)

    def check_invariants(self) -> None:
        """Every watch is an open call that names it, and the indexes hold exactly these."""
        for call, request in self.open.items():
            assert call.open and type(call.wait) is Watcher and call.wait.request is request
        self._ends.check_invariants(self.open)
        moving = {call: request for call, request in self.open.items() if request.all_transitions}
        self._moves.check_invariants(moving)
        assert self._moving == len(moving)


def _remove(index: dict[Name, dict[Call, Wanted]], name: Name, call: Call) -> None:
    watchers = index[name]
    del watchers[call]
    if not watchers:
        del index[name]
