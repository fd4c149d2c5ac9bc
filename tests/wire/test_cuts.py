"""However the network cuts the bytes, the same events come out and the peer sees the same answers."""

import gzip
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import (
    CallEnded,
    CallReceived,
    Heartbeat,
    Registered,
    WorkerConnected,
    WorkerGone,
    WorkerSent,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc import GrpcServer
from tests.wire import raw
from tests.wire.patience import forgive
from tests.wire.peer import START

LIMITS = LimitSettings(max_message_bytes=4_096, max_concurrent_streams=50)
WORK = "/cronoq.v1.Workers/Work"


class Script:
    """What a client sends, well-behaved or not: frames of up to three kinds of stream, each step drawn."""

    def __init__(self) -> None:
        self.data = raw.HELLO
        self.next = 1
        self.open: list[int] = []

    def start(self, path: str, end: bool, split: bool, *extra: tuple[str, str]) -> None:
        block = raw.block(*extra, path=path)
        flags = raw.END_STREAM if end else 0
        if split:
            half = len(block) // 2
            self.data += raw.frame(raw.HEADERS, flags, self.next, block[:half])
            self.data += raw.frame(raw.CONTINUATION, raw.END_HEADERS, self.next, block[half:])
        else:
            self.data += raw.frame(raw.HEADERS, flags | raw.END_HEADERS, self.next, block)
        if not end:
            self.open.append(self.next)
        self.next += 2

    def send(self, which: int, body: bytes, end: bool, padded: bool) -> None:
        if not self.open:
            return
        stream_id = self.open[which % len(self.open)]
        if end:
            self.open.remove(stream_id)
        flags = (raw.END_STREAM if end else 0) | (raw.PADDED if padded else 0)
        self.data += raw.frame(raw.DATA, flags, stream_id, b"\3" + body + b"\0\0\0" if padded else body)

    def reset(self, which: int) -> None:
        if self.open:
            self.data += raw.frame(raw.RST_STREAM, 0, self.open.pop(which % len(self.open)), b"\0\0\0\x08")


def zipped(data: bytes) -> bytes:
    packed = gzip.compress(data, mtime=0)
    return b"\1" + len(packed).to_bytes(4, "big") + packed


HEARTBEAT = frame(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=7)).SerializeToString())
REGISTER = frame(pb.WorkerMessage(register=pb.Register(protocol_version=3)).SerializeToString())
TASK = pb.SubmitRequest(task=pb.TaskSpec(key="k", payload=b"p" * 50)).SerializeToString()
BODIES = [
    b"",
    frame(TASK),
    zipped(TASK),
    frame(b"\xff"),
    frame(b""),
    HEARTBEAT,
    HEARTBEAT * 3,
    REGISTER,
    REGISTER[:4],
    REGISTER[4:],
    (5_000).to_bytes(5, "big"),
    b"\7\0\0\0\0",
    frame(TASK)[:20],
    frame(TASK)[20:],
]
PATHS = ["/cronoq.v1.Tasks/Submit", WORK, "/cronoq.v1.Tasks/Watch", "/nope"]
EXTRAS: list[tuple[tuple[str, str], ...]] = [
    (),
    (("grpc-encoding", "gzip"),),
    (("grpc-encoding", "br"),),
    (("grpc-timeout", "1S"),),
    (("grpc-timeout", "x"),),
]
OTHERS = [
    raw.frame(raw.PING, 0, 0, b"8 bytes."),
    raw.frame(raw.PING, raw.ACK, 0, b"8 bytes."),
    raw.frame(raw.SETTINGS, raw.ACK, 0),
    raw.settings(initial_window_size=70_000, header_table_size=100),
    raw.frame(raw.WINDOW_UPDATE, 0, 0, b"\0\0\1\0"),
    raw.frame(raw.PRIORITY, 0, 1, b"\0\0\0\0\1"),
    raw.frame(0xEE, 1, 5, b"unknown"),
]
BREAKS = [
    raw.frame(raw.GOAWAY, 0, 0, b"\0" * 8),
    raw.frame(raw.DATA, 0, 99, b"idle"),
    raw.frame(raw.HEADERS, 4, 2, b""),
    b"\xff" * 9,
    raw.frame(raw.HEADERS, 4, 101, b"\xff\xff\xff"),
]

steps = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(PATHS), st.booleans(), st.booleans(), st.sampled_from(EXTRAS)),
    st.tuples(st.just("send"), st.integers(0, 5), st.sampled_from(BODIES), st.booleans(), st.booleans()),
    st.tuples(st.just("reset"), st.integers(0, 5)),
    st.tuples(st.just("other"), st.sampled_from(OTHERS)),
)


def script_of(drawn: list[Any], end: bytes) -> bytes:
    script = Script()
    script.start(WORK, False, False)
    script.send(0, REGISTER, False, False)
    for name, *arguments in drawn:
        if name == "start":
            path, ended, split, extra = arguments
            script.start(path, ended and path != WORK, split, *extra)
        elif name == "send":
            script.send(*arguments)
        elif name == "reset":
            script.reset(*arguments)
        else:
            script.data += arguments[0]
    return script.data + end


class Run:
    """A server, and a service that knows its calls by the order in which they came; it may answer at once."""

    def __init__(self, answers: bool) -> None:
        self.server = GrpcServer(LIMITS, START, authenticate)
        self.answers = answers
        self.told: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.keep: list[Any] = []
        self.written = b""

    def number(self, thing: Any) -> int:
        if id(thing) not in self.numbers:
            self.numbers[id(thing)] = len(self.numbers)
            self.keep.append(thing)
        return self.numbers[id(thing)]

    def receive(self, data: bytes) -> None:
        forgive(self.server.http2)
        for event in self.server.receive(data, START):
            if isinstance(event, CallReceived):
                self.told.append(("call", self.number(event.call), event.request, event.deadline))
                if self.answers:
                    event.call.sink.reply(Submitted(1, False))  # type: ignore[attr-defined]
            elif isinstance(event, CallEnded):
                self.told.append(("ended", self.number(event.call)))
            elif isinstance(event, WorkerConnected):
                self.told.append(("connected", self.number(event.stream)))
                event.stream.max_queued = 1_000
            elif isinstance(event, WorkerSent):
                self.told.append(("sent", self.number(event.stream), event.message))
                if self.answers and isinstance(event.message, Heartbeat):
                    event.stream.sink.send(Registered(1, 1, 1, 1))  # type: ignore[attr-defined]
            elif isinstance(event, WorkerGone):
                self.told.append(("gone", self.number(event.stream), event.why))
        assert self.server.take_events() == []
        while self.server.wants_write():
            self.written += self.server.take(1 << 20)

    def seen(self) -> dict[int, list[Any]]:
        """What the peer got, stream by stream: DATA joined, header blocks decoded, window updates left out.

        Blocks are decoded in the order in which they were sent, over all streams, as the peer does.
        """
        from hpack import Decoder

        decoder = Decoder()
        decoder.max_allowed_table_size = 4_096
        found: dict[int, list[Any]] = {}
        for kind, flags, stream_id, body in raw.cut_frames(self.written):
            said = found.setdefault(stream_id, [])
            if kind == raw.HEADERS:
                said.append((list(decoder.decode(body, raw=True)), flags & raw.END_STREAM))
            elif kind == raw.DATA and said and isinstance(said[-1], bytes):
                said[-1] += body
            elif kind == raw.DATA:
                said.append(body)
            elif kind != raw.WINDOW_UPDATE:
                said.append((kind, flags, body))
        return found


def run(data: bytes, cuts: list[int], *, answers: bool = False) -> Run:
    done = Run(answers)
    edges = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    for start, end in zip(edges, edges[1:], strict=False):
        done.receive(data[start:end])
    return done


def without_resets(seen: dict[int, list[Any]], data: bytes) -> dict[int, list[Any]]:
    """An answer that was decided is not sent any more when the peer's reset comes with the same read."""
    reset = {stream_id for kind, _, stream_id, _ in raw.cut_frames(data[len(raw.PREFACE) :]) if kind == raw.RST_STREAM}
    return {stream_id: said for stream_id, said in seen.items() if stream_id not in reset}


@given(
    drawn=st.lists(steps, max_size=14),
    end=st.sampled_from([b"", *BREAKS]),
    cuts=st.lists(st.integers(1, 2_500), max_size=20),
)
def test_any_cut_tells_and_refuses_the_same(drawn: list[Any], end: bytes, cuts: list[int]) -> None:
    data = script_of(drawn, end)
    whole, pieces, bytewise = run(data, []), run(data, cuts), run(data, list(range(1, len(data))))
    for other in (pieces, bytewise):
        assert other.told == whole.told
        assert other.server.closed is whole.server.closed
    if not whole.server.closed and end != BREAKS[3]:
        expected = without_resets(whole.seen(), data)
        assert without_resets(pieces.seen(), data) == expected
        assert without_resets(bytewise.seen(), data) == expected


conversation = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 60), st.booleans(), st.booleans()),
        st.tuples(st.just("beat"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("other"), st.sampled_from(OTHERS)),
    ),
    max_size=10,
)


@given(drawn=conversation, cuts=st.lists(st.integers(1, 2_500), max_size=20))
def test_any_cut_answers_the_same(drawn: list[Any], cuts: list[int]) -> None:
    script = Script()
    script.start(WORK, False, False)
    script.send(0, REGISTER, False, False)
    for name, *arguments in drawn:
        if name == "call":
            at, split, alone = arguments
            script.start(PATHS[0], False, split)
            script.send(1, BODIES[1][:at], False, split)
            script.send(1, BODIES[1][at:], not alone, False)
            if alone:
                script.send(1, b"", True, False)
        elif name == "beat":
            script.send(0, HEARTBEAT * arguments[0], False, arguments[1])
        else:
            script.data += arguments[0]
    data = script.data
    whole = run(data, [], answers=True)
    assert len([item for item in whole.told if item[0] == "call"]) == len([item for item in drawn if item[0] == "call"])
    for other in (run(data, cuts, answers=True), run(data, list(range(1, len(data))), answers=True)):
        assert other.told == whole.told
        assert other.seen() == whole.seen()


@given(data=st.binary(max_size=300), hello=st.booleans(), cuts=st.lists(st.integers(1, 300), max_size=8))
def test_garbage_never_raises_and_is_cut_the_same_way(data: bytes, hello: bool, cuts: list[int]) -> None:
    data = (raw.HELLO if hello else b"") + data
    whole, pieces = run(data, []), run(data, cuts)
    assert whole.told == pieces.told and whole.server.closed is pieces.server.closed


frames = st.builds(
    lambda kind, flags, stream_id, body: raw.frame(kind, flags, stream_id, body),
    st.integers(0, 10),
    st.integers(0, 255),
    st.integers(0, 5),
    st.one_of(st.binary(max_size=40), st.just(raw.block()), st.sampled_from(BODIES)),
)


@given(st.lists(frames, max_size=12))
def test_random_frames_never_raise(sent: list[bytes]) -> None:
    done = run(raw.HELLO + b"".join(sent), [])
    done.server.receive_eof(START)
    while (due := done.server.next_timeout()) is not None:
        done.server.handle_timer(due)
