"""Schedules in a whole server: durable before anybody hears of them, and there again in the term after a fault."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._stores.memory import MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.spec import RecurringSpec, TaskSpec
from cronoq_sansio.wire import pb
from tests.runtime.caller import Caller
from tests.runtime.house import SETTINGS, DurableStore, House
from tests.runtime.test_server import break_on_key


@pytest.fixture(params=["memory", "durable"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    if request.param == "durable":
        return DurableStore()
    return MemoryStore(key_retention=3_600 * SECOND, key_retention_max=1_000)


@pytest.fixture
async def house(nursery: trio.Nursery, store: MemoryStore) -> AsyncIterator[House]:
    yield await House(nursery, store).open()
    nursery.cancel_scope.cancel()


def every_minute(name: str = "often") -> pb.RecurringRequest:
    return pb.RecurringRequest(name=name, cron="* * * * *", template=pb.TaskSpec(key=name), overlap=pb.OVERLAP_ALLOW)


async def listed(caller: Caller) -> dict[str, pb.RecurringInfo]:
    reply = await caller.call("Admin/ListRecurring", pb.Empty(), pb.ListRecurringResponse)
    return {schedule.name: schedule for schedule in reply.schedules}


async def leases(house: House, count: int) -> list[str]:
    """The keys of the next tasks, which are completed."""
    worker = await house.caller().work(slots=1)
    found = []
    for _ in range(count):
        lease = await worker.next("lease")
        found.append(lease.key)
        worker.say(complete=pb.Complete(lease=lease.lease))
    return found


async def test_a_term_after_a_fault_goes_on_where_the_one_before_was(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the next occurrence exists already: it is made once."""
    break_on_key(monkeypatch, "bug")
    caller = house.caller()
    await caller.call("Admin/AddRecurring", every_minute(), pb.Empty)
    await caller.call("Admin/AddRecurring", every_minute("gone"), pb.Empty)
    assert await leases(house, 2) == ["gone@2023-11-14T22:14:00Z", "often@2023-11-14T22:14:00Z"]
    await trio.sleep(59)  # the occurrences of 22:15 are there
    removed = await caller.call(
        "Admin/RemoveRecurring", pb.RemoveRecurringRequest(name="gone"), pb.RemoveRecurringResponse
    )
    assert removed.removed
    before = (await listed(caller))["often"]
    assert (await caller.submit(key="bug")).status is GrpcStatus.UNAVAILABLE
    await trio.sleep(1.5)
    caller = house.caller()
    assert set(await listed(caller)) == {"often"}
    assert (await listed(caller))["often"].last_task_id == before.last_task_id
    assert await leases(house, 4) == [
        *("gone@2023-11-14T22:15:00Z", "often@2023-11-14T22:15:00Z"),
        *("often@2023-11-14T22:16:00Z", "often@2023-11-14T22:17:00Z"),
    ]


async def test_nothing_of_a_schedule_is_told_before_it_is_stored(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = DurableStore()
    house = await House(nursery, store).open()
    caller = house.caller()
    worker = await house.caller().work(slots=1)
    store.hanging = True
    adding = caller.start("Admin/AddRecurring", every_minute())
    await trio.sleep(0.5)
    assert not adding.ended
    store.go_on()
    await trio.testing.wait_all_tasks_blocked()
    assert adding.status is GrpcStatus.OK
    await trio.sleep(38)  # 22:13:58.5: the occurrence of 22:14 is made at :58, its start comes while the store hangs
    store.hanging = True
    await caller.call("Admin/ListRecurring", pb.Empty(), pb.ListRecurringResponse)
    removing = caller.start("Admin/RemoveRecurring", pb.RemoveRecurringRequest(name="often"))
    await trio.sleep(3)
    assert not removing.ended
    assert len(worker._messages()) == 1, "a lease that is not stored"
    store.go_on()
    lease = await worker.next("lease")
    assert lease.key == "often@2023-11-14T22:14:00Z"
    await trio.testing.wait_all_tasks_blocked()
    assert removing.status is GrpcStatus.OK
    nursery.cancel_scope.cancel()


async def test_what_the_log_says_of_schedules_at_a_start(
    autojump_clock: MockClock, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> None:
    """The version of the time zones; schedules that do nothing, with the reason; those that the file has no more."""
    store = DurableStore()
    template = TaskSpec(b"", "", "", "default", 2, "", None, None, (), 0)
    configured = RecurringSpec("filed", "0 0 1 1 *", "", template, configured=True)
    async with trio.open_nursery() as first:
        house = await House(first, store, Settings(server=SETTINGS.server, recurring=(configured,))).open()
        caller = house.caller()
        await caller.call("Admin/AddRecurring", every_minute(), pb.Empty)
        assert set(await listed(caller)) == {"filed", "often"}
        house.server.request_stop()
        await trio.sleep(20)
        first.cancel_scope.cancel()
    told = capsys.readouterr().out
    assert "time zones" in told and "version=20" in told
    assert "does nothing" not in told and "was removed" not in told
    other = Settings(server=SETTINGS.server, pools=(PoolSettings("other"),))
    house = await House(nursery, store, other).open()
    assert set(await listed(house.caller())) == {"often"}
    told = capsys.readouterr().out
    assert "not_armed=1" in told and "armed=0" in told
    assert "a schedule does nothing" in told and "unknown pool 'default'" in told
    assert "a schedule was removed" in told and "schedule=filed" in told
    nursery.cancel_scope.cancel()
