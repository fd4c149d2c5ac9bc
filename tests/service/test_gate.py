"""Who is let in: every phase, with and without store pressure, for every request."""

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.spec import RecurringSpec
from tests.service.harness import Harness, spec

REQUESTS = {
    "submit": m.Submit(spec(key="new"), False, None),
    "cancel": m.Cancel("busy"),
    "get": m.Get("busy"),
    "wait": m.Wait("busy", SECOND),
    "snapshot": m.GetSnapshot(),
    "add": mr.AddRecurring(RecurringSpec("new", "* * * * *", "", spec())),
    "remove": mr.RemoveRecurring("old"),
    "schedules": mr.ListRecurring(),
}
ADDS_WORK = ("submit", "add")
TAKES_WORK_AWAY = ("cancel", "remove")
SERVING, STOPPING, STOPPED = "serving", "stopping", "stopped"


def world(phase, pressure):
    rig = Harness()
    worker = rig.worker()
    rig.submit(key="busy")
    rig.durable()
    rig.call(mr.AddRecurring(RecurringSpec("old", "0 0 1 1 *", "", spec())))
    rig.durable()
    if phase != SERVING:
        rig.handle(m.StopRequested(10 * SECOND))
    if phase == STOPPED:
        rig.say(worker, m.Complete(1, b"", ""))
    if pressure:
        rig.handle(m.StorePressure("the disk is full"))
    return rig


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("pressure", [False, True])
@pytest.mark.parametrize("phase", [SERVING, STOPPING, STOPPED])
def test_who_is_let_in(phase, pressure, name):
    rig = world(phase, pressure)
    call = rig.call(REQUESTS[name])
    answer = rig.answer(call)
    if phase == STOPPED:
        assert answer.code is Code.UNAVAILABLE and "stopped" in answer.message
    elif name in ADDS_WORK and phase == STOPPING:
        assert answer.code is Code.UNAVAILABLE and "stopping" in answer.message
    elif pressure and name in ADDS_WORK + TAKES_WORK_AWAY:
        assert answer.code is Code.UNAVAILABLE and "the disk is full" in answer.message
    else:
        assert not isinstance(answer, m.Reject) and getattr(answer, "code", None) is None


@pytest.mark.parametrize(("phase", "allowed"), [(SERVING, True), (STOPPING, True), (STOPPED, False)])
@pytest.mark.parametrize("pressure", [False, True])
def test_workers_may_come_until_the_stop_is_over(phase, allowed, pressure):
    rig = world(phase, pressure)
    stream = rig.worker() if allowed else rig.connect()
    assert rig.peers[stream].registered == allowed
    assert rig.peers[stream].closed != allowed


@pytest.mark.parametrize(
    ("events", "held"),
    [
        ([], False),
        ([m.StorePressure("x")], True),
        ([m.StorePressure("x"), m.StorePressure("y"), m.StorePressure(None)], False),
        ([m.StopRequested(SECOND)], True),
        ([m.StopRequested(SECOND), m.StorePressure("x"), m.StorePressure(None)], True),
        ([m.StorePressure("x"), m.StopRequested(SECOND), m.StorePressure(None)], True),
        ([m.StorePressure(None)], False),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_dispatch_is_held_exactly_while_stopping_or_under_pressure(events, held, together):
    rig = world(SERVING, False)
    rig.submit(key="waits for a slot")
    for batch in [events] if together else [[event] for event in events]:
        rig.handle(*batch)
    before = rig.engine.totals.dispatched
    rig.worker()
    assert rig.engine.totals.dispatched - before == (0 if held else 1)


def test_a_refused_call_costs_no_budget_and_sets_no_timer():
    rig = world(STOPPING, True)
    before = rig.service.statistics()
    for _ in range(10):
        rig.call(REQUESTS["submit"], deadline=5 * SECOND)
    assert rig.service.statistics() == before
