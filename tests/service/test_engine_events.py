"""What the engine is told, and in which order: capacity comes before whatever could make a wrong slot of it."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings, Settings
from tests.service.harness import Harness, spec

GPU = (("gpu", "1"),)


class Overheard(Harness):
    """A harness that writes down what the engine is told."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.told = []
        handle = self.engine.handle

        def overhear(events, now):
            self.told.append(list(events))
            return handle(events, now)

        self.engine.handle = overhear

    def hears(self, *events):
        """What the engine is told by this batch, call by call."""
        self.told.clear()
        self.handle(*events)
        return self.told


def running(slots, tasks, unsent=0):
    """A worker that holds `tasks` leases, and has `unsent` more that wait for their commit."""
    rig = Overheard()
    stream = rig.worker(slots)
    for _ in range(tasks):
        rig.submit()
    rig.durable()
    for _ in range(unsent):
        rig.submit()
    return rig, stream


def test_a_worker_that_goes():
    """Less capacity first, then the leases that it knew, then those that it never saw, the newest first."""
    rig, stream = running(4, 2, 2)
    told = rig.hears(m.WorkerGone(stream, "reset"))
    assert told == [
        [
            ev.GroupCapacitySet("default", (), 0),
            ev.LeasesLost((1, 2), "worker disconnected"),
            ev.DispatchReturned(4),
            ev.DispatchReturned(3),
        ]
    ]


@pytest.mark.parametrize(
    ("slots", "capacity", "returned"),
    [(4, 4, []), (3, 3, [4]), (2, 2, [4, 3]), (1, 2, [4, 3]), (0, 2, [4, 3]), (9, 9, [])],
)
def test_slots_that_change_while_leases_are_unsent(slots, capacity, returned):
    rig, stream = running(4, 2, 2)
    told = rig.hears(m.WorkerSent(stream, m.SetSlots(slots)))
    returns = [ev.DispatchReturned(lease) for lease in returned]
    assert told == [[ev.GroupCapacitySet("default", (), capacity), *returns]]


OUTCOMES = [
    (m.Complete(1, b"out", "t"), ev.AttemptSucceeded(1, b"out", "t")),
    (m.Fail(1, "no", True, 7), ev.AttemptFailed(1, "no", True, 7)),
    (m.AttemptAborted(1), ev.AttemptCancelled(1)),
    (m.Nack(1, "no"), ev.AttemptNacked(1, "no", ())),
]


@pytest.mark.parametrize(("message", "event"), OUTCOMES)
def test_an_outcome(message, event):
    """The slot comes free: nothing to say about capacity. A refused lease does not come back to the same worker."""
    rig, stream = running(2, 2)
    assert rig.hears(m.WorkerSent(stream, message)) == [[event]]


@pytest.mark.parametrize(("message", "event"), OUTCOMES)
def test_an_outcome_of_an_overcommitted_worker(message, event):
    rig, stream = running(3, 3)
    rig.say(stream, m.SetSlots(1))
    told = rig.hears(m.WorkerSent(stream, message))
    assert told == [[ev.GroupCapacitySet("default", (), 2), event]]


def test_an_abort_of_an_overcommitted_worker_is_put_right_in_the_same_step():
    rig, stream = running(2, 2)
    rig.submit()
    rig.durable()
    rig.say(stream, m.SetSlots(1))
    told = rig.hears(rig.received(m.Call(""), m.Cancel(1)))
    assert [type(event).__name__ for batch in told for event in batch] == [
        "TaskCancelled",
        "GroupCapacitySet",
        "DispatchReturned",
    ]
    assert told[1][0] == ev.GroupCapacitySet("default", (), 1)
    assert rig.engine.tasks.live[3].attempt == 0, "the task has lost nothing"


def test_a_refusal_names_each_group_with_a_free_worker_that_has_not_refused():
    rig = Overheard()
    first = rig.worker(2)
    rig.submit()
    rig.durable()
    assert rig.hears(m.WorkerSent(first, m.Nack(1, "")))[0] == [ev.AttemptNacked(1, "", ())]
    rig.worker(1, gpu="1")
    rig.worker(0, host="full")
    rig.worker(1, pool="default", host="other")
    rig.advance(2 * SECOND)
    rig.durable()
    (lease,) = rig.leases(first)
    told = rig.hears(m.WorkerSent(first, m.Nack(lease, "")))
    assert told[0] == [ev.AttemptNacked(lease, "", (GPU, (("host", "other"),)))]


def test_a_read_is_one_step_however_much_it_brings():
    rig, stream = running(3, 3)
    reports = [m.WorkerSent(stream, m.Complete(lease, b"", "")) for lease in (1, 2, 3)]
    submits = [rig.received(m.Call(""), m.Submit(spec(), False, None)) for _ in range(3)]
    assert [len(batch) for batch in rig.hears(*reports, *submits)] == [6]


def test_what_is_stale_is_not_the_engines_business():
    rig, _ = running(1, 1)
    other = rig.worker()
    stale = [m.Complete(1, b"", ""), m.Fail(1, "", False, 0), m.AttemptAborted(1), m.Nack(1, ""), m.Heartbeat(1)]
    assert rig.hears(*[m.WorkerSent(other, message) for message in stale]) == []
    assert rig.engine.totals.stale_completions == 3


def test_an_output_that_is_too_large():
    rig = Overheard(Settings(limits=replace(LimitSettings(), max_message_bytes=4096)))
    stream = rig.worker()
    rig.submit()
    rig.durable()
    ((event,),) = rig.hears(m.WorkerSent(stream, m.Complete(1, b"x" * 4000, "")))
    assert event.permanent and "4000" in event.message and "3072" in event.message
