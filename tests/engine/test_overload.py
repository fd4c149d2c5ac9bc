"""Bounds and the four policies: who is refused, who gives way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.records import TaskFinished, TaskInserted
from cronoq_sansio.engine.victims import SHED_LOWEST
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.settings import LimitSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Condition, MissPolicy, Priority, TaskStatus
from tests.engine.harness import Rig, attempts, dep, pool, spec, total
from tests.engine.naive_store import NaiveStore

CRITICAL, HIGH, NORMAL, LOW = Priority
CLASSES = list(Priority)
POLICIES = ["reject", "wait", "shed_lowest", "shed_oldest"]
SHEDDING = ["shed_lowest", "shed_oldest"]
OVERLOADED, FULL = Code.OVERLOADED, Code.FULL


def by_class(**bounds):
    """The setting, with the bounds that are named."""
    return tuple(bounds.get(priority.name.lower()) for priority in CLASSES)


def full_rig(bound, policy, priority):
    """One task of each class waits, ids 1 to 4 from critical to low, and this bound is reached for `priority`."""
    pools, limits = {"overflow": policy}, {}
    if bound == "pool":
        pools["max_pending"] = 4
    elif bound == "class":
        pools["max_pending_by_class"] = by_class(**{priority.name.lower(): 1})
    elif bound == "total":
        limits["max_pending_total"] = 4
    else:
        limits["max_payload_bytes"] = 40
    rig = Rig(pool(**pools), limits=LimitSettings(**limits))
    rig.submit(*(spec(priority=each) for each in CLASSES))
    return rig


#: (bound, policy) → what a newcomer of each class gets, critical first: a code, or the id of the task that is shed.
OUTCOMES = {
    ("pool", "reject"): (OVERLOADED,) * 4,
    ("pool", "wait"): (FULL,) * 4,
    ("pool", "shed_lowest"): (4, 4, 4, OVERLOADED),
    ("pool", "shed_oldest"): (4, 4, 4, 4),
    ("class", "reject"): (OVERLOADED,) * 4,
    ("class", "wait"): (FULL,) * 4,
    ("class", "shed_lowest"): (OVERLOADED,) * 4,
    ("class", "shed_oldest"): (OVERLOADED, OVERLOADED, OVERLOADED, 4),
    ("total", "reject"): (OVERLOADED,) * 4,
    ("total", "wait"): (FULL,) * 4,
    ("total", "shed_lowest"): (4, 4, 4, OVERLOADED),
    ("total", "shed_oldest"): (4, 4, 4, 4),
    ("payload", "reject"): (OVERLOADED,) * 4,
    ("payload", "wait"): (OVERLOADED,) * 4,
    ("payload", "shed_lowest"): (OVERLOADED,) * 4,
    ("payload", "shed_oldest"): (OVERLOADED,) * 4,
}
CASES = [(bound, policy, priority) for bound, policy in OUTCOMES for priority in CLASSES]

SETTINGS = {
    "pool": "pool 'default' has 4 pending tasks, its max_pending is 4",
    "class": "pool 'default' has 1 pending task of class {0}, its max_pending_by_class.{0} is 1",
    "total": "the server has 4 pending tasks, limits.max_pending_total is 4",
    "payload": "live tasks hold 40 bytes and this one 10, limits.max_payload_bytes is 40",
}


@pytest.mark.parametrize(("bound", "policy", "priority"), CASES)
def test_what_a_newcomer_gets_when_a_bound_is_reached(bound, policy, priority):
    rig = full_rig(bound, policy, priority)
    expected = OUTCOMES[bound, policy][priority]
    step = rig.handle(ev.TaskSubmitted(None, spec(priority=priority)))
    outcome = rig.answers[-1]
    if isinstance(expected, Code):
        assert isinstance(outcome, Rejection) and outcome.code is expected
        assert outcome.message.startswith(SETTINGS[bound].format(priority.name.lower()))
        assert outcome.message.endswith("; retry later") and not step.writes and not rig.ended
    else:
        assert outcome == Submitted(5, False)
        assert rig.status(expected) == "SHED" and list(rig.ended) == [expected]
        assert [type(record) for record in step.writes] == [TaskInserted, TaskFinished]
        assert (total(rig, "shed"), total(rig, "submitted")) == (1, 5)


@pytest.mark.parametrize(("bound", "policy", "priority"), CASES)
def test_below_the_bound_every_class_is_taken_and_nobody_shed(bound, policy, priority):
    rig = full_rig(bound, policy, priority)
    rig.handle(ev.TaskCancelled(None, priority + 1))
    assert rig.submit(spec(priority=priority)) == [5]
    assert list(rig.ended) == [priority + 1]


def test_the_first_bound_is_the_one_that_is_named():
    rig = Rig(pool(max_pending=1, max_pending_by_class=by_class(low=1)), limits=LimitSettings(max_pending_total=1))
    rig.submit(spec(priority=LOW))
    assert "its max_pending is 1" in rig.refused(spec(priority=LOW)).message
    rig = Rig(pool(max_pending_by_class=by_class(low=1)), limits=LimitSettings(max_pending_total=1))
    rig.submit(spec(priority=LOW))
    assert "max_pending_by_class.low is 1" in rig.refused(spec(priority=LOW)).message
    assert "max_pending_total is 1" in rig.refused(spec(priority=HIGH)).message


def test_bounds_of_one_class_leave_the_others_alone():
    rig = Rig(pool(max_pending_by_class=by_class(low=1, high=2)))
    rig.submit(spec(priority=LOW), spec(priority=HIGH), spec(priority=HIGH))
    assert rig.refused(spec(priority=LOW)).code is OVERLOADED
    assert rig.refused(spec(priority=HIGH)).code is OVERLOADED
    assert len(rig.submit(*(spec(priority=NORMAL) for _ in range(9)), spec(priority=CRITICAL))) == 10


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("may_wait", [False, True])
@pytest.mark.parametrize(
    ("bounds", "limits", "words"),
    [
        ({"max_pending": 0}, {}, "never has more than 0 pending tasks, its max_pending is 0; raise it"),
        (
            {"max_pending_by_class": by_class(low=0)},
            {},
            "pending tasks of class low, its max_pending_by_class.low is 0",
        ),
        ({}, {"max_pending_total": 0}, "limits.max_pending_total is 0; raise it"),
        ({}, {"max_payload_bytes": 9}, "the task has 10 bytes, limits.max_payload_bytes is 9; send less, or raise it"),
        ({"max_pending": 0}, {"max_payload_bytes": 9}, "send less, or raise it"),
    ],
)
def test_what_could_never_fit_is_overloaded_at_once(policy, may_wait, bounds, limits, words):
    rig = Rig(pool(overflow=policy, **bounds), limits=LimitSettings(**limits))
    rig.handle(ev.TaskSubmitted("r", spec(priority=LOW), may_wait))
    assert rig.answers[-1].code is OVERLOADED and words in rig.answers[-1].message


def test_a_reached_bound_does_not_hide_one_that_is_never_passed():
    rig = Rig(pool(overflow="wait", max_pending=1, max_pending_by_class=by_class(low=0)))
    rig.submit(spec())
    rig.handle(ev.TaskSubmitted("r", spec(priority=LOW), True))
    assert rig.answers[-1].code is OVERLOADED and "raise it" in rig.answers[-1].message


# --- who is shed


@pytest.mark.parametrize(
    ("waiting", "newcomer", "victim"),
    [
        ([LOW, LOW, LOW], NORMAL, 3),  # the latest one
        ([LOW, NORMAL, LOW, HIGH], CRITICAL, 3),
        ([NORMAL, HIGH, NORMAL], HIGH, 3),  # the lowest class that has one
        ([HIGH, HIGH], CRITICAL, 2),
        ([NORMAL, NORMAL], NORMAL, None),  # only what ranks below
        ([NORMAL, HIGH], LOW, None),
        ([CRITICAL, CRITICAL], CRITICAL, None),
    ],
)
def test_shed_lowest(waiting, newcomer, victim):
    check_victim("shed_lowest", waiting, newcomer, victim)


@pytest.mark.parametrize(
    ("waiting", "newcomer", "victim"),
    [
        ([NORMAL, LOW, LOW], NORMAL, 2),  # the earliest one
        ([LOW, HIGH, LOW], LOW, 1),  # whoever comes
        ([LOW, HIGH], CRITICAL, 1),
        ([NORMAL, HIGH], CRITICAL, None),  # no other class than low
    ],
)
def test_shed_oldest(waiting, newcomer, victim):
    check_victim("shed_oldest", waiting, newcomer, victim)


def check_victim(policy, waiting, newcomer, victim):
    rig = Rig(pool(overflow=policy, max_pending=len(waiting)))
    rig.submit(*(spec(priority=priority) for priority in waiting))
    if victim is None:
        refusal = rig.refused(spec(priority=newcomer))
        why = f"no ready task ranks below {newcomer.name.lower()}" if policy == SHED_LOWEST else "no low task is ready"
        assert refusal.code is OVERLOADED and refusal.message.endswith(f", and {why}; retry later")
    else:
        rig.submit(spec(priority=newcomer))
        assert list(rig.ended) == [victim]


def test_the_message_of_a_victim_says_what_happened():
    rig = Rig(pool(overflow="shed_lowest", max_pending=1))
    rig.submit(spec("victim", priority=LOW))
    rig.submit(spec(priority=HIGH))
    assert rig.ended[1].task.message == "shed for a task of class high: there was no room in pool 'default'"


@pytest.mark.parametrize("policy", SHEDDING)
def test_running_and_retrying_tasks_are_not_shed(policy):
    rig = Rig(pool(overflow=policy, max_pending=1))
    rig.slots(2)
    running, retrying = rig.submit(spec(priority=LOW)) + rig.submit(spec(priority=LOW))
    rig.slots(0)
    rig.fail(retrying)
    refusal = rig.refused(spec(priority=HIGH))
    assert refusal.code is OVERLOADED and not rig.ended
    assert (rig.status(running), rig.status(retrying)) == ("RUNNING", "RETRYING")


@pytest.mark.parametrize("policy", SHEDDING)
def test_a_task_whose_backoff_is_over_may_be_shed_again(policy):
    rig = Rig(pool(overflow=policy, max_pending=2))
    rig.slots(1)
    rig.submit(spec(priority=LOW, retry=attempts(5)))
    rig.slots(0)
    rig.fail(1)
    rig.submit(spec(priority=NORMAL))
    rig.advance(1 * SECOND)
    rig.submit(spec(priority=HIGH))
    assert rig.status(1) == "SHED" and rig.ended[1].task.attempt == 1


def test_ready_tasks_that_came_back_keep_their_place_in_the_order_of_shedding():
    for policy, victim in (("shed_lowest", 4), ("shed_oldest", 1)):
        rig = Rig(pool(overflow=policy, max_pending=4), release=False)
        rig.submit(*(spec(priority=LOW) for _ in range(4)))
        rig.slots(2)
        leases = [lease.id for lease in rig.leases]
        rig.handle(ev.GroupCapacitySet("default", (), 0), *(ev.DispatchReturned(lease) for lease in leases))
        rig.submit(spec(priority=NORMAL))
        assert list(rig.ended) == [victim]


@pytest.mark.parametrize("policy", SHEDDING)
def test_blocked_tasks_are_not_shed(policy):
    rig = Rig(pool(overflow=policy, max_pending=1))
    rig.slots(1)
    rig.submit(spec("parent"))
    rig.submit(spec(priority=LOW, deps=["parent"]))
    assert rig.refused(spec(priority=HIGH)).code is OVERLOADED
    rig.slots(0)
    rig.complete(1)
    rig.submit(spec(priority=HIGH))
    assert rig.status(2) == "SHED", "ready now, and nothing else changed"


@pytest.mark.parametrize("policy", SHEDDING)
def test_what_depends_on_a_victim_is_skipped(policy):
    rig = Rig(pool(overflow=policy, max_pending=2))
    rig.submit(spec("victim", priority=LOW), spec(priority=NORMAL, deps=["victim"]))
    rig.submit(spec(priority=HIGH))
    assert (rig.status(1), rig.status(2), rig.status(3)) == ("SHED", "SKIPPED", "READY")
    assert rig.engine.tasks.pending == 1


@pytest.mark.parametrize("policy", SHEDDING)
@pytest.mark.parametrize("condition", list(Condition))
def test_nobody_is_shed_for_a_newcomer_that_waits_for_it(policy, condition):
    rig = Rig(pool(overflow=policy, max_pending=1))
    rig.submit(spec("victim", priority=LOW))
    refusal = rig.refused(spec(priority=HIGH, deps=[dep("victim", condition)]))
    assert refusal.code is OVERLOADED and "depends on" in refusal.message
    assert rig.status(1) == "READY"


@pytest.mark.parametrize("policy", SHEDDING)
def test_nobody_is_shed_for_a_newcomer_that_ends_at_once(policy):
    rig = Rig(pool(overflow=policy, max_pending=1))
    rig.slots(1)
    (failed,) = rig.submit(spec("failed"))
    rig.fail(failed, permanent=True)
    rig.slots(0)
    rig.submit(spec("victim", priority=LOW))
    refusal = rig.refused(spec(priority=HIGH, deps=["failed"]))
    assert refusal.code is OVERLOADED and "never be met" in refusal.message
    assert rig.status(2) == "READY"


@pytest.mark.parametrize("policy", SHEDDING)
@pytest.mark.parametrize("on_miss", [MissPolicy.SKIP, MissPolicy.FAIL])
def test_nobody_is_shed_for_a_newcomer_whose_start_is_missed(policy, on_miss):
    rig = Rig(pool(overflow=policy, max_pending=1))
    rig.submit(spec("victim", priority=LOW))
    late = rig.engine.wall() - 2 * SECOND
    refusal = rig.refused(spec(priority=HIGH, start=late, tolerance=2 * SECOND - 1, on_miss=on_miss))
    assert refusal.code is OVERLOADED and "missed already" in refusal.message
    assert rig.status(1) == "READY"
    rig.submit(spec(priority=HIGH, start=late, tolerance=2 * SECOND, on_miss=on_miss))
    assert rig.status(1) == "SHED"


def test_a_task_that_waits_for_a_resource_may_be_shed():
    rig = Rig(pool(overflow="shed_lowest", max_pending=1), resources=(ResourceSettings("s", "semaphore", permits=1),))
    rig.slots(2)
    rig.submit(spec(resources={"s": 1}))
    rig.submit(spec(priority=LOW, resources={"s": 1}))
    assert rig.status(2) == "READY"
    rig.submit(spec(priority=HIGH, resources={"s": 1}))
    assert (rig.status(2), rig.status(3)) == ("SHED", "READY")
    rig.complete(1)
    assert rig.order() == [1, 3]


def test_only_the_own_pool_gives_way_to_the_bound_of_all_pools():
    rig = Rig(pool("a", overflow="shed_lowest"), pool("b"), limits=LimitSettings(max_pending_total=2))
    rig.submit(spec(pool="b", priority=LOW), spec(pool="b", priority=LOW))
    assert rig.refused(spec(pool="a", priority=HIGH)).code is OVERLOADED
    rig.handle(ev.TaskCancelled(None, 1))
    rig.submit(spec(pool="a", priority=NORMAL))
    rig.submit(spec(pool="a", priority=HIGH))
    assert rig.status(3) == "SHED" and rig.status(2) == "READY"


def test_nothing_is_shed_for_a_submission_that_another_check_refuses():
    rig = Rig(pool(overflow="shed_oldest", max_pending=1))
    rig.submit(spec("k", priority=LOW))
    assert rig.refused(spec(retry=attempts(0))).code is Code.INVALID
    rig.handle(ev.TaskSubmitted(None, spec("k")))
    assert rig.answers[-1] == Submitted(1, True) and not rig.ended


def test_one_step_may_shed_for_each_of_its_submissions():
    rig = Rig(pool(overflow="shed_lowest", max_pending=3))
    rig.submit(*(spec(priority=LOW) for _ in range(3)))
    assert rig.submit(*(spec(priority=NORMAL) for _ in range(3))) == [4, 5, 6]
    assert list(rig.ended) == [3, 2, 1]
    assert rig.refused(spec(priority=NORMAL)).code is OVERLOADED


def test_a_victim_of_its_own_step_is_inserted_and_ends():
    rig = Rig(pool(overflow="shed_lowest", max_pending=1))
    step = rig.handle(ev.TaskSubmitted(1, spec(priority=LOW)), ev.TaskSubmitted(2, spec(priority=HIGH)))
    assert [record.task_id for record in step.writes] == [1, 2, 1]
    assert rig.answers == [Submitted(1, False), Submitted(2, False)] and rig.status(1) == "SHED"


@pytest.mark.parametrize("policy", SHEDDING)
@pytest.mark.parametrize("bound", ["pool", "class", "total"])
def test_bounds_that_were_lowered_refuse_newcomers_and_shed_at_most_one(policy, bound):
    """A deployment with smaller bounds does not throw away what waits, however far above them it is."""
    store = NaiveStore()
    rig = Rig(pool(overflow=policy))
    for _ in range(5):
        store.write(rig.handle(ev.TaskSubmitted(None, spec(priority=LOW))).writes)
    newcomer = LOW if policy == "shed_oldest" else HIGH
    for limit, shed in ((5, 1), (4, 0), (1, 0)):
        lowered = {"pool": {"max_pending": limit}, "class": {"max_pending_by_class": by_class(low=limit)}}
        limits = LimitSettings(max_pending_total=limit) if bound == "total" else LimitSettings()
        settings = Settings(limits=limits, pools=(pool(overflow=policy, **lowered.get(bound, {})),))
        rig.adopt(store.recover(settings, rig.now))
        rig.handle()
        assert rig.engine.tasks.pending == 5 and not rig.ended
        rig.handle(ev.TaskSubmitted(None, spec(priority=newcomer)))
        if bound == "class" and newcomer is HIGH:
            assert type(rig.answers[-1]) is Submitted and not rig.ended  # another class has no bound
        elif shed:
            assert type(rig.answers[-1]) is Submitted and len(rig.ended) == 1
        else:
            assert rig.answers[-1].code is OVERLOADED and not rig.ended
            assert "shedding one task would not make room" in rig.answers[-1].message


# --- batches


@pytest.mark.parametrize(("bound", "policy", "priority"), CASES)
def test_batches_never_shed_and_never_wait(bound, policy, priority):
    rig = full_rig(bound, policy, priority)
    other = Priority((priority + 1) % 4)
    index = 1 if bound == "class" else 0
    refusal = rig.batch_refused(spec(priority=other), spec(priority=priority))
    assert refusal.code is (FULL if policy == "wait" and bound != "payload" else OVERLOADED)
    assert refusal.message.startswith(f"task[{index}]: ") and not rig.ended
    assert refusal.details == (("cronoq-batch-index", str(index)),)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_bound_of_a_class_holds_for_the_sum_of_a_batch(policy):
    rig = Rig(pool(overflow=policy, max_pending_by_class=by_class(low=3)), pool("other"))
    rig.submit(spec(priority=LOW))
    mixed = [spec(priority=LOW), spec(priority=LOW, pool="other"), spec(priority=HIGH), spec(priority=LOW)]
    refusal = rig.batch_refused(*mixed, spec(priority=LOW))
    assert refusal.code is (FULL if policy == "wait" else OVERLOADED)
    assert "has 3 pending tasks of class low, its max_pending_by_class.low is 3" in refusal.message
    assert refusal.details == (("cronoq-batch-index", "4"),)
    assert len(rig.batch(*mixed)) == 4


@pytest.mark.parametrize(
    ("bounds", "limits"),
    [
        ({"max_pending": 2}, {}),
        ({"max_pending_by_class": by_class(normal=2)}, {}),
        ({}, {"max_pending_total": 2}),
        ({}, {"max_payload_bytes": 25}),
    ],
)
def test_a_batch_that_fits_into_no_queue_is_told_so_and_not_to_retry(bounds, limits):
    rig = Rig(pool(overflow="wait", **bounds), limits=LimitSettings(**limits))
    refusal = rig.batch_refused(spec(), spec(), spec())
    assert refusal.code is (OVERLOADED if "max_payload_bytes" in limits else FULL)
    assert refusal.message.endswith("; split the batch, or raise it")
    assert len(rig.batch(spec(), spec())) == 2


# --- everything against a naive evaluation: recount everything, sort everything

BOUNDS = st.sampled_from([None, None, 0, 1, 2, 4])

lives = st.lists(
    st.one_of(
        st.builds(
            lambda priority, name, size: ("submit", spec(pool=name, priority=priority, size=size)),
            st.sampled_from(CLASSES),
            st.sampled_from("ab"),
            st.sampled_from([10, 30]),
        ),
        st.tuples(st.sampled_from(["cancel", "fail", "complete", "take back"]), st.integers(0, 9)),
        st.tuples(st.just("slots"), st.integers(0, 3)),
        st.tuples(st.just("time"), st.sampled_from([1, 2])),
    ),
    min_size=5,
    max_size=40,
)


def naive(engine, settings, limits, item):
    """What must become of a submission: a code, or the id of the victim, or None."""
    live = list(engine.tasks.live.values())
    waiting = [task for task in live if task.status in (TaskStatus.READY, TaskStatus.RETRYING)]
    policy = settings.overflow

    def passed(tasks):
        mine = [task for task in tasks if task.spec.pool == item.pool]
        same = [task for task in mine if task.spec.priority == item.priority]
        bound = settings.max_pending_by_class[item.priority]
        return (
            len(mine) + 1 > settings.max_pending
            or len(tasks) + 1 > limits.max_pending_total
            or (bound is not None and len(same) + 1 > bound)
        )

    if passed([]) or sum(task.spec.size for task in live) + item.size > limits.max_payload_bytes:
        return OVERLOADED
    if not passed(waiting):
        return None
    ready = [task for task in waiting if task.status == TaskStatus.READY and task.spec.pool == item.pool]
    if policy == "shed_lowest":
        ready = [task for task in ready if task.spec.priority > item.priority]
        ready.sort(key=lambda task: (task.spec.priority, task.id))
        victim = ready[-1] if ready else None
    elif policy == "shed_oldest":
        ready = sorted((task for task in ready if task.spec.priority == LOW), key=lambda task: task.id)
        victim = ready[0] if ready else None
    else:
        return FULL if policy == "wait" else OVERLOADED
    if victim is None or passed([task for task in waiting if task is not victim]):
        return OVERLOADED
    return victim.id


def live_on(rig, what, value):
    """Anything else than a submission."""
    engine = rig.engine
    leases = list(engine.leases.live.values())
    live = sorted(engine.tasks.live)
    if what == "slots":
        rig.slots(value, name="a")
    elif what == "time":
        rig.advance(value * SECOND)
    elif what == "cancel" and live:
        rig.handle(ev.TaskCancelled(None, live[value % len(live)]))
    elif what != "cancel" and leases:
        lease = leases[value % len(leases)]
        if what == "take back":
            rig.handle(ev.GroupCapacitySet("a", (), 0), ev.DispatchReturned(lease.id))
        elif what == "complete":
            rig.handle(ev.LeasesReleased((lease.id,)), ev.AttemptSucceeded(lease.id, b"", ""))
        else:
            rig.handle(ev.LeasesReleased((lease.id,)), ev.AttemptFailed(lease.id, "e", False, 0))


@given(
    lives,
    st.sampled_from(POLICIES),
    st.sampled_from([1, 3, 6]),
    st.tuples(BOUNDS, BOUNDS, BOUNDS, BOUNDS),
    st.sampled_from([2, 5, 100]),
    st.sampled_from([60, 1_000]),
)
def test_every_submission_against_the_naive_evaluation(script, policy, bound, classes, all_pools, budget):
    limits = LimitSettings(max_pending_total=all_pools, max_payload_bytes=budget)
    one = pool("a", overflow=policy, max_pending=bound, max_pending_by_class=classes)
    rig = Rig(one, pool("b"), limits=limits, release=False)
    for what, value in script:
        if what != "submit":
            live_on(rig, what, value)
            continue
        expected = naive(rig.engine, rig.engine.pool_settings(value.pool), limits, value)
        ended, next_id = set(rig.ended), rig.engine.tasks.next_id
        rig.handle(ev.TaskSubmitted(None, value))
        shed = set(rig.ended) - ended
        if isinstance(expected, Code):
            assert rig.answers[-1].code is expected and not shed
        else:
            assert rig.answers[-1] == Submitted(next_id, False)
            assert shed == (set() if expected is None else {expected})
