"""A worker that a test plays: it takes the leases one by one and says how each ends."""

import math
from collections import deque
from typing import Any

import anyio

from cronoq._client.worker import Worker
from cronoq._client.worker_lease import Lease


class FakeWorker(Worker):
    """A `Worker` without a handler: `next` gives a lease, `complete` and `fail` end it. Heartbeats go by themselves.

    Takes the arguments of `Worker` but `handler`.
    """

    def __init__(self, target: str, pool: str, **options: Any) -> None:
        super().__init__(target, pool, self._hold, **options)
        self._leases: deque[Lease] = deque()
        self._ends: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self._news = anyio.Event()

    async def next(self, timeout: float = math.inf) -> Lease:
        """The next lease. TimeoutError after `timeout` seconds."""
        with anyio.fail_after(timeout):
            while not self._leases:
                self._news = anyio.Event()
                await self._news.wait()
        return self._leases.popleft()

    def complete(self, lease: Lease, output: Any = None) -> None:
        """The attempt succeeded with this output."""
        self._end(lease, output)

    def fail(self, lease: Lease, error: Exception) -> None:
        """The attempt ends as if a handler had raised this."""
        self._end(lease, error)

    def _end(self, lease: Lease, value: Any) -> None:
        if lease.id not in self._ends:
            raise ValueError(f"lease {lease.id} is not held any more")
        event, slot = self._ends[lease.id]
        slot.append(value)
        event.set()

    async def _hold(self, lease: Lease) -> Any:
        event, slot = self._ends[lease.id] = (anyio.Event(), [])
        self._leases.append(lease)
        self._news.set()
        try:
            await event.wait()
        finally:
            del self._ends[lease.id]
            if lease in self._leases:
                self._leases.remove(lease)
        if isinstance(slot[0], Exception):
            raise slot[0]
        return slot[0]
