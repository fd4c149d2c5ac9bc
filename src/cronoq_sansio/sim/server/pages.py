"""Pages of tasks and lists of schedules: in order, nothing else than asked for, nothing old, and nothing left out."""

from typing import TYPE_CHECKING, Any

from cronoq_sansio.limits import DEFAULT_PAGE
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import SUCCEEDED

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.holders import Asked
    from cronoq_sansio.sim.server.ledger import Ledger
    from cronoq_sansio.sim.server.node import Node
    from cronoq_sansio.sim.server.world import ServerWorld

WHOLE_EVERY = 4
"""One page of so many is compared with everything that is stored."""
LEAST_BYTES, MOST_BYTES = 24, 8_192
"""What an entry of a page takes beside its texts at least, and what one hardly ever takes with them."""


def fault(what: str, ask: "Ask", details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, f"{ask.request} -> {details}")


class Pages:
    """Of one world."""

    def __init__(self, world: "ServerWorld", ledger: "Ledger") -> None:
        self._world = world
        self._ledger = ledger
        self._rows = world.store.rows
        self._pages = 0

    # --- tasks

    def page(self, node: "Node", ask: "Ask", page: m.TaskPage) -> None:
        """A page as a whole; what it tells of each task is looked at elsewhere."""
        request: m.ListTasks = ask.request
        limits = node.settings.limits
        limit = min(request.limit or DEFAULT_PAGE, limits.max_list)
        stored = self._ledger.ends if not (request.statuses or self._world.store.volatile) else {}
        last = request.after
        for info in page.tasks:
            if info.task_id <= last:
                raise fault("a page is not in the order of ids", ask, page)
            last = info.task_id
            if (request.pools and info.pool not in request.pools) or (
                request.statuses and info.status not in request.statuses
            ):
                raise fault("a page has a task that was not asked for", ask, info)
            if info.status < SUCCEEDED and info.task_id in stored:
                raise fault("a page shows a task as live whose end the store has shown", ask, info)
        if len(page.tasks) > limit or (page.next_after and page.next_after < last):
            raise fault("a page is longer than asked for, or does not go on behind its end", ask, page)
        if len(page.tasks) > 1 and len(page.tasks) * MOST_BYTES > limits.max_message_bytes:
            self._fits(node, ask, page)
        asked = node.holders.calls.get(ask.call)
        if asked is None:
            return
        if asked.place and not request.statuses:
            self._before(ask, page, asked)
        self._pages += 1
        if not self._pages % WHOLE_EVERY and node.epoch == self._world.store.epoch:
            self._whole(ask, page, asked)

    def _fits(self, node: "Node", ask: "Ask", page: m.TaskPage) -> None:
        size = sum(
            LEAST_BYTES + sum(len(text) for text in (info.pool, info.key, info.kind, info.message, info.tenant))
            for info in page.tasks
        )
        if size > node.settings.limits.max_message_bytes:
            raise fault("a page is larger than a message may be", ask, f"{size} bytes or more")

    def _before(self, ask: "Ask", page: m.TaskPage, asked: "Asked") -> None:
        """What came before the question in its read is on the page."""
        request: m.ListTasks = ask.request
        there = {info.task_id for info in page.tasks}
        for call in asked.read[: asked.place]:
            sink: Any = call.sink
            made = sink.made
            if not made or made in there or not request.after < made <= (page.next_after or made):
                continue
            if request.pools and self._rows.inserted[made].spec.pool not in request.pools:
                continue
            if self._world.store.volatile and made in self._ledger.ends:
                continue  # it may be forgotten
            raise fault("a page leaves out a task that came before it in the same read", ask, f"task {made}, {page}")

    def _whole(self, ask: "Ask", page: m.TaskPage, asked: "Asked") -> None:
        """Nothing that matched all the time from the question to the answer is left out."""
        request: m.ListTasks = ask.request
        ledger, rows = self._ledger, self._rows
        there = {info.task_id for info in page.tasks}
        end = min(page.next_after or asked.highest, asked.highest)
        for task_id, row in rows.inserted.items():
            if not request.after < task_id <= end or task_id in there:
                continue
            if request.pools and row.spec.pool not in request.pools:
                continue
            ended = ledger.ended_at.get(task_id)
            if ended is not None and self._world.store.volatile:
                continue  # it may be forgotten
            if request.statuses and (ended is None or ended >= asked.event):
                continue  # who knows what it was
            if request.statuses and ledger.ends[task_id].status not in request.statuses:
                continue
            raise fault("a page leaves out a task that matches", ask, f"task {task_id}, {page}")

    # --- schedules

    def schedules(self, node: "Node", ask: "Ask", reply: mr.RecurringListReply) -> None:
        """All of them, by name, as they were made before the question."""
        listed = {view.spec.name: view.spec for view in reply.schedules}
        names = [view.spec.name for view in reply.schedules]
        if names != sorted(listed):
            raise fault("schedules are not listed by name, each once", ask, names)
        for view in reply.schedules:
            if view.spec not in self._ledger.schedules.get(view.spec.name, ()):
                raise fault("a schedule was told of that is not durable", ask, view)
            if view.last_task and view.last_task not in self._rows.inserted:
                raise fault("a schedule was told to have made a task that is not durable", ask, view)
        asked = node.holders.calls.get(ask.call)
        if asked is None:
            return
        room = node.view.room
        for name in {**room.standing, **listed}:
            if room.changed.get(name, -1) < asked.event:
                self._stands(node, ask, name, listed)
        for call in asked.read[: asked.place]:
            self._changed_before(node, ask, asked, call, listed)

    def _changed_before(self, node: "Node", ask: "Ask", asked: "Asked", call: m.Call, listed: dict[str, Any]) -> None:
        """What the same read changed before is listed like that, when nothing else has changed it since."""
        name, room = _schedule_of(call), node.view.room
        others = [other for other in asked.read if other is not call and _schedule_of(other) == name]
        if name and not others and room.changed.get(name) == asked.event:
            self._stands(node, ask, name, listed)

    def _stands(self, node: "Node", ask: "Ask", name: str, listed: dict[str, Any]) -> None:
        standing = node.view.room.standing.get(name)
        if listed.get(name) != standing:
            raise fault("a list of schedules is not what there is", ask, f"{name}: {listed.get(name)}, not {standing}")


def _schedule_of(call: m.Call) -> str:
    """The name of the schedule that a call changes, or empty."""
    sink: Any = call.sink
    request = sink.request
    if type(request) is mr.AddRecurring:
        return request.spec.name
    return request.name if type(request) is mr.RemoveRecurring else ""
