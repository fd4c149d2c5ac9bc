"""A wall clock that is set while the server runs: fixed starts and schedules follow it, in both directions."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._stores.memory import MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import TICK
from cronoq_sansio.spec import TaskStatus
from cronoq_sansio.wire import pb
from tests.runtime.caller import Caller, Worker
from tests.runtime.fakes import WALL
from tests.runtime.house import House

NOTICED = TICK / SECOND + 0.001
"""Seconds within which a step of the clock is noticed and what is due by then has started."""
MINUTE = 60 * SECOND


@pytest.fixture
async def house(nursery: trio.Nursery) -> AsyncIterator[House]:
    yield await House(nursery, MemoryStore(key_retention=3_600 * SECOND, key_retention_max=1_000)).open()
    nursery.cancel_scope.cancel()


class Runner:
    """A worker that notes when each lease came, by the wall clock of that moment, and completes it at once."""

    def __init__(self, house: House, worker: Worker) -> None:
        self.house = house
        self.worker = worker
        self.leases: list[tuple[str, float]] = []
        """Key of the task, and seconds since `WALL`."""

    async def run(self) -> None:
        while True:
            lease = await self.worker.next("lease")
            self.leases.append((lease.key, (self.house.wall() - WALL) / SECOND))
            self.worker.say(complete=pb.Complete(lease=lease.lease))


async def running(house: House, nursery: trio.Nursery) -> Runner:
    runner = Runner(house, await house.caller().work(slots=1))
    nursery.start_soon(runner.run)
    return runner


async def at(caller: Caller, second: float, **fields: Any) -> int:
    """Submit a task with a fixed start, in seconds since `WALL`."""
    reply = await caller.submit(start_unix_ns=WALL + round(second * SECOND), **fields)
    assert reply.id, reply
    return int(reply.id)


async def test_a_start_comes_when_the_clock_is_put_forward(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    caller, runner = house.caller(), await running(house, nursery)
    await at(caller, 3_600, key="in time")
    await at(caller, 3_000, key="late")
    await trio.sleep(10)
    assert runner.leases == []
    house.wall_moved = 3_585 * SECOND
    await trio.sleep(NOTICED)
    assert [key for key, _ in runner.leases] == ["late"], "it runs late, as its policy says"
    await trio.sleep(10)
    assert runner.leases[1] == ("in time", pytest.approx(3_600, abs=0.002))


async def test_a_start_that_was_jumped_over_is_missed_when_its_policy_says_so(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    caller, runner = house.caller(), await running(house, nursery)
    skipped = await at(caller, 3_000, on_miss=pb.MISS_POLICY_SKIP, tolerance_s=60)
    reached = await at(caller, 3_590, on_miss=pb.MISS_POLICY_SKIP, tolerance_s=60, key="reached")
    house.wall_moved = 3_600 * SECOND
    await trio.sleep(NOTICED)
    assert [key for key, _ in runner.leases] == ["reached"]
    assert (await caller.wait(skipped)).status == TaskStatus.MISSED
    assert (await caller.wait(reached)).status == TaskStatus.SUCCEEDED


async def test_a_start_waits_when_the_clock_is_put_back(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    caller, runner = house.caller(), await running(house, nursery)
    await at(caller, 10, key="early")
    await trio.sleep(9.95)  # between two ticks, and its slot is held already
    house.wall_moved = -300 * SECOND
    await trio.sleep(250)
    assert runner.leases == [], "its time had not come by any clock"
    await trio.sleep(60)
    assert runner.leases == [("early", pytest.approx(10, abs=0.002))]


# --- schedules


async def add(caller: Caller, cron: str, **template: Any) -> None:
    spec = pb.TaskSpec(key="often", **template)
    request = pb.RecurringRequest(name="often", cron=cron, template=spec, overlap=pb.OVERLAP_ALLOW)
    assert isinstance(await caller.call("Admin/AddRecurring", request, pb.Empty), pb.Empty)


def minutes(runner: Runner, since: int = 0) -> list[str]:
    """The starts of the leases after the first `since`, without day and seconds, which must be 0."""
    found = [key for key, _ in runner.leases[since:]]
    assert all(key.startswith("often@2023-11-14T") and key.endswith(":00Z") for key in found)
    return [key[17:22] for key in found]


async def every_minute(house: House, nursery: trio.Nursery, **template: Any) -> Runner:
    """A schedule that has fired at 22:14 and 22:15; it is 22:15:40 (`WALL` is 22:13:20)."""
    runner = await running(house, nursery)
    await add(house.caller(), "* * * * *", **template)
    await trio.sleep(140)
    assert minutes(runner) == ["22:14", "22:15"]
    assert all(second % 60 == pytest.approx(40, abs=0.002) for _, second in runner.leases), "on time"
    return runner


async def test_a_schedule_goes_on_from_the_present_when_the_clock_is_put_forward(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    """One fire that passed runs late, the others are dropped and counted."""
    runner = await every_minute(house, nursery)
    house.wall_moved = 10 * MINUTE
    await trio.sleep(NOTICED)
    assert minutes(runner, 2) == ["22:25"], "the latest one"
    await trio.sleep(61)
    assert minutes(runner, 3) == ["22:26"]
    assert runner.leases[3][1] % 60 == pytest.approx(40, abs=0.002)
    service = house.server.terms.service
    assert service is not None and service.engine.recurring.dropped["missed"] == 9


async def test_an_occurrence_that_was_made_ahead_waits_for_its_time_or_runs_late(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    """Its task exists when the clock is set: it is not made again, and it is not forgotten."""
    runner = await every_minute(house, nursery)
    await trio.sleep(19)
    house.wall_moved = -10 * SECOND
    await trio.sleep(10.9)
    assert minutes(runner, 2) == [], "it has a slot already, but its time has not come"
    await trio.sleep(0.2)
    assert minutes(runner, 2) == ["22:16"]
    await trio.sleep(58.4)  # half a second before 22:17
    house.wall_moved += 10 * MINUTE
    await trio.sleep(NOTICED)
    assert minutes(runner, 3) == ["22:17"], "the one that was there is the one that runs late"
    await trio.sleep(40)
    assert minutes(runner, 3) == ["22:17", "22:27"], "and the schedule goes on from the present"


async def test_a_schedule_repeats_nothing_when_the_clock_is_put_back(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    runner = await every_minute(house, nursery)
    house.wall_moved = -5 * MINUTE
    await trio.sleep(300)
    assert minutes(runner, 2) == [], "all of these minutes have been dealt with"
    await trio.sleep(60)
    assert minutes(runner, 2) == ["22:16"]
    assert runner.leases[2][1] % 60 == pytest.approx(40, abs=0.002)


@pytest.mark.parametrize("step", [15 * SECOND, -20 * SECOND, SECOND, -SECOND, SECOND // 10])
async def test_the_next_fire_is_on_time_by_the_clock_as_it_is_now(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery, step: int
) -> None:
    """Forward by less than its time is away, or back: it starts at the full minute that the clock shows."""
    runner = await every_minute(house, nursery)
    house.wall_moved = step
    await trio.sleep(60)
    assert minutes(runner, 2)[:1] == ["22:16"]
    assert runner.leases[2][1] % 60 == pytest.approx(40, abs=0.002)
