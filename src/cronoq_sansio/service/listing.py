"""`Tasks.ListTasks`: one page is the union of the live tasks and the finished ones, by id.

Theory. Live tasks come from the engine, finished ones from the store, or, with a store that forgets them, from the
cache of information. The live part is taken when the query is issued, before the store is looked at: a task that ends
in between is in both parts, and the stored row, which is newer, wins. The other way round it could be in neither. The
query is held until everything written so far is durable, so a page never lacks what its caller was told of before.

Each source looks at a bounded number of tasks and says up to which id it looked. A page is complete up to the smaller
of these ids and says from where to go on, so it may be shorter than asked for, or empty, and not be the last: only
`next_after` 0 says that.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import DEFAULT_PAGE, MAX_LISTED, MESSAGE_HEADROOM
from cronoq_sansio.service.lookups import Lookups, task_info
from cronoq_sansio.service.messages import (
    Call,
    ListFinished,
    ListTasks,
    ReadStore,
    Request,
    StoredPage,
    TaskInfo,
    TaskPage,
)
from cronoq_sansio.service.results import Results
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.waits import LISTED, Asking
from cronoq_sansio.settings import Settings
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

SUCCEEDED = int(TaskStatus.SUCCEEDED)
ENTRY_BYTES = 96  #: what an entry of a page takes beside its texts, at most: tags, lengths, numbers

NOTHING = StoredPage((), 0)
TOO_MANY = Rejection(Code.UNAVAILABLE, "too many listings wait for the store; try again")


class Listing(Asking):
    """A page of which the live part is known, and the store's is asked for."""

    __slots__ = ("after", "limit", "live")

    def __init__(self, live: StoredPage, limit: int, after: int) -> None:
        super().__init__()
        self.live = live
        self.limit = limit
        self.after = after
        """The newest step that the live part shows."""


class Listings:
    """Makes pages. `volatile`: the store forgets finished tasks, so they are looked for in the caches."""

    def __init__(
        self,
        engine: "Engine",
        settings: Settings,
        turn: Turn,
        results: Results,
        lookups: Lookups,
        drive: Callable[[], None],
        *,
        volatile: bool,
    ) -> None:
        self._engine = engine
        self._max_list = settings.limits.max_list
        self._max_bytes = settings.limits.max_message_bytes - MESSAGE_HEADROOM
        self._turn = turn
        self._results = results
        self._lookups = lookups
        self._drive = drive
        self._volatile = volatile
        self._held = 0
        """Tasks in the live parts of all pages that wait for the store."""

    def received(self, call: Call, request: Request) -> None:
        """Answer, or ask the store for the rest."""
        assert type(request) is ListTasks
        engine, turn = self._engine, self._turn
        for pool in request.pools:
            if not engine.has_pool(pool):
                turn.reject(call, Rejection(Code.UNKNOWN_POOL, f"unknown pool {pool!r}"))
                return
        if turn.events:
            self._drive()  # a look shows everything that came before it
        limit = min(request.limit or DEFAULT_PAGE, self._max_list)
        live, after = self._live(request, limit + 1)  # one more says whether more follow
        ends = tuple(status for status in request.statuses if status >= SUCCEEDED)
        if request.statuses and not ends:
            call.wait = LISTED
            turn.reply(call, self._page(live, NOTHING, limit), after)
        elif self._volatile:
            call.wait = LISTED
            infos, looked, newest = self._results.page(request.pools, ends, request.after, limit + 1)
            turn.reply(call, self._page(live, StoredPage(infos, looked), limit), max(after, newest))
        elif self._held and self._held + len(live.tasks) > MAX_LISTED:
            turn.reject(call, TOO_MANY)
        else:
            call.wait = listing = Listing(live, limit, after)
            self._held += len(live.tasks)
            number = self._lookups.issue(call, listing)
            query = ListFinished(number, tuple(dict.fromkeys(request.pools)), ends, request.after, limit + 1)
            turn.once_durable.append(ReadStore(query, engine.written))

    def answered(self, call: Call, listing: Listing, stored: StoredPage) -> None:
        """The store answered."""
        self._turn.reply(call, self._page(listing.live, stored, listing.limit), listing.after)

    def closed(self, listing: Listing) -> None:
        """The call is over."""
        self._lookups.drop(listing)
        self._held -= len(listing.live.tasks)

    @property
    def held(self) -> int:
        """How many tasks are kept for pages that wait for the store."""
        return self._held

    def _live(self, request: ListTasks, limit: int) -> tuple[StoredPage, int]:
        """The live tasks of the page as they are now, and the newest step that they show."""
        statuses = [status for status in request.statuses if status < SUCCEEDED]
        if request.statuses and not statuses:
            return NOTHING, 0
        pools = tuple(dict.fromkeys(request.pools)) or tuple(self._engine.pools)
        tasks, looked = self._engine.list_live(pools, statuses, request.after, limit)
        after = max((task.stored for task in tasks), default=0)
        return StoredPage(tuple(map(task_info, tasks)), looked), after

    def _page(self, live: StoredPage, stored: StoredPage, limit: int) -> TaskPage:
        """Both parts by id, cut where one of them does not know more, by number, and by bytes."""
        known = {info.task_id: info for info in live.tasks}
        known.update((info.task_id, info) for info in stored.tasks)
        bound = min((part.looked for part in (live, stored) if part.looked), default=0)
        ids = sorted(task_id for task_id in known if not bound or task_id <= bound)
        count = self._that_fit(known[task_id] for task_id in ids[:limit])
        tasks = tuple(known[task_id] for task_id in ids[:count])
        return TaskPage(tasks, ids[count - 1] if count < len(ids) else bound)

    def _that_fit(self, infos: Iterable[TaskInfo]) -> int:
        """How many of them one message holds; the first one always counts, so that every page goes on."""
        count = size = 0
        for info in infos:
            size += ENTRY_BYTES + sum(map(_size, (info.pool, info.key, info.kind, info.message, info.tenant)))
            if count and size > self._max_bytes:
                break
            count += 1
        return count


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
