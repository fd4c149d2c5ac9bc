"""Our two roles against each other, and each against h2, in random interleavings: nothing is lost, all in order.

Bytes are carried in pieces of any size, both sides give credit late and change the windows that they allow while
streams are open, below zero too; now and then one of them gives up a stream, and the others do not notice.
"""

import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio import limits
from cronoq_sansio.wire.http2_events import Answer
from tests.wire.http2_sides import (
    SIZES,
    WINDOWS,
    OurClient,
    OurServer,
    TheirClient,
    TheirServer,
    body,
)

PIECES = (1, 5, 9, 100, 4_000, 1 << 20, 1 << 20, 1 << 20)
CHUNKS = (1, 30, 1_000, 16_384, 16_384, 1 << 20)
CHANGES = 6  #: of each side, and two in the end; more would be a flood
NARROW = 80_000  #: a window of the connection that is used up and opened again
Client = OurClient | TheirClient
Server = OurServer | TheirServer
PAIRS: list[tuple[type[Client], type[Server]]] = [
    (OurClient, OurServer),
    (OurClient, TheirServer),
    (TheirClient, OurServer),
]


class Play:
    def __init__(self, pair: tuple[type[Client], type[Server]], draw: random.Random, streams: int) -> None:
        self.draw = draw
        self.client, self.server = pair[0](draw), pair[1](draw)
        self.left = streams
        self.asked: dict[int, bytes] = {}
        self.there, self.back = b"", b""
        self.changes: dict[object, int] = {}

    # --- one step each

    def open(self) -> None:
        if self.left and self.client.may_open():
            self.left -= 1
            content = body(self.left, self.draw.choice(SIZES), b"c")
            self.asked[self.client.open(content)] = content

    def send(self) -> None:
        self.draw.choice((self.client, self.server)).send(self.draw.choice(CHUNKS))

    def carry_there(self) -> None:
        self.there += self.client.take(self.draw.choice(PIECES))
        size = self.draw.choice(PIECES)
        piece, self.there = self.there[:size], self.there[size:]
        self.server.receive(piece)

    def carry_back(self) -> None:
        self.back += self.server.take(self.draw.choice(PIECES))
        size = self.draw.choice(PIECES)
        piece, self.back = self.back[:size], self.back[size:]
        self.client.receive(piece)

    def credit(self) -> None:
        self.client.credit()
        self.server.credit()

    def change(self) -> None:
        side = self.draw.choice((self.client, self.server))
        self.changes[side] = self.changes.get(side, 0) + 1
        if self.changes[side] <= CHANGES:
            side.change(self.draw.choice(WINDOWS))

    def cancel(self) -> None:
        """One side gives up a stream that it is sending on."""
        side = self.draw.choice((self.client, self.server))
        if side.to_send:
            side.cancel(self.draw.choice(list(side.to_send)))

    def step(self, rarely: tuple[object, ...]) -> None:
        steps = (self.open, self.send, self.carry_there, self.carry_back, self.credit)
        chosen = self.draw.choice((*steps, *steps, *steps, *steps, *rarely))
        chosen()  # type: ignore[operator]

    def finish(self) -> None:
        """Let everything through that still waits."""
        for count in range(100_000):
            if count in (0, 200):
                self.client.change(1 << 20)
                self.server.change(1 << 20)
            for step in (self.open, self.send, self.carry_there, self.carry_back, self.credit):
                step()
            sides = (self.client, self.server)
            gone = self.client.gone | self.server.gone
            waiting = any(side.to_send or side.owed for side in sides) or self.left or self.there or self.back
            ended = all(self.client.seen.get(stream_id, [""])[-1] == "end" for stream_id in self.asked.keys() - gone)
            if ended and not waiting:
                self.there, self.back = [side.take(1 << 20) for side in sides]
                if not self.there and not self.back:
                    return
        raise AssertionError("something never came through")

    def check(self) -> None:
        """Nothing is lost, nothing changed its order."""
        gone = self.client.gone | self.server.gone
        for stream_id, content in self.asked.items():
            if stream_id in gone:
                assert content.startswith(self.server.got.get(stream_id, b""))
                assert self.server.answers.get(stream_id, b"").startswith(self.client.got.get(stream_id, b""))
                continue
            assert self.server.got[stream_id] == content
            assert self.client.got[stream_id] == self.server.answers[stream_id]
            for seen in (self.client.seen[stream_id], self.server.seen[stream_id]):
                assert seen[0] == "head" and seen[-1] == "end" and set(seen[1:-1]) <= {"data"}
        for side in (self.client, self.server):
            if isinstance(side, (OurClient, OurServer)):
                assert side.machine._streams == {} and not side.machine.closed
        if isinstance(self.client, OurClient) and isinstance(self.server, OurServer):
            assert self.client.machine._send_window == self.server.machine._receive_window
            assert self.server.machine._send_window == self.client.machine._receive_window


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].__name__} to {pair[1].__name__}")
@given(st.integers(0, 1 << 32), st.integers(1, 12), st.integers(0, 400), st.booleans(), st.booleans())
def test_nothing_is_lost_and_nothing_changes_its_order(
    pair: tuple[type[Client], type[Server]], seed: int, streams: int, steps: int, cancelling: bool, narrow: bool
) -> None:
    with patch.object(limits, "CONNECTION_WINDOW", NARROW if narrow else limits.CONNECTION_WINDOW):
        play = Play(pair, random.Random(seed), streams)
        rarely = (play.change, play.cancel) if cancelling else (play.change,)
        for _ in range(steps):
            play.step(rarely)
        play.finish()
        play.check()
    assert len(play.asked) == streams and (cancelling or not play.client.gone | play.server.gone)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].__name__} to {pair[1].__name__}")
def test_whole_requests_and_answers_are_met_on_the_way(
    pair: tuple[type[Client], type[Server]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the way of nearly all calls was not tested."""
    whole = {Answer: 0, tuple: 0}
    for kind in (OurClient, OurServer):
        on = kind.on

        def counted(self: object, event: object, on: object = on) -> None:
            if isinstance(event, (Answer, tuple)):
                whole[type(event)] += 1
            on(self, event)  # type: ignore[operator]

        monkeypatch.setattr(kind, "on", counted)
    play = Play(pair, random.Random(5), 100)
    play.finish()
    play.check()
    assert whole[Answer] > 5 or pair[0] is not OurClient
    assert whole[tuple] > 5 or pair[1] is not OurServer
