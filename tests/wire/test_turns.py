"""Calls that look at much: they are kept apart from what else was read, leave with their streams, and have turns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import MILLISECOND, SECOND
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import LOOK_SHARE, MAX_LOOK_PAUSE
from cronoq_sansio.service.messages import CallEnded, CallReceived, ListTasks, Shutdown, TaskPage
from cronoq_sansio.wire import credit, pb
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.grpc_call import QuickCall
from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_server import Http2Server
from cronoq_sansio.wire.protobuf_codec import ROUTES
from cronoq_sansio.wire.turns import Turns
from tests.wire.peer import SUBMIT, Peer
from tests.wire.test_inflation import GZIP, packed

LIST = "/cronoq.v1.Tasks/ListTasks"
START = 1_000 * SECOND
GONE = Rejection(Code.UNAVAILABLE, "gone")

# --- whose turn it is


def drain(turns: Turns[str], now: int, more: dict[str, int]) -> list[str]:
    """Who has turns, when each has so many things to do and they cost nothing."""
    had = []
    while (who := turns.take(now)) is not None:
        had.append(who)
        more[who] -= 1
        if more[who]:
            turns.enter(who)
    return had


@pytest.mark.parametrize(
    ("calls", "order"),
    [
        ({}, ""),
        ({"a": 3}, "aaa"),
        ({"a": 3, "b": 1}, "abaa"),
        ({"a": 2, "b": 3, "c": 1}, "abcabb"),
    ],
)
def test_connections_have_turns(calls: dict[str, int], order: str) -> None:
    turns: Turns[str] = Turns()
    for who in calls:
        turns.enter(who)
        turns.enter(who)  # it keeps its place
    assert len(turns) == len(calls)
    assert drain(turns, START, dict(calls)) == list(order)
    assert len(turns) == 0


def test_whoever_leaves_has_no_turn() -> None:
    turns: Turns[str] = Turns()
    for who in "abc":
        turns.enter(who)
    turns.leave("b")
    turns.leave("nobody")
    assert [turns.take(START), turns.take(START), turns.take(START)] == ["a", "c", None]


@pytest.mark.parametrize(
    ("turns_end", "due"),
    [
        ([], 0),
        ([(10, 10)], 30),  # it began at 0, and a third of the time until 30 was its
        ([(10, 10), (40, 10)], 60),
        ([(10, 10), (18, 4)], 42),  # the answer of a store came in the pause: it moves what is due
        ([(10, 0)], 10),
        ([(5_000, 5_000)], 5_000 + MAX_LOOK_PAUSE // MILLISECOND),  # the process was stopped meanwhile
        ([(10, 10), (20, 10), (30, 10)], 90),
    ],
)
def test_a_turn_is_a_part_of_the_time_that_it_and_the_pause_take(turns_end: list[tuple[int, int]], due: int) -> None:
    """Milliseconds: when a turn ended, and how long it took."""
    assert LOOK_SHARE == 3
    turns: Turns[str] = Turns()
    for end, took in turns_end:
        turns.spent(took * MILLISECOND, START + end * MILLISECOND)
    assert turns.due == (START + due * MILLISECOND if due else 0)
    assert not turns.free(turns.due - 1) and turns.free(turns.due)
    turns.enter("a")
    assert not turns.free(turns.due), "whoever comes now stands behind it"
    assert turns.take(turns.due - 1) is None and turns.take(turns.due) == "a"


@given(st.lists(st.tuples(st.integers(0, 30 * MILLISECOND), st.integers(0, 50 * MILLISECOND)), max_size=30))
def test_all_turns_have_their_part_of_the_time(played: list[tuple[int, int]]) -> None:
    """Whatever they cost, and however late they are."""
    turns: Turns[str] = Turns()
    now = spent = 0
    for cost, late in played:
        now = max(now, turns.due) + late
        turns.enter("a")
        assert turns.take(now) == "a"
        now += cost
        spent += cost
        turns.spent(cost, now)
        assert now <= turns.due <= now + MAX_LOOK_PAUSE
    assert spent * LOOK_SHARE <= turns.due


# --- of one connection


def looks(peer: Peer) -> list[Any]:
    """All that wait have their turns."""
    found = []
    while peer.server.looks.waiting:
        found += peer.server.take_look()
    return found


def ask(peer: Peer, limit: int, *extra: tuple[str, str]) -> int:
    return peer.call(pb.ListTasksRequest(limit=limit), LIST, *extra)


def test_these_methods_look_at_much() -> None:
    found = {route.name for route in ROUTES.values() if route.looks}
    assert found == {"Tasks.ListTasks", "Admin.ListWorkers", "Admin.ListRecurring", "Admin.Snapshot"}


@pytest.fixture(params=[Http2Server, H2Server])
def peer(request: pytest.FixtureRequest) -> Peer:
    machine: MakeHttp2 = request.param
    return Peer(machine=machine)


def test_they_are_apart_from_what_else_was_read_and_in_their_order(peer: Peer) -> None:
    ids = [ask(peer, 1), ask(peer, 2)]
    peer.call(pb.SubmitRequest(task=pb.TaskSpec(kind="k")), SUBMIT)
    ids.append(ask(peer, 3))
    (event,) = peer.exchange()
    assert event.request.spec.kind == "k"
    found = looks(peer)
    assert [event.request for event in found] == [ListTasks((), (), 0, limit) for limit in (1, 2, 3)]
    assert {type(event.call) for event in found} == {QuickCall}
    assert not peer.server._streams.keys() & set(ids) and peer.server._credit.unfinished == 0
    for event in found:
        event.call.sink.reply(TaskPage((), 7))
    peer.exchange()
    for stream_id in ids:
        seen = peer.streams[stream_id]
        assert pb.ListTasksResponse.FromString(seen.messages()[0]).next_after == 7
    assert not peer.server.calls


def test_in_pieces_or_compressed_they_are_the_same(peer: Peer) -> None:
    message = pb.ListTasksRequest(limit=9).SerializeToString()
    stream_id = peer.headers(LIST)
    for byte in frame(message):
        peer.data(stream_id, bytes((byte,)))
        assert peer.exchange() == [] == looks(peer)
    peer.data(stream_id, b"", end=True)
    peer.data(peer.headers(LIST, GZIP), packed(message), end=True)
    assert peer.exchange() == []
    assert [event.request.limit for event in looks(peer)] == [9, 9]


def test_one_that_is_not_well_formed_is_refused_in_its_turn(peer: Peer) -> None:
    stream_id = peer.headers(LIST)
    peer.data(stream_id, frame(b"\xff"), end=True)
    last = ask(peer, 1)
    peer.exchange()
    assert peer.server.take_look() == []
    peer.exchange()
    assert peer.streams[stream_id].status == 3 and peer.streams[last].status is None
    assert peer.server._outcomes["Tasks.ListTasks", "invalid"] == 1
    assert len(looks(peer)) == 1


def test_one_that_is_reset_leaves_and_nobody_is_told(peer: Peer) -> None:
    first, second, third = ask(peer, 1), ask(peer, 2), ask(peer, 3)
    peer.exchange()
    peer.client.reset_stream(second)
    assert peer.exchange() == []
    assert list(peer.server.looks.waiting) == [first, third]
    (found,) = peer.server.take_look()
    peer.client.reset_stream(first)
    assert peer.exchange() == [CallEnded(found.call)], "this one was handed on"
    peer.server.receive_eof(peer.now)
    assert not peer.server.looks.waiting and looks(peer) == []
    assert peer.server._credit.unfinished == peer.server._credit._everywhere.total == 0


def test_a_deadline_passes_while_it_waits(peer: Peer) -> None:
    late = ask(peer, 1, ("grpc-timeout", "2S"))
    ask(peer, 2, ("grpc-timeout", "9S"))
    ask(peer, 3)
    assert peer.exchange() == []
    assert peer.timer(2 * SECOND - 1) == []
    peer.exchange()
    assert peer.streams[late].status is None
    assert peer.timer(1) == []
    peer.exchange()
    assert peer.streams[late].status == 4
    assert "before its turn came" in peer.streams[late].message
    assert peer.server._outcomes["Tasks.ListTasks", "deadline_exceeded"] == 1
    found = looks(peer)
    assert [event.request.limit for event in found] == [2, 3]
    assert [event.deadline for event in found] == [found[0].deadline, None]
    assert found[0].deadline == peer.now + 7 * SECOND


def test_waiting_is_no_stall(peer: Peer) -> None:
    ask(peer, 1)
    peer.exchange()
    assert peer.until_reset([], 100, lambda _second: None) is None
    assert len(looks(peer)) == 1 and not peer.server.exceeded


@pytest.mark.parametrize("how", ["finish", "refuse_open"])
def test_the_end_of_the_connection_and_of_the_term_answer_it(peer: Peer, how: str) -> None:
    stream_id = ask(peer, 1)
    peer.exchange()
    if how == "finish":
        peer.server.finish()
    else:
        peer.server.refuse_open(GONE, Shutdown("gone", True))
    assert peer.exchange() == []
    assert looks(peer) == []
    assert peer.streams[stream_id].status == 14


def test_requests_that_wait_count_as_messages_that_are_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections together have a bound on their bytes; beyond it each has its oldest."""
    peer, pools = Peer(), ["p" * 60] * 900
    size = len(pb.ListTasksRequest(pools=pools).SerializeToString())
    ids = [peer.call(pb.ListTasksRequest(pools=pools), LIST) for _ in range(2)]
    peer.exchange()
    assert peer.server._credit.unfinished == 2 * size
    monkeypatch.setattr(credit, "MAX_UNFINISHED", 2 * size)
    ids.append(peer.call(pb.ListTasksRequest(pools=pools), LIST))
    peer.exchange()
    assert [peer.streams[stream_id].status for stream_id in ids] == [None, None, 8]
    assert len(looks(peer)) == 2 and peer.server._credit.unfinished == 0


def test_everything_else_goes_on_as_before() -> None:
    """A call that looks at one thing, or waits for one, is handed on with its read."""
    peer = Peer()
    for method, message in (
        ("Get", pb.GetRequest(task=pb.TaskRef(id=1))),
        ("Wait", pb.WaitRequest(task=pb.TaskRef(id=1))),
    ):
        peer.call(message, f"/cronoq.v1.Tasks/{method}")
    events = peer.exchange()
    assert [type(event) for event in events] == [CallReceived] * 2 and not peer.server.looks.waiting
