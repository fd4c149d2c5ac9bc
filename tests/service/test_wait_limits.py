"""A wait ends when its caller said, whatever it is that it waits for, and however events are cut into batches."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings, Settings
from tests.service.harness import Harness


@pytest.fixture
def rig():
    return Harness(Settings())


def running(rig):
    worker = rig.worker()
    rig.submit(key="k")
    rig.durable()
    (lease,) = rig.leases(worker)
    return worker, lease


def ran_out(rig, call):
    rig.advance(SECOND)
    answer = rig.answer(call)
    return answer is not None and answer.code is Code.DEADLINE_EXCEEDED


def test_an_end_whose_commit_hangs(rig):
    worker, lease = running(rig)
    rig.say(worker, m.Complete(lease, b"", ""))
    assert ran_out(rig, rig.call(m.Wait("k", SECOND)))


def test_a_store_that_is_not_asked_because_commits_hang(rig):
    rig.submit(key="held")
    assert ran_out(rig, rig.call(m.Wait("unknown", SECOND)))


@pytest.mark.parametrize("batches", [1, 2])
def test_an_end_in_the_same_read_as_the_wait(rig, batches):
    worker, lease = running(rig)
    call = m.Call("")
    events = [rig.received(call, m.Wait("k", SECOND)), m.WorkerSent(worker, m.Complete(lease, b"", ""))]
    for batch in (events,) if batches == 1 else ([event] for event in events):
        rig.handle(*batch)
    assert ran_out(rig, call)


def test_without_retention_a_cancel_too_late_is_told_once_the_end_is_durable():
    rig = Harness(Settings(limits=replace(LimitSettings(), key_retention_max=0)))
    worker, lease = running(rig)
    call = m.Call("")
    rig.handle(m.WorkerSent(worker, m.Complete(lease, b"", "")), rig.received(call, m.Cancel(1)))
    assert rig.answer(call) is None
    rig.durable()
    assert rig.answer(call) == m.CancelReply(False)


def test_a_failure_without_a_text_says_how_the_task_ended(rig):
    worker, lease = running(rig)
    rig.say(worker, m.Fail(lease, "", True, 0))
    rig.durable()
    assert rig.answer(rig.call(m.Wait("k", SECOND))).message == "failed"
