"""A server that leaves under load, in random interleavings: no call that it took is lost, and none is tried again.

Our client and our server are joined by memory, and the bytes between them come in pieces, late. The service answers
when it likes. At some moment the server says that it will leave, at a later one it does, and closes the connection.
"""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import CallEnded as GivenUp
from cronoq_sansio.service.messages import CallReceived
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.client_call import CallEnded
from cronoq_sansio.wire.grpc import GrpcServer
from tests.wire.client_peer import PATH, START, machine

PIECES = (1, 9, 100, 1_000, 1 << 20)
SIZES = (0, 10, 3_000, 70_000)


class Play:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.client = machine(max_receive=1 << 20)
        self.server = GrpcServer(LimitSettings(max_concurrent_streams=10), START, authenticate)
        self.there, self.back = b"", b""
        self.asked = 0
        self.ends: dict[int, CallEnded] = {}
        self.taken: dict[str, Any] = {}
        """By key: calls that the service was told of."""
        self.open: list[str] = []
        self.answered: set[str] = set()

    def ask(self) -> None:
        if self.client.usable:
            task = pb.TaskSpec(key=str(self.asked), payload=bytes(self.draw.choice(SIZES)))
            request = pb.SubmitRequest(task=task).SerializeToString()
            self.client.ask(PATH, (), request, START, owner=self.asked)
            self.asked += 1

    def answer(self) -> None:
        if self.open:
            key = self.open.pop(self.draw.randrange(len(self.open)))
            self.answered.add(key)
            self.taken[key].call.sink.reply(Submitted(int(key) + 1, False))

    def carry_there(self) -> None:
        self.there += self.client.take(self.draw.choice(PIECES))
        self.client.take_events()
        size = self.draw.choice(PIECES)
        piece, self.there = self.there[:size], self.there[size:]
        self.heard(self.server.receive(piece, START))

    def heard(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, CallReceived):
                key = event.request.spec.key
                assert key not in self.taken
                self.taken[key] = event
                self.open.append(key)
            else:
                assert isinstance(event, GivenUp)

    def carry_back(self) -> None:
        self.back += self.server.take(self.draw.choice(PIECES))
        size = self.draw.choice(PIECES)
        piece, self.back = self.back[:size], self.back[size:]
        self.told(self.client.receive(piece, START))

    def told(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, CallEnded):
                assert event.call.owner not in self.ends
                self.ends[event.call.owner] = event

    def steps(self, count: int) -> None:
        steps = (self.ask, self.ask, self.answer, self.carry_there, self.carry_there, self.carry_back, self.carry_back)
        for _ in range(count):
            self.draw.choice(steps)()

    def leave(self) -> None:
        """The last word; what is in the sockets still comes."""
        self.server.finish()
        for event in self.server.take_events():
            assert isinstance(event, GivenUp)
        while data := self.server.take(1 << 20):
            self.back += data
        self.told(self.client.receive(self.back, START))
        self.told(self.client.receive_eof(START))


@given(st.integers(0, 1 << 32), st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_no_call_that_was_taken_is_lost_or_tried_again(seed: int, before: int, between: int, patient: bool) -> None:
    play = Play(random.Random(seed))
    play.steps(before)
    play.server.drain()
    play.steps(between)
    while patient and play.open:  # as the server does within its grace
        play.answer()
    play.leave()
    assert play.ends.keys() == set(range(play.asked))
    for number, end in play.ends.items():
        key = str(number)
        if key in play.answered:
            assert end.status is GrpcStatus.OK and pb.SubmitResponse.FromString(end.data).id == number + 1
        else:
            assert end.status is GrpcStatus.UNAVAILABLE
        assert not (end.unprocessed and key in play.taken), "it would be run twice"
    assert play.answered == play.taken.keys() or not patient


def test_a_server_that_leaves_under_load_answers_much_and_leaves_much() -> None:
    """Else the test above shows little."""
    answered = unprocessed = rejected = 0
    for seed in range(20):
        play = Play(random.Random(seed))
        play.steps(200)
        play.server.drain()
        play.steps(100)
        play.leave()
        answered += len(play.answered)
        unprocessed += sum(end.unprocessed for end in play.ends.values())
        rejected += len(play.taken) - len(play.answered)
    assert min(answered, unprocessed) > 100 and rejected > 0
