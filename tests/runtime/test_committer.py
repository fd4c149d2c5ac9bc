"""Group commit: order, retries, what a slow or lost store does to the term."""

import threading
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.faults import TermEnded
from cronoq._stores.base import Fenced, StoreError, StoreUnavailable
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.events import CascadesHeld, CommitsResumed, CommitsStalled
from cronoq_sansio.service.messages import StorePressure
from tests.runtime.fakes import Report, Say, Stage, Write


@pytest.fixture
async def stage(nursery: trio.Nursery) -> AsyncIterator[Stage]:
    stage = Stage()
    nursery.start_soon(stage.run)
    await stage.settle()
    yield stage
    if stage.store.writing:
        stage.store.decide()
    nursery.cancel_scope.cancel()


async def test_steps_pile_up_while_a_transaction_is_written(autojump_clock: MockClock, stage: Stage) -> None:
    for text in "abc":
        stage.driver.handle([Write(text)])
    assert [batch.steps for batch in stage.store.tried] == [1], "the first one goes at once, without linger"
    stage.store.decide()
    await stage.settle()
    assert stage.said == ["a"]
    assert [(batch.steps, batch.through) for batch in stage.store.tried] == [(1, 1), (2, 3)]
    stage.store.decide()
    await stage.settle()
    assert stage.said == ["a", "b", "c"]


async def test_an_empty_batch_is_never_written(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Say("a")])
    await trio.sleep(10)
    assert stage.store.tried == []


async def test_a_failed_transaction_is_written_again_as_it_was(autojump_clock: MockClock, stage: Stage) -> None:
    stage.store.auto = lambda _batch: StoreUnavailable("busy") if len(stage.store.tried) < 10 else None
    stage.driver.handle([Write("a")])
    stage.driver.handle([Write("b")])
    await trio.sleep(60)
    at = stage.store.tried_at
    pauses = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.0])
    assert all(batch is stage.store.tried[0] for batch in stage.store.tried[:10])
    assert stage.said == ["a", "b"]


async def test_an_outage_ends_the_term_after_the_limit(autojump_clock: MockClock, stage: Stage) -> None:
    stage.store.auto = lambda _batch: StoreUnavailable("disk full")
    stage.driver.handle([Write("a")])
    await trio.sleep(limits.MAX_STORE_OUTAGE / SECOND - 1)
    assert stage.ended is None
    await trio.sleep(8)
    assert isinstance(stage.ended, TermEnded) and "disk full" in str(stage.ended)
    assert stage.performer.over


async def test_other_errors_are_tried_five_times(autojump_clock: MockClock, stage: Stage) -> None:
    stage.store.auto = lambda _batch: StoreError("no such table")
    stage.driver.handle([Write("a")])
    await trio.sleep(10)
    assert len(stage.store.tried) == limits.MAX_COMMIT_TRIES
    assert isinstance(stage.ended, TermEnded) and "no such table" in str(stage.ended)


async def test_a_fenced_term_ends_at_once_and_says_nothing(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    stage.store.decide(Fenced("epoch 7 is over"))
    await stage.settle()
    assert isinstance(stage.ended, TermEnded) and "epoch 7" in str(stage.ended)
    assert stage.said == []
    assert len(stage.store.tried) == 1


async def test_a_slow_commit_parks_leases_and_gives_the_time_back(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    await trio.sleep(1.3)
    assert stage.machine.seen == [CommitsStalled()]
    await trio.sleep(1.7)
    stage.performer.on_say = lambda _text: order.append(len(stage.machine.seen))
    order: list[int] = []
    stage.store.decide()
    await stage.settle()
    assert order == [2], "time is given back before the commit releases anything"
    assert stage.machine.seen == [CommitsStalled(), CommitsResumed(3 * SECOND)]
    assert stage.said == ["a"]


async def test_failing_tries_count_as_one_slow_commit(autojump_clock: MockClock, stage: Stage) -> None:
    stage.store.auto = lambda _batch: StoreUnavailable("busy")
    stage.driver.handle([Write("a")])
    await trio.sleep(3)
    stage.store.auto = lambda _batch: None
    await trio.sleep(4)
    assert [type(event) for event in stage.machine.seen[:2]] == [CommitsStalled, CommitsResumed]
    assert stage.machine.seen[1].duration > 3 * SECOND


async def test_a_commit_older_than_five_seconds_refuses_new_work(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    await trio.sleep(4.9)
    assert stage.performer.held == (False, False)
    await trio.sleep(0.5)
    pressure = [event for event in stage.machine.seen if isinstance(event, StorePressure)]
    assert len(pressure) == 1 and pressure[0].reason
    assert stage.performer.held == (True, False)
    assert not stage.driver.committer.ready
    stage.store.decide()
    await stage.settle()
    assert stage.machine.seen[-1] == StorePressure(None)
    assert stage.performer.held == (False, False)
    assert stage.driver.committer.ready


async def test_too_many_waiting_steps_refuse_new_work(autojump_clock: MockClock, stage: Stage) -> None:
    for _ in range(limits.MAX_WAITING_STEPS):
        stage.driver.handle([Write("a")])
    assert not any(isinstance(event, StorePressure) for event in stage.machine.seen)
    stage.driver.handle([Write("one too many")])
    assert isinstance(stage.machine.seen[-1], StorePressure)
    stage.store.decide()
    await stage.settle()
    assert not stage.driver.committer.ready, "the rest is in flight"
    stage.store.decide()
    await stage.settle()
    assert stage.machine.seen[-1] == StorePressure(None)


async def test_too_many_waiting_bytes_refuse_new_work(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a", limits.MAX_WAITING_BYTES // 2)])
    stage.driver.handle([Write("b", limits.MAX_WAITING_BYTES // 2)])
    assert stage.performer.held == (False, False)
    stage.driver.handle([Write("c", 1)])
    assert stage.performer.held == (True, False)


async def test_pressure_ends_when_less_than_half_of_it_is_left(autojump_clock: MockClock, stage: Stage) -> None:
    """What is in flight counts: else pressure ended with each commit and came back with the next read."""
    third = limits.MAX_WAITING_BYTES // 3
    stage.driver.handle([Write("first")])
    for text in "abc":
        stage.driver.handle([Write(text, third + 1)])
    for _ in range(2):
        assert not stage.driver.committer.ready
        stage.store.decide()
        await stage.settle()
        stage.driver.handle([Write("d", third)])
    for _ in range(2):
        stage.store.decide()
        await stage.settle()
    changes = [bool(event.reason) for event in stage.machine.seen if isinstance(event, StorePressure)]
    assert changes == [True, False]


def held(stage: Stage) -> list[bool]:
    return [event.held for event in stage.machine.seen if isinstance(event, CascadesHeld)]


async def test_too_many_waiting_rows_hold_cascades_and_nothing_else(autojump_clock: MockClock, stage: Stage) -> None:
    half = limits.MAX_WAITING_ROWS // 2
    stage.driver.handle([Write("a", rows=half)])
    stage.driver.handle([Write("b", rows=half)])
    assert held(stage) == [], "so many may wait"
    stage.driver.handle([Write("c")])
    stage.driver.handle([Write("d", rows=half)])
    assert held(stage) == [True], "told once"
    assert stage.driver.committer.ready and stage.performer.held == (False, False)
    stage.performer.on_say = lambda text: told.append((text, held(stage)))
    told: list[tuple[str, list[bool]]] = []
    stage.store.decide()
    await stage.settle()
    assert told == [("a", [True])] and held(stage)[:2] == [True, False], "first what is durable is told"
    assert not any(isinstance(event, StorePressure) for event in stage.machine.seen)


async def test_each_commit_lets_a_portion_of_cascades_go_on(autojump_clock: MockClock, stage: Stage) -> None:
    """Also while others keep the store busy: else dependents would wait for as long as they do."""
    stage.driver.handle([Write("first")])
    for _ in range(3):
        stage.driver.handle([Write("busy", rows=limits.MAX_WAITING_ROWS)])
        stage.store.decide()
        await stage.settle()
    assert held(stage) == [True, False] * 3


async def test_edges_of_new_tasks_are_rows_as_well(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    stage.driver.handle([Write("b", edges=limits.MAX_WAITING_ROWS - 2)])
    assert held(stage) == []
    stage.driver.handle([Write("c")])
    assert held(stage) == [True]


async def test_a_volatile_store_never_holds_cascades(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    stage = Stage(volatile=True)
    nursery.start_soon(stage.run)
    for _ in range(3):
        stage.driver.handle([Write("a", rows=limits.MAX_WAITING_ROWS)])
    await stage.settle()
    assert held(stage) == [] and len(stage.store.tried) == 3
    nursery.cancel_scope.cancel()


async def test_a_transaction_takes_only_so_many_rows(autojump_clock: MockClock, stage: Stage) -> None:
    third = limits.MAX_COMMIT_ROWS // 3  # three of them leave room for a fourth
    stage.driver.handle([Write("first")])
    for text in "abcdefgh":
        stage.driver.handle([Write(text, rows=third)])
    assert stage.driver.committer.waiting() == 9
    said: list[list[str]] = []
    for _ in range(3):
        stage.store.decide()
        await stage.settle()
        said.append(list(stage.said))
    assert [batch.steps for batch in stage.store.tried] == [1, 4, 4]
    assert [batch.rows for batch in stage.store.tried] == [1, 4 * third, 4 * third]
    assert ["".join(texts).removeprefix("first") for texts in said] == ["", "abcd", "abcdefgh"]
    assert stage.driver.committer.waiting() == 0 and not stage.store.writing


async def test_steps_beyond_a_full_transaction_count_as_waiting(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("first")])
    for _ in range(3):
        stage.driver.handle([Write("a", limits.MAX_WAITING_BYTES // 3 + 1, rows=limits.MAX_COMMIT_ROWS)])
    assert not stage.driver.committer.ready
    for _ in range(2):
        stage.store.decide()
        await stage.settle()
        assert not stage.driver.committer.ready
    stage.store.decide()
    await stage.settle()
    assert stage.driver.committer.ready


async def test_outputs_do_not_refuse_new_work_until_very_many_wait(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("first")])
    stage.driver.handle([Report("large", limits.MAX_WAITING_OUTPUT)])
    assert stage.performer.held == (False, False) and stage.driver.committer.ready
    stage.driver.handle([Report("more", 1)])
    assert stage.performer.held == (True, True)
    assert isinstance(stage.machine.seen[-1], StorePressure) and "outputs" in (stage.machine.seen[-1].reason or "")
    stage.store.decide()
    await stage.settle()
    assert stage.performer.held == (True, True), "they are in flight"
    stage.store.decide()
    await stage.settle()
    assert stage.performer.held == (False, False) and stage.driver.committer.ready


async def test_workers_are_held_although_new_work_is_refused_already(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    await trio.sleep(6)
    assert stage.performer.held == (True, False)
    stage.driver.handle([Report("large", limits.MAX_WAITING_OUTPUT + 1)])
    assert stage.performer.held == (True, True)
    stage.store.decide()
    await stage.settle()
    stage.store.decide()
    await stage.settle()
    assert stage.performer.held == (False, False)


async def test_time_in_which_the_process_stood_still_is_not_the_stores(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage()
        nursery.start_soon(stage.run)
        await stage.settle()
        stage.driver.handle([Write("a")])
        mock_clock.jump(40)
        await stage.settle()
        assert not any(isinstance(event, (CommitsStalled, StorePressure)) for event in stage.machine.seen)
        stage.store.decide()
        nursery.cancel_scope.cancel()


async def test_outcomes_may_come_from_another_thread(autojump_clock: MockClock, stage: Stage) -> None:
    stage.driver.handle([Write("a")])
    thread = threading.Thread(target=stage.store.decide)
    thread.start()
    thread.join()  # not awaited: the test's clock would run away meanwhile
    await stage.settle()
    assert stage.said == ["a"]
