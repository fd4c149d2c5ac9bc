"""A foreign worker over grpcio: one `Work` stream, every message said by the test."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.server import HANG

VERSION = 3

Handler = Callable[[pb.Lease], dict[str, Any]]
"""From a lease to the fields of its outcome: `{"complete": pb.Complete(…)}`."""


GOODBYE = 3.0
"""Seconds for the server's side to end after ours; a server that was stopped or killed never ends it."""


class Worker:
    """A stream on a channel. `registered` is the server's first answer, None when the test registers itself."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        pool: str = "",
        slots: int = 1,
        name: str = "",
        labels: dict[str, str] | None = None,
        register: bool = True,
        read: bool = True,
    ) -> None:
        self._out: queue.SimpleQueue[pb.WorkerMessage | None] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[pb.ServerMessage | grpc.RpcError | None] = queue.SimpleQueue()
        self.call = stubs.WorkersStub(channel).Work(iter(self._out.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._ended: tuple[grpc.StatusCode, str] | None = None
        self.registered: pb.Registered | None = None
        if register:
            self.register(pool=pool, slots=slots, worker_name=name, labels=labels or {})
        if read:
            self._reader.start()
            if register:
                self.registered = self.receive("registered")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the stream in order: what was sent is heard, and nothing of it is left for the next test."""
        if error is None and self._reader.ident:
            self.half_close()
            self._reader.join(GOODBYE)
        self.leave()

    # --- out

    def send(self, **message: Any) -> None:
        """`send(heartbeat=pb.Heartbeat(lease=1))`."""
        self._out.put(pb.WorkerMessage(**message))

    def register(self, protocol_version: int = VERSION, **fields: Any) -> None:
        self.send(register=pb.Register(protocol_version=protocol_version, **fields))

    def heartbeat(self, lease: int) -> None:
        self.send(heartbeat=pb.Heartbeat(lease=lease))

    def complete(self, lease: int, output: bytes = b"", content_type: str = "") -> None:
        self.send(complete=pb.Complete(lease=lease, output=output, content_type=content_type))

    def fail(self, lease: int, message: str = "", permanent: bool = False, retry_after: float | None = None) -> None:
        self.send(fail=pb.Fail(lease=lease, message=message, permanent=permanent, retry_after_s=retry_after))

    def nack(self, lease: int, reason: str = "") -> None:
        self.send(nack=pb.Nack(lease=lease, reason=reason))

    def cancelled(self, lease: int) -> None:
        self.send(cancelled=pb.Cancelled(lease=lease))

    def set_slots(self, slots: int) -> None:
        self.send(set_slots=pb.SetSlots(slots=slots))

    def half_close(self) -> None:
        """Say that nothing more will come; the server's side stays open."""
        self._out.put(None)

    def leave(self) -> None:
        """Break the stream off, as a crash would."""
        self.call.cancel()
        self._out.put(None)
        if self._reader.ident:
            self._reader.join(HANG)

    # --- in

    def receive(self, kind: str, bound: float = HANG) -> Any:
        """The next message, which must be of that kind."""
        found = self.next(bound)
        assert found is not None, f"{kind} was expected, but the stream ended: {self._ended}"
        assert found.WhichOneof("msg") == kind, f"{kind} was expected, found {found}"
        return getattr(found, kind)

    def lease(self, bound: float = HANG) -> pb.Lease:
        lease: pb.Lease = self.receive("lease", bound)
        return lease

    def next(self, bound: float = HANG) -> pb.ServerMessage | None:
        """The next message, whatever it is; None at the end of the stream."""
        try:
            found = self._in.get(timeout=bound)
        except queue.Empty:
            raise AssertionError(f"the worker got nothing within {bound} s") from None
        return found if isinstance(found, pb.ServerMessage) else None

    def silent(self) -> bool:
        """True while nothing came that was not received."""
        return self._in.empty()

    def ended(self, bound: float = HANG) -> tuple[grpc.StatusCode, str]:
        """Status and message of the end, which must be the next thing that comes."""
        found = self.next(bound)
        assert found is None, f"the stream did not end, it brought {found}"
        assert self._ended is not None
        return self._ended

    def _read(self) -> None:
        try:
            for message in self.call:
                self._in.put(message)
            self._ended = (grpc.StatusCode.OK, "")
        except grpc.RpcError as error:
            self._ended = (error.code(), error.details())
        self._in.put(None)


def echo(lease: pb.Lease) -> dict[str, Any]:
    """The handler that gives the payload back."""
    return {"complete": pb.Complete(lease=lease.lease, output=lease.payload, content_type=lease.content_type)}


@contextmanager
def serving(channel: grpc.Channel, handler: Handler = echo, *, slots: int = 8, **fields: Any) -> Iterator[Worker]:
    """A worker that answers every lease with what the handler says, in a thread of its own."""
    with Worker(channel, slots=slots, **fields) as worker:

        def run() -> None:
            while (message := worker.next(bound=3_600)) is not None:
                if message.WhichOneof("msg") == "lease":
                    worker.send(**handler(message.lease))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield worker
        worker.leave()
        thread.join(HANG)
