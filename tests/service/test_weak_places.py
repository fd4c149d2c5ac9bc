"""What server.md section 14 asks to do differently from the reference, by its numbers."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Code
from cronoq_sansio.limits import MAX_UNREGISTERED_STREAMS
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings, OutputSettings, PoolSettings, Settings
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_recurring import decode_add_recurring
from tests.service.harness import Harness, spec

TIGHT = Settings(limits=replace(LimitSettings(), max_concurrent_requests=1, key_retention=5 * SECOND))


def finish(rig, stream, output=b"out"):
    """The worker completes what it has, durably."""
    for lease in rig.leases(stream):
        rig.say(stream, m.Complete(lease, output, "text/plain"))
    rig.durable()


def test_14_4_waits_watches_and_unregistered_streams_starve_nobody():
    """Each kind of call has a budget of its own: at the limit of all others a worker registers and tasks finish."""
    rig = Harness(TIGHT)
    rig.submit(key="a")
    rig.durable()
    waits = [rig.call(m.Wait("a", None)) for _ in range(50)]
    watches = [rig.watch() for _ in range(50)]
    for _ in range(MAX_UNREGISTERED_STREAMS - 1):
        rig.connect()
    stream = rig.worker()
    rig.durable()
    assert rig.answer(rig.call(m.Get("a"))).task_id == 1, "a request has room"
    finish(rig, stream)
    assert all(rig.answer(call).output == b"out" for call in waits)
    assert all(rig.told(call) == [(1, "SUCCEEDED")] for call in watches)


def test_14_4_too_many_unregistered_streams_leave_registered_ones_and_calls_alone():
    rig = Harness(TIGHT)
    stream = rig.worker()
    for _ in range(2 * MAX_UNREGISTERED_STREAMS):
        rig.connect()
    another = rig.worker()
    assert not rig.peers[stream].closed and not rig.peers[another].closed
    rig.submit(key="a")
    rig.durable()
    finish(rig, stream)
    assert rig.answer(rig.call(m.Wait("a", None))).output == b"out"


@pytest.mark.parametrize("volatile", [True, False])
@pytest.mark.parametrize("passed", [0, 4, 6, 3_600])
@pytest.mark.parametrize("outputs", [OutputSettings(), OutputSettings(cache_entries=0), OutputSettings(info_entries=0)])
def test_14_11_wait_answers_wherever_get_does(volatile, passed, outputs):
    """Before and after key retention, with and without caches, with a store and without one."""
    rig = Harness(replace(TIGHT, outputs=outputs), volatile=volatile)
    stream = rig.worker()
    rig.submit(key="a")
    rig.durable()
    finish(rig, stream)
    rig.advance(passed * SECOND)
    for ref in (1, "a", 2, "b"):
        answers = []
        for request in (m.Get(ref), m.Wait(ref, None)):
            call = rig.call(request)
            while rig.queries:
                rig.answer_store()
            answers.append(rig.answer(call))
        get, wait = answers
        if isinstance(get, m.TaskInfo):
            assert isinstance(wait, m.TaskResult), (get, wait)
            assert (get.task_id, get.status) == (wait.task_id, wait.status)
            assert get.output_available == (wait.output is not None)
        else:
            assert get.code is wait.code is Code.NOT_FOUND


@pytest.mark.parametrize(("wait_timeout", "deadline"), [(2 * SECOND, None), (None, 2 * SECOND), (0, None)])
def test_14_22_a_waiting_submit_that_times_out_names_its_task(wait_timeout, deadline):
    rig = Harness()
    call = rig.call(m.Submit(spec(key="a"), True, wait_timeout), deadline=deadline)
    rig.durable()
    rig.advance(2 * SECOND)
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED
    assert rig.answer(call).details == (("cronoq-task-id", "1"),)


def test_14_22_not_before_the_task_is_stored():
    """An id that is told must not be taken back by a crash (server.md, "Decided")."""
    rig = Harness()
    call = rig.call(m.Submit(spec(key="a"), True, None), deadline=2 * SECOND)
    rig.advance(2 * SECOND)
    assert rig.answer(call).code is Code.DEADLINE_EXCEEDED and rig.answer(call).details == ()


def test_14_28_a_batch_error_names_the_member():
    rig = Harness()
    refused = rig.answer(rig.call(m.SubmitBatch((spec(), spec("nowhere"), spec()))))
    assert refused.message == "task[1]: unknown pool 'nowhere'"
    assert refused.details == (("cronoq-batch-index", "1"),)


def test_14_31_a_listing_looks_at_no_output_and_at_live_tasks_of_its_pools_alone(monkeypatch):
    """It asks the store once, without outputs, and the engine for a bounded part of the wanted pools."""
    rig = Harness(Settings(pools=(PoolSettings("a"), PoolSettings("b"))))
    rig.call(m.SubmitBatch(tuple([spec("b")] * 50 + [spec("a")])))
    rig.durable()
    looked = []
    live = rig.engine.tasks.live

    class Counted(dict):
        def get(self, task_id, default=None):
            looked.append(task_id)
            return live.get(task_id, default)

    monkeypatch.setattr(rig.engine.tasks, "live", Counted(live))
    call = rig.call(m.ListTasks(("a",), (), 0, 0))
    (query,) = rig.queries.values()
    assert type(query) is m.ListFinished, "a query that has no word for outputs"
    assert looked == [51]
    rig.answer_store()
    assert [info.task_id for info in rig.answer(call).tasks] == [51]


@pytest.mark.parametrize("volatile", [True, False])
def test_14_35_a_success_shows_no_error_of_an_earlier_attempt(volatile):
    rig = Harness(volatile=volatile)
    stream = rig.worker()
    watcher = rig.watch()
    rig.submit(key="a")
    rig.durable()
    rig.say(stream, m.Fail(rig.leases(stream)[0], "boom", False, 0))
    rig.durable()
    assert rig.answer(rig.call(m.Get("a"))).message == "boom"
    rig.advance(60 * SECOND)
    rig.durable()
    finish(rig, stream)
    for request in (m.Get("a"), m.Wait("a", None)):
        assert rig.answer(rig.call(request)).message == ""
    listing = rig.call(m.ListTasks((), (), 0, 0))
    while rig.queries:
        rig.answer_store()
    assert rig.answer(listing).tasks[0].message == ""
    assert rig.events[watcher][-1].message == ""


@pytest.mark.parametrize(("on_miss", "end"), [(pb.MISS_POLICY_SKIP, "MISSED"), (pb.MISS_POLICY_FAIL, "FAILED")])
def test_14_6_tolerance_and_miss_policy_of_a_template_are_applied(on_miss, end):
    """From the bytes of the request to the end of an occurrence for which no worker came in time."""
    request = pb.RecurringRequest(name="often", cron="* * * * *", template=pb.TaskSpec(tolerance_s=7, on_miss=on_miss))
    rig = Harness()
    rig.call(decode_add_recurring(request.SerializeToString(), rig.settings.limits))
    rig.durable()
    watch = rig.watch(all_transitions=True)
    rig.advance(20 * SECOND)  # the clock begins 20 s before a full minute
    rig.durable()
    assert rig.told(watch) == [(1, "BLOCKED"), (1, "SCHEDULED"), (1, "READY")]
    rig.advance(7 * SECOND)
    assert not rig.waiting, "in time until then"
    rig.advance(1)
    rig.durable()
    assert rig.told(watch) == [(1, end)]


@pytest.mark.parametrize(
    "cron", ["0 0 12 * * ? 2027", "@daily", "@reboot", "0 0 31 2 *", "0 0 30 2 *", "0 0 * * 8", "* * * *", ""]
)
def test_14_6_what_is_no_cron_of_five_or_six_fields_or_never_fires_is_refused(cron):
    request = pb.RecurringRequest(name="often", cron=cron)
    rig = Harness()
    answer = rig.answer(rig.call(decode_add_recurring(request.SerializeToString(), rig.settings.limits)))
    assert answer.code is Code.INVALID and answer.message.startswith("cron: ")
