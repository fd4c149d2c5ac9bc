"""A stream that is echoed: over bare TCP, and as one HTTP/2 stream between our two machines. Both ends run under Trio.

    python stream_echo.py serve KIND          prints its port, echoes until it is ended
    python stream_echo.py load KIND PORT MIB  sends so much in payloads of 64 KiB and reads it back; prints the seconds
                                              that passed, and its own on a processor

KIND is `plain` or `http2`. Both read up to `READ_SIZE` at a time and send while they receive. The machines are used as
the server and the client use them: what a read brings is handled, then everything there is to say is one write. At most
`AHEAD` bytes are on their way, in both kinds.
"""

import sys
import time
from collections import deque

import trio

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MESSAGE_WINDOW, READ_SIZE, WRITE_SIZE
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_events import Data, Failed, Request, Response
from cronoq_sansio.wire.http2_server import Http2Server

PAYLOAD = bytes(range(256)) * 256
AHEAD = MESSAGE_WINDOW
PORTION = AHEAD // 4
HOUR = 3_600 * SECOND
REQUEST = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/echo"), (b":authority", b"localhost"))
RESPONSE = ((b":status", b"200"),)


class Content:
    """Of a stream: what waits for its window, and what came and is not credited yet."""

    def __init__(self, machine: Http2Client | Http2Server) -> None:
        self._machine = machine
        self._waiting: deque[bytes] = deque()
        self._owed = 0
        self.stream_id = 0

    def put(self, data: bytes) -> None:
        """Send it, as far as the windows allow and in order."""
        machine, stream_id = self._machine, self.stream_id
        if not self._waiting and len(data) <= machine.sendable(stream_id):
            machine.send_data(stream_id, data)
            return
        self._waiting.append(data)
        self.flush()

    def took(self, size: int) -> None:
        """So much came; it is credited in portions, so that each costs no frame."""
        self._owed += size
        if self._owed >= PORTION:
            self._machine.credit(self.stream_id, self._owed)
            self._owed = 0

    def flush(self) -> None:
        """Send what the windows allow."""
        machine, waiting, stream_id = self._machine, self._waiting, self.stream_id
        while waiting and (room := machine.sendable(stream_id)) > 0:
            data = waiting.popleft()
            if len(data) > room:
                waiting.appendleft(data[room:])
                data = data[:room]
            machine.send_data(stream_id, data)


async def echo_plain(stream: trio.SocketStream) -> None:
    """Until the peer ends it."""
    while data := await stream.receive_some(READ_SIZE):
        await stream.send_all(data)


async def echo_http2(stream: trio.SocketStream) -> None:
    """Until the peer ends it."""
    machine = Http2Server(max_streams=1, ping_interval=HOUR, ping_timeout=HOUR, now=0)
    content = Content(machine)
    while data := await stream.receive_some(READ_SIZE):
        for event in machine.receive(data, time.monotonic_ns()):
            if type(event) is Data:
                content.put(event.data)
                content.took(event.size)
            elif type(event) is Request:
                content.stream_id = event.stream_id
                machine.send_headers(event.stream_id, RESPONSE)
                machine.credit(event.stream_id, AHEAD + PORTION)
            elif type(event) is Failed:
                raise RuntimeError(event.reason)
            else:
                content.flush()
        if machine.wants_write():
            await stream.send_all(machine.take(WRITE_SIZE))


async def load_plain(stream: trio.SocketStream, total: int) -> None:
    """Send `total` bytes and read them back."""
    echoed, moved = 0, trio.Event()

    async def send() -> None:
        nonlocal moved
        sent = 0
        while sent < total:
            if sent - echoed > AHEAD - len(PAYLOAD):
                moved = trio.Event()
                await moved.wait()
                continue
            await stream.send_all(PAYLOAD)
            sent += len(PAYLOAD)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while echoed < total:
            echoed += len(await stream.receive_some(READ_SIZE))
            moved.set()


async def load_http2(stream: trio.SocketStream, total: int) -> None:
    """Send `total` bytes in one stream and read them back."""
    machine = Http2Client(ping_interval=HOUR, ping_timeout=HOUR, settings_timeout=HOUR, now=0)
    content, sent, echoed, wake = Content(machine), 0, 0, trio.Event()

    async def write() -> None:
        nonlocal wake
        while True:
            while data := machine.take(WRITE_SIZE):
                await stream.send_all(data)
            wake = trio.Event()
            await wake.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while echoed < total:
            for event in machine.receive(await stream.receive_some(READ_SIZE), time.monotonic_ns()):
                if type(event) is Data:
                    echoed += event.size
                    content.took(event.size)
                elif type(event) is Failed:
                    raise RuntimeError(event.reason)
                elif type(event) is not Response:
                    content.flush()
            if not content.stream_id and machine.may_open():
                content.stream_id = machine.open(REQUEST, time.monotonic_ns())
                machine.credit(content.stream_id, PORTION)
            while content.stream_id and sent < total and sent - echoed <= AHEAD - len(PAYLOAD):
                content.put(PAYLOAD)
                sent += len(PAYLOAD)
            wake.set()
        nursery.cancel_scope.cancel()


async def serve(kind: str) -> None:
    """Echo whoever connects."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listener.socket.getsockname()[1], flush=True)
    await trio.serve_listeners(echo_plain if kind == "plain" else echo_http2, [listener])


async def load(kind: str, port: int, total: int) -> tuple[float, float]:
    """Seconds for `total` bytes, and those of this process on a processor."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    begun, used = time.perf_counter(), time.process_time()
    await (load_plain if kind == "plain" else load_http2)(stream, total)
    spent = time.perf_counter() - begun, time.process_time() - used
    await stream.aclose()
    return spent


def main() -> None:
    """Serve or load."""
    what, kind, *rest = sys.argv[1:]
    if what == "serve":
        trio.run(serve, kind)
    else:
        port, mib = map(int, rest)
        print(*trio.run(load, kind, port, mib << 20))


if __name__ == "__main__":
    main()
