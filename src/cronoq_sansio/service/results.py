"""What is kept in memory of finished tasks: their information by count, their outputs by count and bytes.

Both are filled when a task ends, which is before its end is durable. So each entry carries the step that it shows
(`after`), and whoever shows it waits for that step: a cache never tells what a crash could take back.

The oldest entry goes first; entries are never touched by a look-up, so age is age since the end. An output larger
than the whole budget is not kept. Empty outputs are kept like any other: a task that returned nothing has an output.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import replace

from cronoq_sansio.engine.actions import TaskEnded
from cronoq_sansio.engine.task import Retained
from cronoq_sansio.limits import MAX_LIST_SCAN
from cronoq_sansio.service.id_index import IdIndex
from cronoq_sansio.service.messages import TaskInfo, TaskResult
from cronoq_sansio.settings import OutputSettings
from cronoq_sansio.spec import TaskStatus
from cronoq_sansio.values import value

SUCCEEDED = int(TaskStatus.SUCCEEDED)


@value
class InfoEntry:
    """What `Get` shows of a finished task. Its `output_available` is not meant: the caches and the store tell that."""

    info: TaskInfo
    after: int


@value
class OutputEntry:
    """What a finished task returned."""

    output: bytes
    content_type: str
    after: int


_Row = tuple[int, str, str, str, int, int, int, int | None, int | None, str, int, str, int]
"""What is kept of a task: of a thousand that end hardly one is asked for, so it is put into words when it is."""


def _entry(task_id: int, row: _Row) -> InfoEntry:
    status, pool, key, kind, attempt, most, created, started, finished, message, priority, tenant, after = row
    times = created, started, finished
    return InfoEntry(
        TaskInfo(task_id, status, pool, key, kind, attempt, most, *times, message, False, priority, tenant), after
    )


class InfoCache:
    """The newest `capacity` finished tasks, by id and by key; 0 = off."""

    __slots__ = ("_capacity", "_ids", "_keys", "_order", "_rows")

    def __init__(self, capacity: int, *, listed: bool = False) -> None:
        """`listed`: keep the ids in order too, for `page`."""
        self._capacity = capacity
        self._ids = IdIndex() if listed else None
        self._rows: dict[int, _Row] = {}
        self._order: deque[int] = deque()  # next(iter(dict)) is not O(1) on a dict that loses its first entries
        self._keys: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, ended: TaskEnded) -> None:
        """Remember a task that has just ended."""
        if not self._capacity:
            return
        task = ended.task
        spec, task_id, order = task.spec, task.id, self._order
        key = spec.key
        if len(order) >= self._capacity:
            self._drop_oldest()
        order.append(task_id)
        if self._ids is not None:
            self._ids.add(task_id)
        self._rows[task_id] = (
            task.status,
            spec.pool,
            key,
            spec.kind,
            task.attempt,
            task.max_attempts,
            task.created,
            task.last_started or None,
            task.finished or None,
            task.message,
            spec.priority,
            "" if spec.scheduling is None else spec.scheduling.tenant,
            ended.after,
        )
        if key:
            self._keys[key] = task_id

    def get(self, ref: int | str) -> InfoEntry | None:
        """By id, or by key the newest."""
        task_id = self._keys.get(ref) if isinstance(ref, str) else ref
        row = None if task_id is None else self._rows.get(task_id)
        return None if task_id is None or row is None else _entry(task_id, row)

    def page(
        self, pools: Collection[str], statuses: Collection[int], after: int, limit: int
    ) -> tuple[list[InfoEntry], int]:
        """Up to `limit` entries above the id `after`, ascending, and the id up to which was looked; 0 = all of them.

        Filters that are empty let everything pass. Looks at no more than `limits.MAX_LIST_SCAN`.
        """
        assert self._ids is not None
        found: list[InfoEntry] = []
        for looked, task_id in enumerate(self._ids.after(after)):
            if looked == MAX_LIST_SCAN or len(found) == limit:
                return found, after
            after = task_id
            row = self._rows[task_id]
            if (not statuses or row[0] in statuses) and (not pools or row[1] in pools):
                found.append(_entry(task_id, row))
        return found, 0

    def check_invariants(self) -> None:
        """Never above the capacity; keys name entries."""
        assert len(self._order) == len(self._rows) <= self._capacity
        if self._ids is not None:
            self._ids.check_invariants()
            assert set(self._ids.after(-1)) == self._rows.keys()
        for key, task_id in self._keys.items():
            assert self._rows[task_id][2] == key

    def _drop_oldest(self) -> None:
        task_id = self._order.popleft()
        if self._ids is not None:
            self._ids.discard(task_id)
        key = self._rows.pop(task_id)[2]
        if key and self._keys.get(key) == task_id:
            del self._keys[key]


class OutputCache:
    """Outputs of the newest succeeded tasks, at most `entries` of them with at most `budget` bytes in all."""

    __slots__ = ("_budget", "_capacity", "_entries", "_order", "size")

    def __init__(self, capacity: int, budget: int) -> None:
        self._capacity = capacity
        self._budget = budget
        self._entries: dict[int, tuple[bytes, str, int]] = {}
        """Output, content type, `after`: put into words when somebody asks, like the rows of `InfoCache`."""
        self._order: deque[int] = deque()
        self.size = 0
        """Bytes of all outputs that are kept."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, task_id: int, output: bytes, content_type: str, after: int) -> None:
        """Remember an output, or do nothing when it does not fit at all."""
        size, order = len(output), self._order
        if not self._capacity or size > self._budget:
            return
        order.append(task_id)
        self._entries[task_id] = output, content_type, after
        self.size = size = self.size + size
        if len(order) > self._capacity or size > self._budget:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._order) > self._capacity or self.size > self._budget:
            self.size -= len(self._entries.pop(self._order.popleft())[0])

    def get(self, task_id: int) -> OutputEntry | None:
        """The output of a task, while it is kept."""
        entry = self._entries.get(task_id)
        return None if entry is None else OutputEntry(*entry)

    def check_invariants(self) -> None:
        """Never above count or bytes."""
        assert len(self._order) == len(self._entries) <= self._capacity
        assert self.size == sum(len(output) for output, _, _ in self._entries.values()) <= self._budget


@value
class Finished:
    """What memory knows of a finished task, put together."""

    info: TaskInfo
    entry: OutputEntry | None
    after: int
    detailed: bool
    """False: only what key retention remembers (id, pool, key and status)."""

    @property
    def answers_get(self) -> bool:
        """True when the store could add nothing to `Get`."""
        return self.detailed and (self.info.status != SUCCEEDED or self.entry is not None)

    @property
    def answers_wait(self) -> bool:
        """True when the store could add nothing to `Wait`: a success needs its output, another end its message."""
        return self.entry is not None if self.info.status == SUCCEEDED else self.detailed

    def result(self) -> TaskResult:
        """The answer to `Wait`; without the output when that is gone."""
        info, entry = self.info, self.entry
        if entry is None:
            return TaskResult(info.task_id, info.status, None, "", info.message)
        return TaskResult(info.task_id, info.status, entry.output, entry.content_type, info.message)


class Results:
    """Both caches."""

    __slots__ = ("infos", "outputs")

    def __init__(self, settings: OutputSettings, *, listed: bool = False) -> None:
        """`listed`: finished tasks are listed from here, because the store forgets them."""
        self.infos = InfoCache(settings.info_entries, listed=listed)
        self.outputs = OutputCache(settings.cache_entries, settings.cache_bytes)

    def add(self, ended: TaskEnded) -> None:
        """Remember a task that has just ended."""
        self.infos.add(ended)
        if ended.output is not None:
            self.outputs.add(ended.task.id, ended.output, ended.content_type, ended.after)

    def find(self, ref: int | str, retained: Retained | None) -> Finished | None:
        """What is known of a task that is not live; `retained` is what the engine remembers of it."""
        cached = self.infos.get(ref)
        if cached is not None:
            entry = self.outputs.get(cached.info.task_id)
            info = replace(cached.info, output_available=True) if entry is not None else cached.info
            return Finished(info, entry, cached.after, True)
        if retained is None:
            return None
        entry = self.outputs.get(retained.task_id)
        return Finished(_minimal(retained, entry is not None), entry, retained.stored, False)

    def page(
        self, pools: Collection[str], statuses: Collection[int], after: int, limit: int
    ) -> tuple[tuple[TaskInfo, ...], int, int]:
        """A page of what is kept (`InfoCache.page`), and the newest step that it shows."""
        entries, looked = self.infos.page(pools, statuses, after, limit)
        infos = tuple(
            replace(entry.info, output_available=True) if self.outputs.get(entry.info.task_id) else entry.info
            for entry in entries
        )
        return infos, looked, max((entry.after for entry in entries), default=0)

    def check_invariants(self) -> None:
        """Bounds and indexes of both."""
        self.infos.check_invariants()
        self.outputs.check_invariants()


def _minimal(retained: Retained, output_available: bool) -> TaskInfo:
    return TaskInfo(
        retained.task_id,
        retained.status,
        retained.pool,
        retained.key,
        "",
        0,
        0,
        None,
        None,
        None,
        "",
        output_available,
        -1,
    )
