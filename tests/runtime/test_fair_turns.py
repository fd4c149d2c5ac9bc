"""What one connection may ask for in one breath is not done in one breath: others are served in between."""

import pytest
import trio
from trio.testing import MockClock

from cronoq._stores.memory import MemoryStore
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import pb
from tests.runtime.caller import Stream
from tests.runtime.house import DurableStore, House

TASKS, LISTS = 300, 200


async def _crowded(house: House) -> list[Stream]:
    batch = pb.SubmitBatchRequest(tasks=[pb.TaskSpec(kind="k")] * TASKS)
    crowd = house.caller()
    await crowd.call("Tasks/SubmitBatch", batch, pb.SubmitBatchResponse)
    return [crowd.start("Tasks/ListTasks", pb.ListTasksRequest(limit=TASKS)) for _ in range(LISTS)]


@pytest.mark.parametrize("store", [MemoryStore(key_retention=0, key_retention_max=0), DurableStore()])
async def test_others_are_served_while_one_connection_waits_for_its_lists(
    autojump_clock: MockClock, nursery: trio.Nursery, store: MemoryStore
) -> None:
    house = await House(nursery, store).open()
    lists = await _crowded(house)
    other = house.caller()
    begun = trio.current_time()
    for _ in range(10):
        await other.submit(kind="k")
    mine = await other.call("Tasks/ListTasks", pb.ListTasksRequest(limit=10), pb.ListTasksResponse)
    assert len(mine.tasks) == 10
    assert sum(stream.ended for stream in lists) < LISTS // 10
    assert trio.current_time() - begun < 0.05
    for stream in lists:
        while not stream.ended:
            await trio.sleep(0.01)
    assert {stream.status for stream in lists} == {GrpcStatus.OK}
    assert {len(stream.messages(pb.ListTasksResponse)[0].tasks) for stream in lists} == {TASKS}


async def test_a_connection_that_is_lost_takes_its_lists_with_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    house = await House(nursery, MemoryStore(key_retention=0, key_retention_max=0)).open()
    crowd = house.caller()
    await crowd.call("Tasks/SubmitBatch", pb.SubmitBatchRequest(tasks=[pb.TaskSpec(kind="k")] * TASKS), pb.Empty)
    for _ in range(LISTS):
        crowd.start("Tasks/ListTasks", pb.ListTasksRequest(limit=TASKS))
    other = house.caller()
    await other.submit(kind="k")
    service = house.server.terms.service
    assert service is not None
    while service.statistics()["waiting_reads"] <= LISTS // 2:  # they are read when it is their connection's turn
        await trio.lowlevel.checkpoint()
    crowd.transport.send_eof()
    while len(house.server.lobby.connections) > 1:
        await trio.lowlevel.checkpoint()
    assert service.statistics()["waiting_reads"] == 0


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
