"""What a server says, without the names that it gave: ids of tasks, leases and workers in the order of appearance.

Two servers that treat somebody alike say the same to him, once ids are replaced by their order. An id is known by its
size: tasks and leases have numbers that nothing else has (`TASKS`, `LEASES`), so that it is found in texts too.
"""

import re
from dataclasses import replace
from typing import Any

from cronoq_sansio.engine.figures import PoolFigures
from cronoq_sansio.engine.snapshot import PoolSnapshot
from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.server.store import LEASES_PER_TERM

FIRST_TASK = 1 << 40
TASKS = range(FIRST_TASK, FIRST_TASK << 1)
LEASES = range(LEASES_PER_TERM, LEASES_PER_TERM << 1)
"""Of the first term."""
_NUMBER = re.compile(r"\d{7,13}")


class Names:
    """The ids that one server has shown."""

    def __init__(self, hidden: str = "") -> None:
        self._hidden = hidden
        self._known: dict[int, int] = {}
        self._ids: list[int] = []
        self._workers: dict[int, int] = {}

    def ordinal(self, number: int) -> int | None:
        """Of an id that was shown."""
        return self._known.get(number)

    def id(self, ordinal: int) -> int:
        """That was shown as so manieth. Raises `LookupError` when there were not so many."""
        return self._ids[ordinal]

    def plain(self, said: Any) -> Any:
        """A message with ordinals for ids, as a tuple; without what tells of the pool `hidden`, and of all pools."""
        kind = type(said)
        if kind is int:
            return self._name(said) if said in TASKS or said in LEASES else said
        if kind is str:
            return _NUMBER.sub(lambda found: str(self.plain(int(found.group()))), said)
        if kind is tuple:
            return tuple(map(self.plain, said))
        if kind is m.TaskPage:
            return ("TaskPage", self.plain(said.tasks))  # where the next page begins depends on others
        if kind is m.SnapshotReply:
            return ("SnapshotReply", *(self._pool(pool) for pool in said.engine.pools if pool.name != self._hidden))
        if kind is m.WorkerList:
            return ("WorkerList", *(self.plain(worker) for worker in said.workers if worker.pool != self._hidden))
        fields = getattr(kind, "__dataclass_fields__", None)
        if fields is None:
            return said
        return (kind.__name__, *(self._field(name, getattr(said, name)) for name in fields))

    def _pool(self, pool: PoolSnapshot) -> Any:
        """Without what is sampled when somebody happens to look: averages over about a minute."""
        return self.plain(replace(pool, figures=PoolFigures()))

    def _field(self, name: str, given: Any) -> Any:
        if name == "worker_id":
            return self._workers.setdefault(given, len(self._workers))
        return self.plain(given)

    def _name(self, number: int) -> str:
        ordinal = self._known.get(number)
        if ordinal is None:
            ordinal = self._known[number] = len(self._ids)
            self._ids.append(number)
        return f"{'task' if number in TASKS else 'lease'}#{ordinal}"


def translated(said: Any, here: Names, there: Names) -> Any:
    """The same message for another server: its ids instead of the ones that are known here."""
    kind = type(said)
    if kind is int:
        ordinal = here.ordinal(said)
        return said if ordinal is None else there.id(ordinal)
    if kind is tuple:
        return tuple(translated(entry, here, there) for entry in said)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None:
        return said
    return kind(*(translated(getattr(said, name), here, there) for name in fields))
