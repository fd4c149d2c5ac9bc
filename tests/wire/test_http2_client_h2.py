"""Our HTTP/2 client against h2's server role in random interleavings: nothing is lost, nothing changes its order.

Bytes are carried in pieces of any size, both sides give credit late, and the server changes its windows while streams
are open, below zero too.
"""

import random

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.http2_client import Http2Client
from cronoq_sansio.wire.http2_events import Answer, Data, Failed, ResetByServer, Response, Trailers
from tests.wire.http2_peer import START

FIELDS = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"host"))
WINDOWS = (0, 1, 100, 65_535, 200_000)
FRAMES = (16_384, 20_000, 1 << 20)
PIECES = (1, 5, 9, 100, 4_000, 1 << 20, 1 << 20, 1 << 20)
SIZES = (0, 0, 1, 50, 300, 16_384, 16_385, 90_000)
CHUNKS = (1, 30, 1_000, 16_384, 16_384, 16_384)


def body(stream_id: int, size: int, mark: bytes) -> bytes:
    """Content in which nothing can be swapped unnoticed."""
    return b"".join(b"%s%d.%d," % (mark, stream_id, at) for at in range(size // 5 + 1))[:size]


class Server:
    """h2, answering each stream once its request has ended."""

    def __init__(self, frame: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.h2.local_settings = Settings(client=False, initial_values={SettingCodes.MAX_FRAME_SIZE: frame})
        self.h2.max_inbound_frame_size = frame
        self.h2.initiate_connection()
        self.got: dict[int, bytes] = {}
        self.answers: dict[int, bytes] = {}
        self.to_send: dict[int, bytes] = {}
        self.owed: list[tuple[int, int]] = []
        self.broken: list[int] = []
        self.settled = False
        """h2 takes the acknowledgement of its first SETTINGS for that of a change that was told before it."""

    def receive(self, data: bytes, draw: random.Random) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                assert event.stream_id is not None
                self.got[event.stream_id] = b""
            elif isinstance(event, DataReceived):
                assert event.stream_id is not None and event.data is not None
                self.got[event.stream_id] += event.data
                self.owed.append((event.stream_id, event.flow_controlled_length or 0))
            elif isinstance(event, StreamEnded):
                assert event.stream_id is not None
                self.h2.send_headers(event.stream_id, [(b":status", b"200"), (b"content-type", b"application/grpc")])
                answer = body(event.stream_id, draw.choice(SIZES), b"s")
                self.answers[event.stream_id] = self.to_send[event.stream_id] = answer
                if draw.random() < 0.5:
                    self.send(event.stream_id, 16_384)  # at once: it may be recognised whole
            elif isinstance(event, SettingsAcknowledged):
                self.settled = True
            elif isinstance(event, StreamReset):
                assert event.stream_id is not None
                self.broken.append(event.stream_id)
                self.to_send.pop(event.stream_id, None)

    def send(self, stream_id: int, most: int) -> None:
        rest = self.to_send[stream_id]
        size = min(most, len(rest), self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
        if size > 0:
            self.h2.send_data(stream_id, rest[:size])
            self.to_send[stream_id] = rest = rest[size:]
        if not rest:
            self.h2.send_headers(stream_id, [(b"grpc-status", b"0")], end_stream=True)
            del self.to_send[stream_id]

    def credit(self) -> None:
        stream_id, size = self.owed.pop(0)
        self.h2.acknowledge_received_data(size, stream_id)

    def change(self, window: int) -> None:
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})


class Play:
    def __init__(self, draw: random.Random, streams: int) -> None:
        self.draw = draw
        self.client = Http2Client(
            ping_interval=20 * SECOND, ping_timeout=5 * SECOND, settings_timeout=3 * SECOND, now=START
        )
        self.server = Server(draw.choice(FRAMES))
        self.left = streams
        self.asked: dict[int, bytes] = {}
        self.to_send: dict[int, bytes] = {}
        self.got: dict[int, bytes] = {}
        self.seen: dict[int, list[type]] = {}
        self.owed: list[tuple[int, int]] = []
        self.there, self.back = b"", b""
        self.changes = 0

    # --- one step each

    def open(self) -> None:
        if not self.left or not self.client.may_open():
            return
        self.left -= 1
        content = body(self.left, self.draw.choice(SIZES), b"c")
        stream_id = 0
        if self.draw.random() < 0.5:
            stream_id = self.client.ask(FIELDS, content, START)
        if not stream_id:
            stream_id = self.client.open(FIELDS, START)
            self.to_send[stream_id] = content
        self.asked[stream_id], self.got[stream_id], self.seen[stream_id] = content, b"", []

    def send(self) -> None:
        for stream_id in self.draw.sample(list(self.to_send), min(len(self.to_send), 3)):
            rest = self.to_send[stream_id]
            size = min(self.draw.choice(CHUNKS), len(rest), max(self.client.sendable(stream_id), 0))
            if size or not rest:
                end = size == len(rest)
                self.client.send_data(stream_id, rest[:size], end=end)
                self.to_send[stream_id] = rest[size:]
                if end:
                    del self.to_send[stream_id]

    def carry_there(self) -> None:
        self.there += self.client.take(self.draw.choice(PIECES))
        size = self.draw.choice(PIECES)
        piece, self.there = self.there[:size], self.there[size:]
        if piece:
            self.server.receive(piece, self.draw)

    def carry_back(self) -> None:
        self.back += self.server.h2.data_to_send()
        size = self.draw.choice(PIECES)
        piece, self.back = self.back[:size], self.back[size:]
        for event in self.client.receive(piece, START):
            assert not isinstance(event, (Failed, ResetByServer)), event
            if isinstance(event, (Response, Data, Trailers, Answer)):
                self.seen[event.stream_id].append(type(event))
            if isinstance(event, (Data, Answer)):
                self.got[event.stream_id] += event.data
            if isinstance(event, Data):
                self.owed.append((event.stream_id, event.size))

    def answer(self) -> None:
        if self.server.to_send:
            self.server.send(self.draw.choice(list(self.server.to_send)), self.draw.choice(CHUNKS))

    def credit(self) -> None:
        if self.owed:
            self.client.credit(*self.owed.pop(0))
        if self.server.owed:
            self.server.credit()

    def change(self) -> None:
        if self.server.settled and self.changes < 10:  # more would be a flood
            self.changes += 1
            self.server.change(self.draw.choice(WINDOWS))

    def step(self) -> None:
        steps = (self.open, self.send, self.carry_there, self.carry_back, self.answer, self.credit)
        self.draw.choice((*steps, *steps, *steps, *steps, self.change))()

    def finish(self) -> None:
        """Let everything through that still waits."""
        opened = False
        for _ in range(100_000):
            if self.server.settled and not opened:
                opened = True
                self.server.change(1 << 20)
            for step in (self.open, self.send, self.carry_there, self.carry_back, self.answer, self.credit):
                step()
            waiting = self.left or self.to_send or self.there or self.back or self.server.to_send or self.owed
            ended = all(seen and seen[-1] in (Trailers, Answer) for seen in self.seen.values())
            if ended and not waiting and not self.client.wants_write():
                return
        raise AssertionError("something never came through")


@given(st.integers(0, 1 << 32), st.integers(1, 8), st.integers(0, 300))
def test_nothing_is_lost_and_nothing_changes_its_order(seed: int, streams: int, steps: int) -> None:
    play = Play(random.Random(seed), streams)
    for _ in range(steps):
        play.step()
    play.finish()
    assert len(play.asked) == streams and not play.server.broken and not play.client.closed
    assert play.server.got == play.asked and play.got == play.server.answers
    for seen in play.seen.values():
        assert seen == [Answer] or (seen[0] is Response and seen[-1] is Trailers and set(seen[1:-1]) <= {Data})
    assert play.client.next_timeout() is None, "no stream is left"


@pytest.mark.parametrize("seed", range(3))
def test_whole_answers_are_met_on_the_way(seed: int) -> None:
    play = Play(random.Random(seed), 60)
    play.finish()
    assert any(Answer in seen for seen in play.seen.values())
