"""A stop that meets a fault, and a server that does not serve yet."""

import trio
from trio.testing import MockClock

from cronoq._proto import cronoq_pb2 as pb
from cronoq._stores.base import Fenced
from cronoq_sansio.errors import GrpcStatus
from tests.runtime.house import DurableStore, House


async def test_a_fault_during_the_grace_is_not_a_clean_end(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Nothing of the stop was stored: the exit code must not say that all is well."""
    durable = DurableStore()
    house = await House(nursery, durable).open()
    worker = await house.caller().work(slots=1)
    await house.caller().submit()
    await worker.next("lease")
    house.server.request_stop()
    await trio.sleep(1)
    durable.trouble = Fenced("somebody took over")
    await trio.sleep(20)
    assert house.code is None
    assert house.error is not None and "the stop did not end in order" in str(house.error)


async def test_who_is_not_served_is_told_so_whatever_the_arguments(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    durable = DurableStore()
    durable.loading = trio.Event()
    house = await House(nursery, durable).open()
    bad = pb.SubmitRequest(task=pb.TaskSpec(timeout_s=-1))
    reply = await house.caller().call("Tasks/Submit", bad, pb.SubmitResponse)
    nursery.cancel_scope.cancel()
    assert reply.status is GrpcStatus.UNAVAILABLE
