"""Worker streams beside the transcripts: budgets, bounds, and the races between what is decided and what is sent."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import GroupCapacitySet
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_UNREGISTERED_STREAMS, MAX_WORKER_STREAMS
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import LimitSettings, PoolSettings, Settings
from tests.service.harness import START, Harness


def closed_with(performed):
    (action,) = [action for action in performed if isinstance(action, m.CloseWorker)]
    return action.rejection


@pytest.mark.parametrize(
    ("requested", "pool_max", "per_pool", "per_server", "granted"),
    [
        (5, 10, 1024, 1024, 5),
        (50, 10, 1024, 1024, 10),
        (50, 100, 7, 1024, 7),
        (50, 100, 1024, 8, 8),
        (0, 10, 1024, 1024, 0),
        (4_294_967_295, 10, 1024, 1024, 10),
    ],
)
def test_granted_slots_and_what_may_be_queued_for_them(requested, pool_max, per_pool, per_server, granted):
    settings = Settings(
        limits=replace(LimitSettings(), max_slots_per_worker=per_server),
        pools=(PoolSettings(max=pool_max, max_slots_per_worker=per_pool),),
    )
    rig = Harness(settings)
    stream = rig.worker(requested)
    assert rig.peers[stream].slots == granted
    cap = min(pool_max, per_pool, per_server)
    assert stream.max_queued == 2 * cap + 16
    rig.say(stream, m.SetSlots(4_294_967_295))
    assert stream.session.slots == cap


def test_streams_that_have_not_registered_have_a_budget_of_their_own():
    rig = Harness()
    first, second, *_ = [rig.connect() for _ in range(MAX_UNREGISTERED_STREAMS)]
    refusal = closed_with(rig.handle(m.WorkerConnected(m.WorkerStream(""), ANYONE)))
    assert refusal.code is Code.UNAVAILABLE and str(MAX_UNREGISTERED_STREAMS) in refusal.message
    assert rig.peers[first].closed and not rig.peers[second].closed, "the oldest makes room"
    rig.say(second, m.Register("default", 1, "", 3, ()))
    third = rig.connect()
    assert not any(peer.closed for stream, peer in rig.peers.items() if stream is not first), "its place was free again"
    rig.say(third, m.Register("default", 1, "", 3, ()))
    assert rig.peers[third].slots == 1


def test_who_opens_streams_and_never_registers_keeps_no_worker_out():
    rig = Harness()
    for _ in range(5 * MAX_UNREGISTERED_STREAMS):
        rig.connect()
    assert rig.peers[rig.worker()].slots
    assert sum(not peer.closed for peer in rig.peers.values()) == MAX_UNREGISTERED_STREAMS


def test_there_are_at_most_so_many_workers():
    """On the bare service: thousands of workers under the harness's checks would take minutes."""
    settings = Settings()
    service = Service(Engine.fresh(settings, now=START), settings, START)
    for _ in range(MAX_WORKER_STREAMS):
        stream = m.WorkerStream("")
        register = m.Register("default", 1, "", 3, ())
        service.handle([m.WorkerConnected(stream, ANYONE), m.WorkerSent(stream, register)], START)
    step = service.handle([m.WorkerConnected(m.WorkerStream(""), ANYONE)], START)
    refusal = closed_with(service.released(step.at_once, START))
    assert refusal.code is Code.UNAVAILABLE and str(MAX_WORKER_STREAMS) in refusal.message
    service.handle([m.WorkerGone(stream, "reset")], START)
    assert not service.handle([m.WorkerConnected(m.WorkerStream(""), ANYONE)], START).at_once


def test_groups_of_workers_that_left_are_forgotten():
    rig = Harness()
    for number in range(200):
        stream = rig.worker(host=f"host-{number}")
        rig.handle(m.WorkerGone(stream, "reset"))
    statistics = rig.service.statistics()
    assert statistics["worker_groups"] == 0 and statistics["groups"] == 0 and statistics["service_timers"] == 0


def test_a_group_without_slots_is_no_group_of_the_engine_but_its_worker_stays():
    rig = Harness()
    stream = rig.worker(2, host="a")
    rig.say(stream, m.SetSlots(0))
    assert rig.service.statistics()["groups"] == 0
    rig.say(stream, m.SetSlots(1))
    rig.submit()
    rig.durable()
    assert rig.leases(stream) == [1]


def test_a_worker_that_leaves_and_reports_in_the_same_read_has_reported():
    rig = Harness()
    stream = rig.worker(2)
    rig.submit(key="a", attempts=1)
    rig.submit(key="b", attempts=1)
    rig.durable()
    rig.handle(m.WorkerSent(stream, m.Complete(1, b"", "")), m.WorkerGone(stream, "reset"))
    rig.durable()
    assert rig.answer(rig.call(m.Get("a"))).status == 6
    assert rig.answer(rig.call(m.Get("b"))).message == "worker disconnected"


def test_a_cancel_and_a_report_in_one_read_the_first_one_counts():
    rig = Harness()
    stream = rig.worker(2)
    rig.submit(key="a")
    rig.submit(key="b")
    rig.durable()
    cancel = m.Call("")
    rig.handle(rig.received(cancel, m.Cancel("a")), m.WorkerSent(stream, m.Complete(1, b"", "")))
    rig.durable()
    assert rig.answer(cancel) == m.CancelReply(True)
    assert rig.engine.totals.stale_completions == 1
    cancel = m.Call("")
    rig.handle(m.WorkerSent(stream, m.Complete(2, b"", "")), rig.received(cancel, m.Cancel("b")))
    rig.durable()
    assert rig.answer(cancel) == m.CancelReply(False)


def test_two_workers_that_refuse_in_one_read_do_not_get_their_own_leases_back():
    rig = Harness()
    first, second = rig.worker(), rig.worker()
    rig.submit()
    rig.submit()
    rig.durable()
    third = rig.worker(2)
    rig.handle(m.WorkerSent(first, m.Nack(1, "")), m.WorkerSent(second, m.Nack(2, "")))
    assert rig.leases(first) == [2] or rig.leases(third) == [1, 2]
    assert 1 not in rig.leases(first) and 2 not in rig.leases(second)


def test_a_refused_lease_chooses_before_new_ones():
    """The slot that the refusal frees goes to the next task; who has not refused yet gets the refused lease."""
    rig = Harness()
    first = rig.worker()
    rig.submit(key="a")
    rig.submit(key="b")
    rig.durable()
    second = rig.worker()
    rig.say(second, m.Complete(2, b"", ""))
    rig.durable()
    assert rig.leases(second) == [2], "the second task went to the second worker"
    rig.handle(
        m.WorkerSent(second, m.Complete(2, b"", "")),
        rig.received(m.Call(""), m.Submit(rig.engine.tasks.live[1].spec, False, None)),
        m.WorkerSent(first, m.Nack(1, "no")),
    )
    assert rig.leases(second) == [1]


def test_a_slot_that_comes_free_in_the_same_read_counts_for_a_refusal():
    rig = Harness()
    first, second = rig.worker(), rig.worker()
    rig.submit(key="a")
    rig.submit(key="b")
    rig.durable()
    rig.handle(rig.received(m.Call(""), m.Cancel("b")), m.WorkerSent(first, m.Nack(1, "no")))
    assert rig.leases(second) == [1]


def test_what_an_overcommitted_worker_ends_is_no_free_slot():
    rig = Harness()
    stream = rig.worker(3)
    for _ in range(5):
        rig.submit()
    rig.durable()
    rig.say(stream, m.SetSlots(1))
    for lease in (1, 2):
        rig.say(stream, m.Complete(lease, b"", ""))
        assert rig.engine.totals.dispatched == 3
    rig.say(stream, m.Fail(3, "", False, 0))
    rig.durable()
    assert rig.leases(stream) == [4]


def test_refusals_are_forgotten_when_the_task_is_cancelled_meanwhile():
    rig = Harness()
    first = rig.worker()
    rig.submit(key="a")
    rig.durable()
    rig.worker()
    rig.say(first, m.Nack(1, "no"))
    assert rig.service.statistics()["refused_leases"] == 1
    rig.call(m.Cancel("a"))
    assert rig.service.statistics()["refused_leases"] == 0


def test_a_worker_is_told_to_abort_only_what_it_was_sent():
    rig = Harness()
    stream = rig.worker(2)
    rig.submit(key="a")
    rig.durable()
    rig.submit(key="b")
    performed = rig.handle(
        rig.received(m.Call(""), m.Cancel("a")),
        rig.received(m.Call(""), m.Cancel("b")),
    )
    assert [action.message for action in performed] == [m.AbortLease(1, "cancelled")]
    assert rig.durable() and rig.leases(stream) == []


def test_the_output_limit_names_both_sizes_and_leaves_room_for_the_rest():
    limits = replace(LimitSettings(), max_message_bytes=4096)
    rig = Harness(Settings(limits=limits))
    stream = rig.worker(2)
    rig.submit(key="fits")
    rig.submit(key="large")
    rig.durable()
    rig.say(stream, m.Complete(1, b"x" * 3072, ""))
    rig.say(stream, m.Complete(2, b"x" * 3073, ""))
    rig.durable()
    assert rig.answer(rig.call(m.Get("fits"))).status == 6
    large = rig.answer(rig.call(m.Get("large")))
    assert large.status == 7 and "3073" in large.message and "3072" in large.message


def test_a_lease_runs_from_its_release_and_not_from_its_dispatch():
    settings = Settings(pools=(PoolSettings(lease_ttl=5 * SECOND),))
    rig = Harness(settings)
    stream = rig.worker()
    rig.submit(timeout=4 * SECOND)
    rig.advance(3_600 * SECOND)
    rig.durable()
    assert rig.leases(stream) == [1]
    rig.advance(4 * SECOND - 1)
    assert rig.leases(stream) == [1]
    rig.advance(1)
    assert rig.leases(stream) == [] and rig.engine.totals.timeouts == 1


def test_of_a_worker_that_says_numbers_again_and_again_the_engine_hears_the_last():
    """With many label sets each of them costs the engine milliseconds, and one frame holds thousands."""
    rig = Harness()
    stream = rig.worker(2, host="a")
    heard = []
    handle = rig.engine.handle
    rig.engine.handle = lambda events, now: (heard.extend(events), handle(events, now))[1]
    rig.handle(*(m.WorkerSent(stream, m.SetSlots(slots)) for slots in (0, 1) * 500))
    assert [event for event in heard if type(event) is GroupCapacitySet] == [
        GroupCapacitySet("default", (("host", "a"),), 1)
    ]
    rig.submit()
    rig.durable()
    assert rig.leases(stream) == [1]


@pytest.mark.parametrize("request_", [m.ListWorkers(), m.GetSnapshot()])
def test_labels_that_do_not_fit_one_message_are_not_listed(request_):
    settings = Settings(limits=replace(LimitSettings(), max_message_bytes=4_096))
    rig = Harness(settings)
    rig.worker(host="a" * 1_000)
    assert not isinstance(rig.answer(rig.call(request_)), Rejection)
    for letter in "bcd":
        rig.worker(host=letter * 1_000)
    refusal = rig.answer(rig.call(request_))
    assert refusal.code is Code.TOO_LARGE and "limits.max_message_bytes" in refusal.message
    assert "4 workers" in refusal.message or "4 groups" in refusal.message
