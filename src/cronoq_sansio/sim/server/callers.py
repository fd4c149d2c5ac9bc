"""What callers do: submit, cancel, look, wait, watch, ask again when they never heard, and go away."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.errors import Code
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages_recurring import AddRecurring, ListRecurring, RemoveRecurring
from cronoq_sansio.sim.faults import CHANGES
from cronoq_sansio.sim.lockstep.workload import SCHEDULES
from cronoq_sansio.sim.server.specs import KEYS, Specs
from cronoq_sansio.spec import TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

MAX_UNSURE = 12
"""Requests that callers may ask again."""
MAX_OPEN = 60
"""Calls that may be open on one node; a caller beyond that waits before it asks something."""
AT_ONCE = ("workers", "snapshot")
"""Calls that wait for nothing, so that nobody goes away before their answer."""
BRIEF = ("add schedule", "remove schedule", "list schedules")
"""Calls that are few, and open for one commit."""
WAITS = (None, 0, SECOND, 5 * SECOND, 3_600 * SECOND)
"""How long somebody wants to wait; the last is longer than any server allows."""
SPARE = (-1, 0, 1, SECOND // 100, SECOND // 100, SECOND // 100, SECOND)
"""How much time a call has left when it arrives, where it has a deadline."""
OVER = (Code.INVALID, Code.FULL, Code.OVERLOADED)
"""How a batch is refused that is too large."""
FULL = "limits.max_concurrent_requests"
"""Whoever is refused because too many calls are open is told of this bound."""


class Ask:
    """One call, as its caller sees it. It is the call's sink."""

    __slots__ = ("call", "deadline", "made", "marker", "node", "number", "odd", "op", "pages", "request", "shown")

    def __init__(self, number: int, op: str, request: Any, node: "Node", marker: str) -> None:
        self.number = number
        self.op = op
        """One of `faults.CALLS`."""
        self.request = request
        self.node = node
        self.marker = marker
        """Of a batch: the content type of its tasks."""
        self.call = m.Call(self)
        self.deadline: int | None = None
        """Its own, beside that of the server."""
        self.odd = ""
        """What is odd about it, where that is known when it is refused; one of `odd request`."""
        self.made = 0
        """Of a submission: the task that it was told of."""
        self.pages = 0
        """Of a listing: its caller asks for so many more, until there is none."""
        self.shown: dict[int, int] = {}
        """Of a watch: the last attempt or end that it was told of each task."""

    def __str__(self) -> str:
        return f"#{self.number}"


class Callers:
    """All callers of one world."""

    OFTEN: ClassVar = {
        "submit": 18,
        "submit_batch": 4,
        "cancel": 3,
        "look": 5,
        "wait": 4,
        "list": 2,
        "watch": 2,
        "schedules": 3,
        "figures": 1,
        "ask_again": 3,
        "give_up": 4,
    }

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self.specs = Specs(world)
        self._lots = world.swarm.lots({"deadline": 1, "asked twice": 1, "caller gone at once": 1})
        self._batches = 0
        self._number = 0
        self._broken: list[Ask] = []
        """Watches whose streams are broken, which nobody has noticed yet."""
        self.unsure: list[Ask] = []
        """What was asked and never answered."""

    # --- acts

    def submit(self) -> None:
        """Somebody submits a few tasks, and perhaps waits for them."""
        node = self.node()
        if node is None:
            return
        for _ in range(self._pick((1, 2, 3, 4, 6))):
            waits = self._pick((False, False, True))
            request = m.Submit(self.specs.spec(), waits, self._pick(WAITS) if waits else None)
            self.request(node, "submit and wait" if waits else "submit", request)

    def submit_batch(self) -> None:
        """Somebody submits some tasks as one."""
        node = self.node()
        if node is None:
            return
        self.submit_as_one(node, [self._pick(("", *KEYS)) for _ in range(self._pick((1, 2, 3, 4)))])

    def cancel(self) -> None:
        """Somebody cancels a task."""
        node = self.node()
        if node is not None:
            self.request(node, "cancel", m.Cancel(self.specs.ref()))

    def look(self) -> None:
        """Somebody looks at a few tasks."""
        node = self.node()
        if node is not None:
            for _ in range(self._pick((1, 2, 4))):
                self.request(node, "get", m.Get(self.specs.ref()))

    def wait(self) -> None:
        """Somebody waits for the end of a task."""
        node = self.node()
        if node is not None:
            self.request(node, "wait", m.Wait(self.specs.ref(), self._pick(WAITS)))

    def list(self) -> None:
        """Somebody lists tasks."""
        node = self.node()
        if node is not None:
            pools = self._pick(((), (), ("a",), ("b", "c")))
            statuses = self._pick(((), (), (1, 2, 3, 4), (6, 7)))
            request = m.ListTasks(pools, statuses, max(self.specs.some_task() & 0xFFFF, 0), self._pick((0, 1, 3, 50)))
            self.request(node, "list", request)

    def watch(self) -> None:
        """Somebody watches."""
        node = self.node()
        if node is not None:
            pools = self._pick(((), (), ("a",), ("b", "c")))
            named = self._pick((False, False, True))
            ids = (self.specs.some_task(),) if named else ()
            keys = (self._pick(KEYS),) if named else ()
            self.request(node, "watch", m.Watch(pools, ids, keys, self._pick((False, True))))

    def schedules(self) -> None:
        """Somebody adds, removes or lists schedules."""
        node = self.node()
        if node is None:
            return
        choice = self._pick(("add", "add", "remove", "list"))
        if choice == "add":
            self.request(node, "add schedule", AddRecurring(self.specs.schedule()))
        elif choice == "remove":
            self.request(node, "remove schedule", RemoveRecurring(self._pick(SCHEDULES)))
        else:
            self.request(node, "list schedules", ListRecurring())

    def figures(self) -> None:
        """Somebody looks at the server."""
        node = self.node()
        if node is not None:
            if self._pick((False, True)):
                self.request(node, "workers", m.ListWorkers())
            else:
                self.request(node, "snapshot", m.GetSnapshot())

    def ask_again(self) -> None:
        """Somebody does not know what became of a request, and repeats it."""
        node = self.node()
        if node is not None and self.unsure:
            old = self.unsure.pop(self._pick(range(len(self.unsure))))
            self.request(node, old.op, old.request, old.marker)

    def give_up(self) -> None:
        """Somebody goes away before the answer: an end of a watch is no fault, of another call it is one."""
        node = self.node(open_only=True)
        if node is None:
            return
        by_op: dict[str, Ask] = {}
        for ask in node.asks:
            by_op[ask.op] = ask  # one of each: most that are open wait for a task, and those are not the only ones
        op = self._pick(list(by_op))
        if op in AT_ONCE:
            return
        if op == "watch" or self._world.strikes("caller gone", op, 8 if op in BRIEF else 2):
            self.gone(node, by_op[op])

    # --- asking

    def list_on(self, node: "Node", request: m.ListTasks, pages: int) -> None:
        """Somebody asks for a page, and then for up to so many more."""
        self.ask(node, "list", request).pages = pages

    def submit_as_one(self, node: "Node", keys: Sequence[str]) -> None:
        """Somebody submits tasks with these keys as one."""
        marker = self.marker()
        self.submit_marked(node, marker, tuple([self.specs.spec(key, marker) for key in keys]))

    def marker(self) -> str:
        """Of one more batch."""
        self._batches += 1
        return f"batch {self._batches}"

    def submit_marked(self, node: "Node", marker: str, specs: tuple[TaskSpec, ...]) -> Ask:
        """Somebody submits these tasks, whose content type is the marker, as one."""
        self._world.ledger.batches[marker] = specs
        return self.request(node, "batch", m.SubmitBatch(specs), marker)

    def node(self, *, open_only: bool = False) -> "Node | None":
        """Some node that has room for a call, or has one open."""
        while self._broken:
            ask = self._broken.pop()
            if ask in ask.node.asks:
                self.gone(ask.node, ask)
        node = self._world.some_node()
        if node is None or (open_only and not node.asks):
            return None
        if not open_only and len(node.asks) >= MAX_OPEN:
            self.gone(node, next(iter(node.asks)))
        return node

    def ask(self, node: "Node", op: str, request: Any, marker: str = "", deadline: int | None = None) -> Ask:
        """A call leaves its caller and arrives."""
        self._number += 1
        ask = Ask(self._number, op, request, node, marker)
        ask.deadline = deadline
        node.asks[ask] = None
        node.inbox.append(m.CallReceived(ask.call, ANYONE, request, deadline))
        return ask

    def request(self, node: "Node", op: str, request: Any, marker: str = "") -> Ask:
        """Somebody asks this of that node; what callers and the network make of it."""
        world = self._world
        fault = self._pick(self._lots)
        if not fault or (fault == "asked twice" and op not in _CHANGES):
            ask = self.ask(node, op, request, marker)
        elif fault == "deadline":  # which counts when it passes
            ask = self.ask(node, op, request, marker, node.now + self._pick(SPARE))
        else:
            world.strike(fault, op)
            ask = self.ask(node, op, request, marker)
            if fault == "asked twice":
                self.ask(node, op, request, marker)
            else:
                self.gone(node, ask)
        if node.epoch != world.store.epoch:
            world.strike("stale leader", "change" if op in _CHANGES else "watch" if op == "watch" else "read")
        return ask

    def gone(self, node: "Node", ask: Ask) -> None:
        """The caller goes away."""
        del node.asks[ask]
        node.inbox.append(m.CallEnded(ask.call))
        self._remember(ask)

    def _remember(self, ask: Ask) -> None:
        if ask.op != "watch" and len(self.unsure) < MAX_UNSURE:
            self.unsure.append(ask)

    # --- answers

    def replied(self, node: "Node", action: Answer) -> None:
        """A call is answered."""
        ask: Any = action.request.sink
        world = self._world
        message = action.outcome
        world.words += ask.number + 64 * getattr(message, "task_id", 0) + getattr(message, "status", 0)
        world.ledger.replied(node, ask, message)
        node.asks.pop(ask, None)
        if world.on("reply lost") and world.strikes("reply lost", ask.op):
            self._remember(ask)
        elif type(message) is m.TaskPage and ask.pages:
            self._next_page(node, ask, message)

    def _next_page(self, node: "Node", ask: Ask, page: m.TaskPage) -> None:
        """Somebody who wants the whole list asks for the next page."""
        if page.next_after:
            self.list_on(node, replace(ask.request, after=page.next_after), ask.pages - 1)
        else:
            self._world.strike("odd request", "list to the end")

    def rejected(self, node: "Node", action: m.Reject) -> None:
        """A call is refused, or a watch ends."""
        ask: Any = action.call.sink
        rejection = action.rejection
        self._world.words += ask.number + 64 * _CODES[rejection.code]
        self._world.ledger.rejected(node, ask, rejection)
        node.asks.pop(ask, None)
        if rejection.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            self._remember(ask)
        if ask.deadline is not None and rejection.code is Code.DEADLINE_EXCEEDED and node.now >= ask.deadline:
            self._world.strike("deadline", ask.op)
        if ask.odd and (rejection.code in OVER or FULL in rejection.message):
            self._world.strike("odd request", ask.odd)

    def started(self, node: "Node", action: m.StartEvents) -> None:
        """A watch is let in."""
        ask: Any = action.call.sink
        self._world.ledger.started(node, ask)

    def told(self, node: "Node", action: m.SendEvent) -> None:
        """Watchers are told of a task."""
        world = self._world
        breaks = world.on("reply lost")
        world.words += (action.event.task_id * 16 + action.event.status) * 16 + len(action.calls)
        for call in action.calls:
            ask: Any = call.sink
            if call.open and ask in node.asks:  # the term hears of a caller that is gone with the next read
                world.ledger.told(node, ask, action.event)
                if breaks and world.strikes("reply lost", "watch"):
                    self._broken.append(ask)

    def lost(self, node: "Node") -> None:
        """The term of a node is over: whoever waits for an answer hears that the outcome is unknown."""
        for ask in node.asks:
            ask.call.open = False
            self._remember(ask)
        node.asks.clear()


_CHANGES = frozenset(CHANGES)
_CODES = {code: number for number, code in enumerate(Code)}
