"""Whatever a peer sends to the whole server side of a connection: it never raises, keeps its bounds, answers each call.

The first byte of an input says how the rest is cut and what the service does. Each call that the service was told of
ends once: with its answer, or because the peer gave it up. When the peer has opened its windows in the end, each
stream that was answered has ended on the wire, with whole messages. How the bytes were cut changes nothing of that.
"""

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from hpack import Decoder  # noqa: E402

from cronoq_sansio import limits as fixed  # noqa: E402
from cronoq_sansio.clock import SECOND  # noqa: E402
from cronoq_sansio.errors import Code, Rejection  # noqa: E402
from cronoq_sansio.service import messages as service  # noqa: E402
from cronoq_sansio.service.access import authenticate  # noqa: E402
from cronoq_sansio.settings import LimitSettings  # noqa: E402
from cronoq_sansio.wire.grpc import GrpcServer  # noqa: E402
from cronoq_sansio.wire.grpc_call import QuickCall  # noqa: E402
from fuzz.bounds import bounded  # noqa: E402
from fuzz.engine import main  # noqa: E402
from fuzz.frames import cut  # noqa: E402
from fuzz.frames import mutate_behind_mode as mutate  # noqa: E402
from tests.wire import raw  # noqa: E402
from tests.wire.patience import forgive  # noqa: E402

LIMITS = LimitSettings(max_concurrent_streams=8, max_message_bytes=20_000)
MANY = LimitSettings(max_concurrent_streams=500, max_message_bytes=20_000)
"""Where the order of reading and answering must not decide which stream is one too many."""
CUTS = (1 << 30, 1, 7, 9, 64, 1_000)
LATER, LONG, REFUSE, WRITE = 0x10, 0x20, 0x40, 0x80  #: bits of the mode
REFUSED = Rejection(Code.NOT_FOUND, "no such thing: " + "ä" * 50)
MAX_WINDOW = (1 << 31) - 1
ENOUGH = 1 << 20  #: bytes of a window that need not be opened for what the service answers


class Service:
    """Answers what comes, at once or in the end, and knows what is open."""

    def __init__(self, limits: LimitSettings, mode: int) -> None:
        self.server = GrpcServer(limits, 0, authenticate)
        self.mode = mode
        self.calls: dict[int, Any] = {}
        self.ids: dict[Any, int] = {}
        self.workers: dict[int, Any] = {}
        self.heard: dict[int, list[Any]] = {}
        """What each stream has asked for, or said."""
        self.given_up: set[int] = set()
        self.written = b""

    def handle(self, events: list[Any]) -> None:
        """What the server was told; of several looks that wait the first one has its turn."""
        if len(self.server.looks.waiting) > 1:
            events = [*events, *self.server.take_look()]
        for event in events:
            if isinstance(event, service.CallReceived):
                stream_id = self._stream(event.call)
                self.heard[stream_id] = [event.request]
                self.calls[stream_id] = event
                if not self.mode & LATER:
                    self.answer(stream_id)
            elif isinstance(event, service.CallEnded):
                stream_id = self.ids[event.call]
                assert stream_id in self.heard and stream_id not in self.given_up
                self.given_up.add(stream_id)  # it may have been answered since the read that brought both
                self.calls.pop(stream_id, None)
            elif isinstance(event, service.WorkerConnected):
                stream_id = self._stream(event.stream)
                self.heard[stream_id] = []
                self.workers[stream_id] = event.stream
            elif isinstance(event, service.WorkerSent):
                self._on_message(event)
            else:
                assert isinstance(event, service.WorkerGone)
                assert self.workers.pop(event.stream.sink.id) is event.stream

    def _stream(self, call: Any) -> int:
        stream_id: int = call.id if isinstance(call, QuickCall) else call.sink.id
        assert stream_id not in self.heard
        self.ids[call] = stream_id
        return stream_id

    def _on_message(self, event: service.WorkerSent) -> None:
        worker: Any = event.stream
        stream_id = worker.sink.id
        assert self.workers[stream_id] is worker
        self.heard[stream_id].append(event.message)
        if not self.mode & LATER:
            worker.max_queued = 100
            worker.sink.send(service.Registered(1, SECOND, 1, 20_000))

    def answer(self, stream_id: int) -> None:
        """Of one call."""
        event = self.calls.pop(stream_id)
        sink = event.call.sink
        if sink is None:
            return
        size = 15_000 if self.mode & LONG else 10
        if isinstance(event.request, service.Watch):
            sink.start()
            for number in range(3):
                sink.send_event(service.StatusEvent(number, "default", "", 6, 1, 0, "m" * (size // 3)))
            sink.reject(REFUSED)
        elif self.mode & REFUSE or not isinstance(event.request, service.Submit):
            sink.reject(REFUSED)
        else:
            sink.reply(service.SubmitReply(7, False, service.TaskResult(7, 6, bytes(size), "", "")))

    def may_go_on(self) -> bool:
        """Whether the peer may send any frame next."""
        http2 = self.server.http2
        return not http2.closed and http2._settled and not http2._block_stream and not http2._buffer and not http2._skip

    def close(self) -> None:
        """Answer what is open, let the peer open its windows, and take what there is."""
        while self.server.looks.waiting:
            self.handle(self.server.take_look())
        assert self.calls.keys() | self.workers.keys() <= self.server.calls.keys() | self.server._streams.keys()
        for stream_id in list(self.calls):
            self.answer(stream_id)
        for worker in self.workers.values():
            worker.sink.close(None)
        self.workers.clear()
        http2 = self.server.http2
        if self.may_go_on():
            windows = {key: stream.send_window for key, stream in http2._streams.items()}
            http2._floods.sent += 100
            for key, window in (*windows.items(), (0, http2._send_window)):
                if window < ENOUGH:
                    increment = min(MAX_WINDOW, MAX_WINDOW - window).to_bytes(4, "big")
                    self.handle(self.server.receive(raw.frame(raw.WINDOW_UPDATE, 0, key, increment), self.server._now))
            self.take()
            assert not self.server.calls and not self.server._encoded
            assert not any(stream.unsent or stream.closing for stream in self.server._streams.values())
        self.server.finish()
        self.handle(self.server.take_events())
        self.take()
        assert not self.server.wants_write() and self.server.receive(b"more", 0) == []
        self.handle(self.server.receive_eof(self.server._now))
        assert not self.calls and not self.workers

    def take(self) -> None:
        """What goes out now."""
        while self.server.wants_write():
            data = self.server.take(1 << 14)
            self.written += data
            if not data:
                break
        self.handle(self.server.take_events())


def converse(limits: LimitSettings, mode: int, size: int, data: bytes) -> tuple[Service, bool]:
    """Say it all; and whether the peer could open its windows in the end."""
    found = Service(limits, mode)
    server, now = found.server, 0
    for at in range(0, len(data), size):
        forgive(server.http2)
        found.handle(server.receive(data[at : at + size], now))
        if mode & WRITE:
            now += SECOND // 10
            found.take()
            armed, due = min(server.http2.due, server.stalls.due), server.next_timeout()
            assert server.closed or armed <= (due or 0), "a timer that nobody would have asked for"
            if due is not None and due <= now:
                found.handle(server.handle_timer(now))
        if size > 9 or at % 32 == 0:
            within(server, limits)
    alive = found.may_go_on()
    found.close()
    return found, alive


def within(server: GrpcServer, limits: LimitSettings) -> None:
    """What a peer can make the gRPC layer keep."""
    streams = limits.max_concurrent_streams
    bounded(server.http2, streams)
    assert len(server._streams) + len(server.calls) <= streams
    assert server.looks.waiting == {key: stream for key, stream in server._streams.items() if stream.waits}
    assert server.http2.unsent <= fixed.MAX_UNSENT + fixed.MAX_PROMPT + 20_000
    assert server._credit.unfinished == sum(stream.unfinished for stream in server._streams.values())
    assert server._credit.unfinished <= streams * fixed.INITIAL_WINDOW
    assert server._encoded == sum(len(stream.partial or b"") for stream in server._streams.values())
    assert len(server.ready) <= 2 * streams
    for waiting in (server._blocked, server.starved, server._narrow, server._crowded, server._credit.withheld):
        assert waiting.keys() <= server._streams.keys()


def read(written: bytes) -> dict[int, list[Any]]:
    """By stream what was written: header lists, and content joined between them; `None` is an end, a number a reset."""
    decoder, found = Decoder(), {}
    if written.startswith(b"HTTP/1.1 505 "):  # to something that looks like HTTP/1.1, and alone
        assert written.endswith(b"server.http_addr.\n")
        return found
    for kind, flags, stream_id, body in raw.cut_frames(written):
        if kind in (raw.DATA, raw.HEADERS):
            parts: list[Any] = found.setdefault(stream_id, [])
            assert None not in parts and not any(isinstance(part, int) for part in parts), "nothing follows the end"
            if kind == raw.HEADERS:
                parts.append(decoder.decode(body, raw=True))
            elif parts and isinstance(parts[-1], bytes):
                parts[-1] += body
            else:
                parts.append(body)
            if flags & raw.END_STREAM:
                parts.append(None)
        elif kind == raw.RST_STREAM:
            found.setdefault(stream_id, []).append(int.from_bytes(body, "big"))
    return found


def whole(content: bytes) -> bool:
    """Whether it is whole messages."""
    while content:
        size = 5 + int.from_bytes(content[1:5], "big")
        if content[0] or size > len(content):
            return False
        content = content[size:]
    return True


def resets(said: bytes) -> set[int]:
    """The streams that the peer has reset."""
    frames = cut(said[len(raw.PREFACE) :])
    return {int.from_bytes(frame[5:9], "big") & MAX_WINDOW for frame in frames if frame[3:4] == b"\3"}


def check(data: bytes) -> None:
    """The invariant."""
    mode, said = (data[0], data[1:]) if data else (0, b"")
    if said.startswith(raw.PREFACE):  # the last frame is left out where it is not whole
        frames = cut(said[len(raw.PREFACE) :])
        if frames and len(frames[-1]) < 9 + int.from_bytes(frames[-1][:3], "big"):
            del frames[-1]
        said = raw.PREFACE + b"".join(frames)
    size = CUTS[mode % len(CUTS)]
    found, alive = converse(LIMITS, mode, size, said)
    for stream_id, parts in read(found.written).items():
        if alive and stream_id in found.heard.keys() - resets(said):
            assert parts[-1] is None or isinstance(parts[-1], int), stream_id
        if parts[-1] is None and stream_id in found.heard:
            assert all(whole(part) for part in parts if isinstance(part, bytes))
    if not mode & WRITE:
        compare(mode, size, said)


def compare(mode: int, size: int, said: bytes) -> None:
    """The same in one piece: what was heard, and written on each stream that was not reset."""
    (one, first), (other, second) = converse(MANY, mode, size, said), converse(MANY, mode, CUTS[0], said)
    if not first or not second:
        return
    ours, theirs = read(one.written), read(other.written)
    for stream_id in (ours.keys() | theirs.keys()) - resets(said):
        mine, same = ours.get(stream_id), theirs.get(stream_id)
        if not any(isinstance(part, int) for part in (*(mine or ()), *(same or ()))):
            assert mine == same, stream_id
            assert one.heard.get(stream_id) == other.heard.get(stream_id)


if __name__ == "__main__":
    sys.exit(main(check, __file__, mutate))
