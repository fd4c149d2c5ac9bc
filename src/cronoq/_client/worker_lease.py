"""What a handler is given: the lease, and the signal that says it was given up."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import anyio


class CancelSignal:
    """Says that a lease is not this worker's any more: aborted, cut off by a stop, or the connection was lost.

    `is_set` and `wait` are those of an event; a handler in a thread asks `is_set`, or sleeps with `wait_in_thread`.
    """

    __slots__ = ("_event", "_set", "_thread")

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None
        self._thread: threading.Event | None = None

    def is_set(self) -> bool:
        """Whether the handler should stop."""
        return self._set

    def set(self) -> None:
        """Tell everybody who waits. For the event loop's thread."""
        self._set = True
        if self._event is not None:
            self._event.set()
        if self._thread is not None:
            self._thread.set()

    async def wait(self) -> None:
        """Until the handler should stop."""
        if self._event is None:
            self._event = anyio.Event()
            if self._set:
                self._event.set()
        await self._event.wait()

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """For handlers in threads: sleep until the signal or for `timeout` seconds; whether it is set."""
        if self._thread is None:
            self._thread = threading.Event()
        if self._set:  # looked at after the event can be seen, so that `set` cannot miss it
            self._thread.set()
        return self._thread.wait(timeout)


@dataclass
class Lease:
    """One attempt of a task, as a handler sees it. `id` names the lease, `task_id` the task. Times are Unix seconds."""

    id: int
    task_id: int
    attempt: int
    """1 = the first."""
    payload: bytes = b""
    content_type: str = ""
    kind: str = ""
    key: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds that this attempt may take; the server aborts it then."""
    deadline: float | None = None
    """When the task should be done."""
    pool: str = ""
    priority: str | None = None
    """`critical`, `high`, `normal` or `low`."""
    lease_ttl: float | None = None
    """Seconds without a heartbeat after which the attempt counts as lost; heartbeats go by themselves."""
    cancelled: CancelSignal = field(default_factory=CancelSignal, compare=False)

    def json(self) -> Any:
        """The payload as JSON; None for an empty one. ValueError when it is not JSON."""
        return json.loads(self.payload) if self.payload else None

    def text(self) -> str:
        """The payload as UTF-8 text. UnicodeDecodeError when it is not."""
        return self.payload.decode()
