"""A gRPC client on a memory transport, for whole servers in one process: unary calls and one worker stream."""

import gzip
from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from cronoq._runtime.serve import Server
from cronoq._runtime.transport import MemoryTransport, memory_pair
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame


class Stream:
    """What came on one stream."""

    def __init__(self) -> None:
        self.data = b""
        self.fields: dict[str, str] = {}
        self.ended = False
        self.changed = trio.Event()

    @property
    def status(self) -> GrpcStatus:
        return GrpcStatus(int(self.fields["grpc-status"]))

    def messages(self, kind: Any) -> list[Any]:
        found, rest = [], self.data
        while rest:
            size = int.from_bytes(rest[1:5], "big")
            found.append(kind.FromString(rest[5 : 5 + size]))
            rest = rest[5 + size :]
        return found


class Caller:
    """One client connection."""

    def __init__(self, server: Server, nursery: trio.Nursery) -> None:
        theirs, self.transport = memory_pair()
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.streams: dict[int, Stream] = {}
        self.goaways: list[int] = []
        self.closed = trio.Event()
        server.converse(theirs, "caller")
        self.h2.initiate_connection()
        self._flush()
        nursery.start_soon(self._read, self.transport)

    async def call(self, method: str, request: Any, reply: Any) -> Any:
        """The reply, or the `Stream` of a call that was refused."""
        stream = self.start(method, request)
        await self.until(stream, lambda: stream.ended)
        if stream.fields.get("grpc-status") != "0":
            return stream
        return stream.messages(reply)[0]

    def start(self, method: str, request: Any, *, compressed: bool = False) -> Stream:
        """Begin a unary call."""
        extra = [("grpc-encoding", "gzip")] if compressed else []
        number, stream = self._open(f"/cronoq.v1.{method}", *extra)
        message = request.SerializeToString()
        body = b"\1" + frame(gzip.compress(message))[1:] if compressed else frame(message)
        self.h2.send_data(number, body, end_stream=True)
        self._flush()
        return stream

    async def submit(self, **fields: Any) -> Any:
        return await self.call("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec(**fields)), pb.SubmitResponse)

    async def wait(self, task_id: int) -> Any:
        return await self.call("Tasks/Wait", pb.WaitRequest(task=pb.TaskRef(id=task_id)), pb.TaskResult)

    async def work(self, slots: int, labels: dict[str, str] | None = None) -> "Worker":
        """A registered worker."""
        number, stream = self._open("/cronoq.v1.Workers/Work")
        worker = Worker(self, number, stream)
        register = pb.Register(
            pool="default", slots=slots, worker_name="tester", protocol_version=3, labels=labels or {}
        )
        worker.say(register=register)
        await worker.next("registered")
        return worker

    async def until(self, stream: Stream, condition: Any) -> None:
        while not condition():
            stream.changed = trio.Event()
            await stream.changed.wait()

    def _open(self, path: str, *extra: tuple[str, str]) -> tuple[int, Stream]:
        number = self.h2.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        self.h2.send_headers(number, [*fields, ("te", "trailers"), ("content-type", "application/grpc"), *extra])
        stream = self.streams[number] = Stream()
        return number, stream

    def _flush(self) -> None:
        data = self.h2.data_to_send()
        try:
            assert self.transport.try_send(data) == len(data)
        except BrokenPipeError:
            pass  # the server closed first; the reader sees the end

    async def _read(self, transport: MemoryTransport) -> None:
        """Frame by frame, because of what `_see` does about GOAWAY."""
        rest = b""
        while True:
            await transport.wait_readable()
            data = transport.try_receive()
            if data is None:
                continue
            if not data:
                break
            rest += data
            while len(rest) >= 9 and len(rest) >= (size := 9 + int.from_bytes(rest[:3], "big")):
                for event in self.h2.receive_data(rest[:size]):
                    self._see(event)
                rest = rest[size:]
            self._flush()
        self.transport.close()
        self.closed.set()
        for stream in self.streams.values():
            stream.ended = True
            stream.changed.set()

    def _see(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.goaways.append(event.last_stream_id or 0)
            # h2 takes the first GOAWAY for the end; for everybody else the open streams go on (RFC 9113 section 6.8)
            self.h2.state_machine.state = ConnectionState.CLIENT_OPEN
        stream = self.streams.get(getattr(event, "stream_id", 0))
        if stream is None:
            return
        if isinstance(event, (ResponseReceived, TrailersReceived)):
            stream.fields.update(event.headers)  # type: ignore[arg-type]
        elif isinstance(event, DataReceived):
            stream.data += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, (StreamEnded, StreamReset)):
            stream.ended = True
        stream.changed.set()


class Worker:
    """A worker stream."""

    def __init__(self, caller: Caller, number: int, stream: Stream) -> None:
        self.caller = caller
        self.number = number
        self.stream = stream
        self._read = 0

    def say(self, **fields: Any) -> None:
        message = pb.WorkerMessage(**fields)
        self.caller.h2.send_data(self.number, frame(message.SerializeToString()))
        self.caller._flush()

    async def next(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        await self.caller.until(self.stream, lambda: len(self._messages()) > self._read or self.stream.ended)
        message = self._messages()[self._read]
        self._read += 1
        assert message.WhichOneof("msg") == kind, message
        return getattr(message, kind)

    def _messages(self) -> list[Any]:
        return self.stream.messages(pb.ServerMessage)
