"""Our client machine and our server machine, joined by memory: every kind of call, however the bytes are cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code, GrpcStatus, Rejection
from cronoq_sansio.service.messages import CallEnded as ServerCallEnded
from cronoq_sansio.service.messages import CallReceived, CancelReply, WorkerConnected, WorkerGone, WorkerSent
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.client_call import CallEnded, ClientCall
from tests.wire.client_peer import START, Pair, end_of, messages_of

CANCEL = b"/cronoq.v1.Tasks/Cancel"
SUBMIT = b"/cronoq.v1.Tasks/Submit"
WORK = b"/cronoq.v1.Workers/Work"


def cancel(pair: Pair, **options: Any) -> ClientCall:
    call = pair.client.start_call(CANCEL, [], pair.now, **options)
    pair.client.send(call, pb.CancelRequest(task=pb.TaskRef(key="k")).SerializeToString())
    pair.client.half_close(call)
    return call


def received(pair: Pair) -> list[CallReceived]:
    return [event for event in pair.asked if isinstance(event, CallReceived)]


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
def test_a_call_and_its_answer(cut: int) -> None:
    pair = Pair(cut=cut)
    call = cancel(pair, deadline=START + 5 * SECOND)
    pair.run()
    (asked,) = received(pair)
    assert asked.deadline == START + 5 * SECOND
    asked.call.sink.reply(CancelReply(True))
    pair.run()
    assert messages_of(pair.seen, call) == [pb.CancelResponse(cancelled=True).SerializeToString()]
    assert end_of(pair.seen, call).status is GrpcStatus.OK


def test_a_rejection_brings_its_text_and_metadata() -> None:
    pair = Pair()
    call = cancel(pair)
    pair.run()
    text = "no task with that key: ünï\n50 %"
    received(pair)[0].call.sink.reject(Rejection(Code.NOT_FOUND, text, (("cronoq-shard", "eu-1"),)))
    pair.run()
    end = end_of(pair.seen, call)
    assert (end.status, end.message, end.metadata) == (GrpcStatus.NOT_FOUND, text, (("cronoq-shard", "eu-1"),))


def test_more_calls_than_the_server_takes_at_a_time_all_get_through() -> None:
    pair = Pair(LimitSettings(max_concurrent_streams=10))
    calls = [cancel(pair) for _ in range(1_000)]
    answered = 0
    while answered < len(calls):
        pair.run()
        open_now = received(pair)[answered:]
        assert 0 < len(open_now) <= 10
        for event in open_now:
            event.call.sink.reply(CancelReply(answered % 2 == 0))
            answered += 1
    pair.run()
    assert [end_of(pair.seen, call).status for call in calls] == [GrpcStatus.OK] * len(calls)
    assert pair.client.open_calls == 0


@pytest.mark.parametrize("method", [b"/cronoq.v1.Tasks/Nothing", b"/", b"/other.Service/Call"])
def test_methods_that_are_not_there(method: bytes) -> None:
    pair = Pair()
    call = pair.client.start_call(method, [], START)
    pair.client.send(call, b"")
    pair.client.half_close(call)
    pair.run()
    assert end_of(pair.seen, call).status is GrpcStatus.UNIMPLEMENTED


def test_cancelling_reaches_the_server() -> None:
    pair = Pair()
    call = cancel(pair)
    pair.run()
    pair.client.cancel(call)
    pair.run()
    assert [type(event) for event in pair.asked] == [CallReceived, ServerCallEnded]
    assert not [event for event in pair.seen if isinstance(event, CallEnded)]


def test_a_message_above_the_servers_limit_is_refused_while_it_is_being_sent() -> None:
    pair = Pair(LimitSettings(max_message_bytes=65_536))
    call = pair.client.start_call(SUBMIT, [], START)
    pair.client.send(call, pb.SubmitRequest(task=pb.TaskSpec(payload=bytes(3 << 20))).SerializeToString())
    pair.client.half_close(call)
    pair.run()
    end = end_of(pair.seen, call)
    assert end.status is GrpcStatus.RESOURCE_EXHAUSTED and "limit of 65536" in end.message


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=8), st.integers(1, 2_000))
def test_a_worker_stream_keeps_order_however_it_is_cut(sizes: list[int], cut: int) -> None:
    pair = Pair(cut=cut)
    call = pair.client.start_call(WORK, [], START, streaming=True)
    pair.client.send(call, pb.WorkerMessage(register=pb.Register(slots=1, protocol_version=3)).SerializeToString())
    for lease, size in enumerate(sizes):
        complete = pb.Complete(lease=lease, output=bytes(size))
        pair.client.send(call, pb.WorkerMessage(complete=complete).SerializeToString())
    pair.client.half_close(call)
    pair.run()
    kinds = [type(event) for event in pair.asked]
    assert kinds == [WorkerConnected] + [WorkerSent] * (len(sizes) + 1) + [WorkerGone]
    outputs = [event.message for event in pair.asked if isinstance(event, WorkerSent)][1:]
    assert [(message.lease, len(message.output)) for message in outputs] == list(enumerate(sizes))
    assert end_of(pair.seen, call).status is GrpcStatus.OK


def test_the_server_stops_gracefully() -> None:
    pair = Pair()
    call = cancel(pair)
    pair.run()
    pair.server.drain()
    pair.run()
    assert not pair.client.usable, "new calls go to a new connection"
    received(pair)[0].call.sink.reply(CancelReply(True))
    pair.run()
    assert end_of(pair.seen, call).status is GrpcStatus.OK
    assert pair.client.closed


def test_a_server_that_is_gone_without_a_word_is_noticed() -> None:
    pair = Pair()
    call = cancel(pair)
    pair.run()
    for seconds in (20, 25):
        pair.seen += pair.client.handle_timer(START + seconds * SECOND)
        pair.client.take(1 << 20)
    assert end_of(pair.seen, call).status is GrpcStatus.UNAVAILABLE
