"""Our client against our server under a random course of events: every call ends once, and nobody breaks HTTP/2."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cronoq_sansio.clock import MILLISECOND, SECOND
from cronoq_sansio.errors import Code, GrpcStatus, Rejection
from cronoq_sansio.service.messages import AbortLease, CallReceived, CancelReply, WorkerConnected, WorkerGone
from cronoq_sansio.service.messages import CallEnded as ServerCallEnded
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.client_call import CallEnded, ClientCall, ClientEvent, ConnectionLost, MessageReceived
from tests.wire.client_peer import START, Pair

CANCEL, WORK = b"/cronoq.v1.Tasks/Cancel", b"/cronoq.v1.Workers/Work"
REGISTER = pb.WorkerMessage(register=pb.Register(slots=1, protocol_version=3)).SerializeToString()


class Conversation(RuleBasedStateMachine):
    """What is on its way in either direction is carried in pieces of any size, at any time."""

    @initialize(places=st.integers(1, 5))
    def begin(self, places: int) -> None:
        self.pair = Pair(LimitSettings(max_concurrent_streams=places), ping_interval=20 * SECOND)
        self.client, self.server, self.now = self.pair.client, self.pair.server, START
        self.there, self.back = b"", b""
        self.calls: list[ClientCall] = []
        self.streams: list[ClientCall] = []
        self.cancelled: set[int] = set()
        self.ends: dict[int, list[CallEnded]] = {}
        self.held: list[MessageReceived] = []
        self.asked: list[Any] = []
        self.workers: list[Any] = []

    # --- the caller

    @precondition(lambda self: self.client.usable)
    @rule(limit=st.none() | st.integers(1, 40), streaming=st.booleans())
    def start(self, limit: int | None, streaming: bool) -> None:
        deadline = None if limit is None else self.now + limit * SECOND
        path = WORK if streaming else CANCEL
        call = self.client.start_call(path, [], self.now, deadline=deadline, streaming=streaming)
        self.calls.append(call)
        if streaming:
            self.streams.append(call)
            self.client.send(call, REGISTER)
        else:
            self.client.send(call, pb.CancelRequest(task=pb.TaskRef(key="k")).SerializeToString())
            self.client.half_close(call)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), size=st.sampled_from([0, 10, 20_000, 200_000]))
    def send(self, data: st.DataObject, size: int) -> None:
        message = pb.WorkerMessage(complete=pb.Complete(output=bytes(size))).SerializeToString()
        self.client.send(data.draw(st.sampled_from(self.streams)), message)

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def half_close(self, data: st.DataObject) -> None:
        self.client.half_close(data.draw(st.sampled_from(self.streams)))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))
        if not call.over:
            self.cancelled.add(id(call))
        self.client.cancel(call)

    @precondition(lambda self: self.held)
    @rule()
    def consume(self) -> None:
        event = self.held.pop(0)
        self.client.consumed(event.call, event.size)

    # --- the service

    @precondition(lambda self: self.asked)
    @rule(good=st.booleans())
    def answer(self, good: bool) -> None:
        sink = self.asked.pop(0).sink
        if good:
            sink.reply(CancelReply(True))
        else:
            sink.reject(Rejection(Code.NOT_FOUND, "no such task"))

    @precondition(lambda self: self.workers)
    @rule(size=st.sampled_from([0, 100, 70_000]))
    def abort(self, size: int) -> None:
        for number in range(3):
            self.workers[0].sink.send(AbortLease(number, "r" * size))

    @precondition(lambda self: self.workers)
    @rule()
    def end_worker(self) -> None:
        self.workers.pop(0).sink.close(None)

    @rule()
    def drain(self) -> None:
        self.server.drain()

    @rule()
    def finish(self) -> None:
        self.server.finish()
        self.note_server(self.server.take_events())

    # --- the network and the clock

    @rule(size=st.sampled_from([1, 9, 50, 16_393, 1 << 20]))
    def carry_there(self, size: int) -> None:
        self.there += self.client.take(1 << 18)
        self.note_client(self.client.take_events())
        piece, self.there = self.there[:size], self.there[size:]
        if piece and not self.server.closed:
            self.note_server(self.server.receive(piece, self.now))

    @rule(size=st.sampled_from([1, 9, 50, 16_393, 1 << 20]))
    def carry_back(self, size: int) -> None:
        self.back += self.server.take(1 << 18)
        self.note_server(self.server.take_events())
        piece, self.back = self.back[:size], self.back[size:]
        if piece:
            self.note_client(self.client.receive(piece, self.now))

    @rule(milliseconds=st.sampled_from([1, 1_000, 1_900]))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND
        due = self.client.next_timeout()
        if due is not None and due <= self.now:
            self.note_client(self.client.handle_timer(self.now))

    # --- what must hold

    def note_client(self, events: list[ClientEvent]) -> None:
        for event in events:
            if isinstance(event, CallEnded):
                self.ends.setdefault(id(event.call), []).append(event)
            elif isinstance(event, MessageReceived) and event.call.streaming:
                self.held.append(event)
            elif isinstance(event, ConnectionLost):
                assert "broke HTTP/2" not in event.reason

    def note_server(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, CallReceived):
                self.asked.append(event.call)
            elif isinstance(event, ServerCallEnded):
                self.asked = [call for call in self.asked if call is not event.call]
            elif isinstance(event, WorkerConnected):
                self.workers.append(event.stream)
            elif isinstance(event, WorkerGone):
                self.workers = [worker for worker in self.workers if worker is not event.stream]
                assert "broke HTTP/2" not in event.why

    @invariant()
    def each_call_ends_once_or_was_cancelled(self) -> None:
        for call in self.calls:
            ends = self.ends.get(id(call), [])
            assert len(ends) == (call.over and id(call) not in self.cancelled)
        assert self.client.open_calls == sum(not call.over for call in self.calls)

    @invariant()
    def an_answer_comes_with_success_alone(self) -> None:
        for ends in self.ends.values():
            (end,) = ends
            if end.status is GrpcStatus.OK and not end.call.streaming:
                assert end.call.messages == 1
            assert not (end.unprocessed and end.status is GrpcStatus.OK)

    def teardown(self) -> None:
        self.note_client(self.client.receive_eof(self.now))
        self.each_call_ends_once_or_was_cancelled()
        assert self.client.open_calls == 0 and self.client.next_timeout() is None


Conversation.TestCase.settings = settings(settings.get_profile("quick"), max_examples=40, stateful_step_count=40)
TestConversation = pytest.mark.filterwarnings("error")(Conversation.TestCase)
