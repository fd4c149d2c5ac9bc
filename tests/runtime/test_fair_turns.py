"""What one connection may ask for in one breath is not done in one breath: others are served in between."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._stores.memory import MemoryStore
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import pb
from tests.runtime.caller import Caller, Stream
from tests.runtime.house import DurableStore, House
from tests.runtime.test_server import break_on_key

LISTS = 100


async def test_others_are_served_while_a_message_is_inflated(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    house = await House(nursery, MemoryStore(key_retention=0, key_retention_max=0)).open()
    sender, other = house.caller(), house.caller()
    await other.submit(kind="k")
    begun = trio.current_time()
    request = pb.SubmitRequest(task=pb.TaskSpec(kind="k", payload=bytes(8 << 20)))
    streams = [sender.start("Tasks/Submit", request, compressed=True) for _ in range(2)]
    served = 0
    while not streams[-1].ended:
        await other.submit(kind="k")
        served += 1
    assert served > 10, "a hundred turns, and a call of somebody else takes a few"
    assert [stream.status for stream in streams] == [GrpcStatus.OK] * 2
    assert trio.current_time() == begun, "nothing is waited for"
    assert not any(connection.vain for connection in house.server.lobby.connections)


def memory() -> MemoryStore:
    return MemoryStore(key_retention=0, key_retention_max=0)


def ask(caller: Caller, count: int, limit: int = 10) -> list[Stream]:
    """Lists, in one write."""
    flush, caller._flush = caller._flush, lambda: None  # type: ignore[method-assign]
    streams = [caller.start("Tasks/ListTasks", pb.ListTasksRequest(limit=limit)) for _ in range(count)]
    caller._flush = flush  # type: ignore[method-assign]
    flush()
    return streams


def done(streams: list[Stream]) -> int:
    return sum(stream.ended for stream in streams)


@pytest.mark.parametrize("store", [memory, DurableStore])
async def test_others_are_served_between_two_lists_of_a_hundred(
    autojump_clock: MockClock, nursery: trio.Nursery, store: type[MemoryStore]
) -> None:
    house = await House(nursery, store()).open()
    crowd, other = house.caller(), house.caller()
    batch = pb.SubmitBatchRequest(tasks=[pb.TaskSpec(kind="k")] * 20)
    await crowd.call("Tasks/SubmitBatch", batch, pb.SubmitBatchResponse)
    await other.submit(kind="k")
    begun = trio.current_time()
    lists = ask(crowd, LISTS)
    answered = []
    while done(lists) < LISTS:
        await other.submit(kind="k")
        answered.append(done(lists))
    between = [after - before for before, after in zip(answered, answered[1:], strict=False)]
    assert max(between) <= 10 and len(answered) > LISTS // 10, answered
    assert trio.current_time() == begun, "what costs no time is no pause"
    assert {stream.status for stream in lists} == {GrpcStatus.OK}
    assert {len(stream.messages(pb.ListTasksResponse)[0].tasks) for stream in lists} == {10}


async def test_a_list_of_another_connection_waits_for_one_of_each(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    house = await House(nursery, memory()).open()
    crowds, other = [house.caller() for _ in range(3)], house.caller()
    await other.submit(kind="k")
    lists = [stream for crowd in crowds for stream in ask(crowd, LISTS)]
    await other.call("Tasks/ListTasks", pb.ListTasksRequest(), pb.ListTasksResponse)
    assert done(lists) < 30
    await other.call("Admin/Snapshot", pb.Empty(), pb.SnapshotResponse)
    assert done(lists) < 60


async def test_a_list_shows_what_came_before_it_in_the_same_read(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    house = await House(nursery, memory()).open()
    caller = house.caller()
    await trio.testing.wait_all_tasks_blocked()
    flush, caller._flush = caller._flush, lambda: None  # type: ignore[method-assign]
    submit = caller.start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec(kind="k")))
    page = caller.start("Tasks/ListTasks", pb.ListTasksRequest())
    caller._flush = flush  # type: ignore[method-assign]
    flush()
    await caller.until(page, lambda: page.ended)
    (reply,) = submit.messages(pb.SubmitResponse)
    assert [info.id for info in page.messages(pb.ListTasksResponse)[0].tasks] == [reply.id]


async def test_what_a_lost_connection_has_asked_for_is_not_done(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    house = await House(nursery, memory()).open()
    crowd, other = house.caller(), house.caller()
    await other.submit(kind="k")
    ask(crowd, LISTS)
    await other.submit(kind="k")
    crowd.transport.send_eof()
    await trio.testing.wait_all_tasks_blocked()
    assert house.server.lobby.calls["Tasks.ListTasks", "ok"] < 10
    assert len(house.server.lobby.looks) == 0
    service = house.server.terms.service
    assert service is not None and service.statistics()["open_requests"] == 0


async def test_a_term_that_ends_answers_the_lists_that_wait(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on_key(monkeypatch, "bug")
    house = await House(nursery, DurableStore()).open()
    crowd, other = house.caller(), house.caller()
    await other.submit(kind="k")
    lists = ask(crowd, LISTS)
    await other.submit(key="bug")
    await trio.testing.wait_all_tasks_blocked()
    assert done(lists) == LISTS
    assert lists[-1].status is GrpcStatus.UNAVAILABLE
    assert {stream.status for stream in lists} <= {GrpcStatus.OK, GrpcStatus.UNAVAILABLE}
    await trio.sleep(3)
    again = await house.caller().call("Tasks/ListTasks", pb.ListTasksRequest(), pb.ListTasksResponse)
    assert len(again.tasks) == 1


async def test_a_stop_answers_the_lists_that_wait(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    house = await House(nursery, memory()).open()
    crowd, other = house.caller(), house.caller()
    await other.submit(kind="k")
    lists = ask(crowd, LISTS)
    await other.submit(kind="k")
    house.server.request_stop()
    await crowd.closed.wait()
    assert {stream.status for stream in lists} <= {GrpcStatus.OK, GrpcStatus.UNAVAILABLE}
    refused = {stream.fields["grpc-message"] for stream in lists if stream.status is GrpcStatus.UNAVAILABLE}
    assert refused <= {"the server has stopped", "the server has stopped; try again on the next one"}
    assert "the server has stopped" in refused, "nobody was there to hand it on to"
    calls = house.server.lobby.calls
    assert calls["Tasks.ListTasks", "ok"] + calls["Tasks.ListTasks", "unavailable"] == LISTS
