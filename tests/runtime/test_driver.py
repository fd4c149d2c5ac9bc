"""The driver: one step per call, nothing re-entrant, faults end the term, time that nobody could use is excused."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.faults import TermEnded
from cronoq._stores.base import StoreUnavailable
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import Stalled, TimerFired, WallClockMoved
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import FindTask, ListFinished, StoreAnswered, StoredPage
from tests.runtime.fakes import Explode, Say, Stage, Write


@pytest.fixture
async def stage(nursery: trio.Nursery) -> AsyncIterator[Stage]:
    stage = Stage()
    nursery.start_soon(stage.run)
    await stage.settle()
    yield stage
    nursery.cancel_scope.cancel()


async def test_events_of_one_call_are_one_step_and_one_flush(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Say("a"), Say("b"), Say("c")])
    assert stage.said == ["a", "b", "c"]
    assert len(stage.machine.batches) == 1
    assert stage.performer.flushes == 1


async def test_what_needs_no_commit_is_said_before_handle_returns(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("durable"), Say("now")])
    assert stage.said == ["now"]
    await stage.settle()
    stage.store.decide()
    await stage.settle()
    assert stage.said == ["now", "durable"]


async def test_events_that_arise_while_flushing_are_the_next_step(autojump_clock: MockClock, stage: Stage) -> None:
    stage.performer.answers["a"] = [Say("b")]
    stage.performer.answers["b"] = [Say("c")]
    stage.driver.handle([Say("a")])
    assert stage.said == ["a", "b", "c"]
    assert [len(batch) for batch in stage.machine.batches] == [1, 1, 1]


async def test_a_volatile_store_has_what_was_said_when_a_later_step_breaks(autojump_clock: MockClock) -> None:
    """An event that arises while flushing breaks the machine; the next term must know what the caller was told."""
    stage = Stage(volatile=True)
    stage.performer.answers["a"] = [Explode()]
    with pytest.raises(TermEnded):
        stage.driver.handle([Write("a")])
    assert stage.said == ["a"] and list(stage.store.stored) == [1]


async def test_handle_called_while_performing_waits_for_its_turn(autojump_clock: MockClock, stage: Stage) -> None:
    def again(text: str) -> None:
        if text == "a":
            stage.driver.handle([Say("inner")])
            assert stage.said == ["a"], "performed in the middle of another step"

    stage.performer.on_say = again
    stage.driver.handle([Say("a"), Say("b")])
    assert stage.said == ["a", "b", "inner"]


async def test_a_raise_in_the_machine_ends_the_term(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("first")])
    await stage.settle()
    with pytest.raises(TermEnded) as caught:
        stage.driver.handle([Say("x"), Explode()])
    assert caught.value.events == "Say, Explode"
    assert "KeyError at" in str(caught.value) and "secret" not in str(caught.value), "no data in the reason"
    assert stage.performer.over
    with pytest.raises(TermEnded):
        stage.driver.handle([Say("too late")])
    assert stage.said == []
    await stage.settle()
    assert stage.ended is None, "left while the store was still writing"
    stage.store.decide()
    await stage.settle()
    assert isinstance(stage.ended, TermEnded)
    assert stage.said == [], "an answer of a term that is over"


async def test_no_batch_is_begun_after_the_end(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("first")])
    await stage.settle()
    stage.driver.handle([Write("second")])
    stage.driver.end(TermEnded("over"))
    stage.store.decide()
    await stage.settle()
    assert len(stage.store.tried) == 1


async def test_the_timer_fires_when_it_is_due_and_not_before(autojump_clock: MockClock, stage: Stage) -> None:
    due = stage.clock.now() + 100_000_000
    stage.machine.due = due
    stage.driver.handle([Say("armed")])
    await trio.sleep(0.09)
    assert TimerFired() not in stage.machine.seen
    await trio.sleep(0.02)
    assert TimerFired() in stage.machine.seen


async def test_a_timer_far_away_costs_nothing_and_still_fires(autojump_clock: MockClock, stage: Stage) -> None:
    stage.machine.due = stage.clock.now() + 60 * SECOND
    stage.driver.handle([Say("armed")])
    await trio.sleep(59.9)
    assert stage.machine.seen == []
    await trio.sleep(0.2)
    assert TimerFired() in stage.machine.seen


async def test_work_that_is_due_now_does_not_look_like_a_stall(autojump_clock: MockClock, stage: Stage) -> None:
    stage.machine.due = stage.clock.now() - 100 * SECOND
    stage.machine.busy = True
    stage.driver.handle([Say("more to do")])
    await trio.sleep(0)
    await trio.sleep(0)
    await trio.sleep(0)
    stage.machine.busy = False
    await stage.settle()
    assert TimerFired() in stage.machine.seen
    assert not any(isinstance(event, Stalled) for event in stage.machine.seen)


async def test_a_stopped_process_is_excused_before_timers_act(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage()
        nursery.start_soon(stage.run)
        await stage.settle()
        stage.machine.due = stage.clock.now() + 30 * SECOND
        stage.driver.handle([Say("lease")])
        seen_first: list[str] = []

        async def reader() -> None:
            await trio.sleep(40)  # data came while the process stood still: it is read in the same pass
            seen_first.extend(type(event).__name__ for event in stage.machine.seen)
            await trio.lowlevel.checkpoint()
            stage.driver.handle([Say("heartbeat")])
            stage.machine.due = None

        nursery.start_soon(reader)
        await stage.settle()
        mock_clock.jump(40)
        await stage.settle()
        kinds = [type(event) for event in stage.machine.seen]
        assert kinds == [Stalled], "the timer acted although what was readable had not been read"
        assert stage.machine.seen[0].lateness == pytest.approx(39.75 * SECOND, rel=0.01)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("moved", [5 * SECOND, -5 * SECOND])
async def test_the_wall_clock_is_followed_both_ways(autojump_clock: MockClock, stage: Stage, moved: int) -> None:
    stage.wall_moved = moved
    await trio.sleep(0.3)
    assert [event for event in stage.machine.seen if isinstance(event, WallClockMoved)] == [WallClockMoved(moved)]
    await trio.sleep(10)
    assert len(stage.machine.seen) == 1, "told again although nothing moved"


async def test_the_wall_clock_is_looked_at_before_a_timer_acts(autojump_clock: MockClock, stage: Stage) -> None:
    """A start that was due by a clock which has been put back is not due any more, and the machine knows it in time."""
    stage.machine.due = stage.clock.now() + SECOND // 10
    stage.driver.handle([Say("armed")])
    stage.wall_moved = -5 * SECOND
    await trio.sleep(0.12)
    assert stage.machine.seen == [WallClockMoved(-5 * SECOND), TimerFired()]


async def test_a_step_of_the_wall_clock_is_noticed_within_a_tick(autojump_clock: MockClock, stage: Stage) -> None:
    await trio.sleep(0.9)
    stage.wall_moved = 3_600 * SECOND
    await trio.sleep(limits.TICK / SECOND + 0.001)
    assert stage.machine.seen == [WallClockMoved(3_600 * SECOND)]


async def test_small_differences_of_the_wall_clock_are_left_alone(autojump_clock: MockClock, stage: Stage) -> None:
    stage.wall_moved = 40_000_000
    await trio.sleep(10)
    assert stage.machine.seen == []


async def test_the_store_is_asked_and_its_troubles_are_answers(autojump_clock: MockClock, stage: Stage) -> None:
    query = FindTask(1, 7, False)
    stage.driver.ask(query)
    await stage.settle()
    assert stage.machine.seen == [StoreAnswered(query, None)]

    page = ListFinished(2, (), (), 7, 1)
    stage.driver.ask(page)
    await stage.settle()
    assert stage.machine.seen[-1] == StoreAnswered(page, StoredPage((), 7))

    def busy(_query: FindTask) -> None:
        raise StoreUnavailable("disk on fire at /secret/path")

    stage.store.found = busy
    stage.driver.ask(query)
    await stage.settle()
    answer = stage.machine.seen[-1].answer
    assert isinstance(answer, Rejection) and answer.code is Code.UNAVAILABLE
    assert "secret" not in answer.message

    def broken(_query: FindTask) -> None:
        raise ZeroDivisionError

    stage.store.found = broken
    stage.driver.ask(query)
    await stage.settle()
    assert stage.machine.seen[-1].answer.code is Code.INTERNAL
    stage.driver.handle([Say("still there")])


async def test_lists_wait_for_each_other_and_a_task_for_none_of_them(
    autojump_clock: MockClock, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def slow(query: ListFinished) -> StoredPage:
        asked.append(query.number)
        await anyio.sleep(1)
        return StoredPage((), query.after)

    monkeypatch.setattr(stage.store, "list", slow)
    most = limits.MAX_STORE_LISTS
    for number in range(1, most + 2):
        stage.driver.ask(ListFinished(number, (), (), 0, 1))
    stage.driver.ask(FindTask(99, 7, False))
    await stage.settle()
    assert len(asked) == most
    assert [seen.query.number for seen in stage.machine.seen] == [99] and stage.performer.looks == []
    await anyio.sleep(2.1)
    assert len(asked) == most + 1
    assert {seen.query.number for seen in stage.machine.seen} == {99, *asked}
    assert stage.performer.looks == [0] * (most + 1), "they are told what each answer took"


async def test_a_volatile_store_is_written_in_the_same_call(autojump_clock: MockClock) -> None:
    stage = Stage(volatile=True)
    stage.driver.handle([Write("done")])
    assert stage.said == ["done"]
    assert list(stage.store.stored) == [1]


async def test_a_volatile_store_never_sees_a_step_that_was_not_whole(autojump_clock: MockClock) -> None:
    stage = Stage(volatile=True)
    with pytest.raises(TermEnded):
        stage.driver.handle([Write("half"), Explode()])
    assert stage.store.stored == {}


def test_the_same_driver_runs_under_asyncio() -> None:
    async def main() -> None:
        stage = Stage()
        async with anyio.create_task_group() as group:
            group.start_soon(stage.run)
            await anyio.wait_all_tasks_blocked()
            stage.machine.due = stage.clock.now() + 1_000_000
            stage.driver.handle([Write("a"), Say("b")])
            stage.driver.ask(FindTask(1, 7, False))
            stage.store.decide()
            with anyio.fail_after(30):
                while len(stage.said) < 2 or len(stage.machine.seen) < 2:
                    await anyio.lowlevel.checkpoint()
            stage.driver.finish()
        assert stage.said == ["b", "a"]
        assert TimerFired() in stage.machine.seen
        assert isinstance(stage.ended, TermEnded)

    anyio.run(main, backend="asyncio")
