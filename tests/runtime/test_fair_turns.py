"""What one connection may ask for in one breath is not done in one breath: others are served in between."""

import trio
from trio.testing import MockClock

from cronoq._stores.memory import MemoryStore
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.wire import pb
from tests.runtime.house import House


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
