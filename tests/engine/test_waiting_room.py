"""Callers within the process that wait for room: who is let in, when, and what is checked again."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import waiting_room
from cronoq_sansio.engine.actions import Answer, CancelOutcome, Submitted
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import Priority
from tests.engine.harness import Rig, attempts, pool, spec

CRITICAL, HIGH, NORMAL, LOW = Priority


class Callers(Rig):
    """A rig that tells by name who was answered, and how."""

    def __init__(self, *pools, **changes):
        self.told: dict[object, object] = {}
        self.order: list[object] = []
        super().__init__(*(pools or (pool(overflow="wait", max_pending=1),)), **changes)

    def take(self, step):
        for action in step.once_durable:
            if type(action) is Answer:
                assert action.request is None or action.request not in self.told, "answered twice"
                self.told[action.request] = action.outcome
                self.order += [action.request]
        super().take(step)

    def wait(self, name, item=None, may_wait=True):
        """Somebody submits a task and may wait; True when the answer came at once."""
        self.handle(ev.TaskSubmitted(name, item or spec(), may_wait))
        return name in self.told

    def id(self, name):
        """The task that somebody got."""
        outcome = self.told[name]
        assert type(outcome) is Submitted, outcome
        return outcome.task_id

    def cancel(self, *names):
        """Cancel tasks in one step."""
        self.handle(*(ev.TaskCancelled(None, self.id(name)) for name in names))

    def waiting(self):
        """How many wait."""
        return self.engine.statistics()["waiting_submissions"]


def test_a_caller_waits_and_is_answered_when_there_is_room():
    rig = Callers()
    assert rig.wait("a") and not rig.wait("b")
    assert rig.waiting() == 1 and rig.engine.next_timeout() is None
    step = rig.handle(ev.TaskCancelled("c", rig.id("a")))
    assert rig.order == ["a", "c", "b"] and rig.id("b") == 2 and rig.waiting() == 0
    (answer,) = [action for action in step.once_durable if type(action) is Answer and action.request == "b"]
    assert answer.after == step.number, "it shows what this step writes"


@pytest.mark.parametrize(
    ("policy", "code"),
    [("reject", Code.OVERLOADED), ("shed_lowest", Code.OVERLOADED), ("shed_oldest", Code.OVERLOADED)],
)
def test_nobody_waits_in_pools_of_another_policy(policy, code):
    rig = Callers(pool(overflow=policy, max_pending=1))
    rig.wait("a")
    assert rig.wait("b") and rig.told["b"].code is code


def test_who_may_not_wait_is_told_that_it_is_full():
    rig = Callers()
    rig.wait("a")
    assert rig.wait("b", may_wait=False) and rig.told["b"].code is Code.FULL
    assert rig.waiting() == 0


@pytest.mark.parametrize("bound", ["pool", "class", "total"])
@pytest.mark.parametrize("priority", list(Priority))
def test_room_under_each_bound_for_each_class(bound, priority):
    pools = {
        "pool": {"max_pending": 1},
        "class": {"max_pending_by_class": tuple(1 if each == priority else None for each in Priority)},
        "total": {},
    }
    limits = LimitSettings(max_pending_total=1) if bound == "total" else LimitSettings()
    rig = Callers(pool(overflow="wait", **pools[bound]), limits=limits)
    rig.wait("a", spec(priority=priority))
    assert not rig.wait("b", spec(priority=priority))
    other = Priority((priority + 1) % 4)
    assert rig.wait("other", spec(priority=other)) == (bound == "class")
    rig.handle(ev.SubmissionWithdrawn("other"))
    rig.cancel("a")
    assert rig.id("b") > rig.id("a")


@pytest.mark.parametrize("how", ["dispatch", "cancel", "batch of both"])
def test_every_way_to_make_room_lets_somebody_in(how):
    rig = Callers(release=False)
    rig.wait("a")
    rig.wait("b")
    if how == "dispatch":
        rig.slots(1)
    elif how == "cancel":
        rig.cancel("a")
    else:
        rig.handle(ev.TaskCancelled(None, 1), ev.GroupCapacitySet("default", (), 1))
    assert rig.id("b") == 2


def test_dispatch_and_letting_in_go_on_until_nothing_changes():
    """A pool of one waiting task and five slots: each one let in starts and makes room for the next, in one step."""
    rig = Callers()
    for name in "abcdefgh":
        rig.wait(name)
    rig.slots(5)
    assert [lease.task.id for lease in rig.leases] == [1, 2, 3, 4, 5]
    assert rig.order == list("abcdef") and rig.waiting() == 2


def test_while_dispatch_is_held_room_is_given_to_those_who_wait():
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.handle(ev.DispatchHeld(True))
    rig.slots(5)
    assert rig.waiting() == 1
    rig.cancel("a")
    assert rig.id("b") == 2 and not rig.leases


# --- order


def test_first_come_first_served_within_a_class():
    rig = Callers()
    rig.wait("a")
    for name in "bcd":
        assert not rig.wait(name)
    for name in "abc":
        rig.cancel(name)
    assert [name for name in rig.order if name] == list("abcd")


def test_the_higher_class_goes_first_then_who_waited_longest():
    rig = Callers(
        pool(overflow="wait", max_pending=1), pool("b", overflow="wait"), limits=LimitSettings(max_pending_total=1)
    )
    rig.wait("first")
    rig.wait("low", spec(priority=LOW))
    rig.wait("normal b", spec(pool="b"))
    rig.wait("normal", spec())
    rig.wait("critical", spec(priority=CRITICAL))
    rig.wait("high", spec(priority=HIGH, pool="b"))
    for name in ("first", "critical", "high", "normal b", "normal"):
        rig.cancel(name)
    assert [name for name in rig.order if name] == ["first", "critical", "high", "normal b", "normal", "low"]


def test_a_head_that_does_not_fit_holds_up_nobody_of_another_line():
    bounds = (None, None, 1, None)
    rig = Callers(pool(overflow="wait", max_pending=2, max_pending_by_class=bounds))
    rig.wait("normal")
    rig.wait("high", spec(priority=HIGH))
    rig.wait("normal 2")
    rig.wait("low", spec(priority=LOW))
    rig.cancel("high")
    assert "normal 2" not in rig.told and rig.id("low") == 3


def test_a_newcomer_that_may_wait_stands_behind_its_own_line_only():
    """Room and newcomers in one step: the line was there first."""
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.handle(ev.TaskCancelled(None, 1), ev.TaskSubmitted("c", spec(), True))
    assert rig.id("b") == 2 and "c" not in rig.told
    rig.handle(ev.TaskCancelled(None, 2), ev.TaskSubmitted("d", spec(priority=HIGH), True))
    assert rig.id("d") == 3 and rig.waiting() == 1, "another class has a line of its own"


def test_who_may_not_wait_takes_the_room_that_it_meets():
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.handle(ev.TaskCancelled(None, 1), ev.TaskSubmitted("c", spec()))
    assert rig.id("c") == 2 and rig.waiting() == 1


# --- all checks are made anew


def test_a_key_that_exists_meanwhile_makes_a_duplicate():
    rig = Callers()
    rig.wait("a")
    assert not rig.wait("b", spec("k")) and not rig.wait("c", spec("k"))
    rig.cancel("a")
    assert rig.told["b"] == Submitted(2, False) and "c" not in rig.told
    rig.cancel("b")
    assert rig.told["c"] == Submitted(2, True) and rig.waiting() == 0


def test_a_duplicate_never_waits():
    rig = Callers()
    rig.wait("a", spec("k"))
    assert rig.wait("b", spec("k")) and rig.told["b"] == Submitted(1, True)


def test_the_age_of_a_task_counts_from_its_admission():
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.now += 9 * SECOND
    rig.cancel("a")
    assert rig.engine.tasks.live[2].arrival == rig.now


def test_bytes_are_not_waited_for():
    rig = Callers(pool(overflow="wait", max_pending=2), limits=LimitSettings(max_payload_bytes=40))
    rig.wait("a", spec(size=20))
    rig.wait("b", spec(size=10))
    assert rig.wait("c", spec(size=20)) and rig.told["c"].code is Code.OVERLOADED
    assert not rig.wait("d", spec(size=10))
    rig.slots(1)
    assert rig.id("d") == 3


def test_a_head_whose_bytes_do_not_fit_any_more_is_refused_without_waiting_on():
    rig = Callers(pool(overflow="wait", max_pending=1), pool("b"), limits=LimitSettings(max_payload_bytes=40))
    rig.wait("a")
    rig.wait("b", spec(size=30))
    rig.wait("c", spec(size=10))
    rig.handle(ev.TaskSubmitted(None, spec(pool="b", size=15)))
    assert rig.told["b"].code is Code.OVERLOADED and "hold 25 bytes and this one 30" in rig.told["b"].message
    rig.cancel("a")
    assert type(rig.told["c"]) is Submitted, "the next one is the head now"


def test_other_checks_come_before_waiting():
    rig = Callers()
    rig.wait("a")
    for name, item, code in [
        ("b", spec(pool="nowhere"), Code.UNKNOWN_POOL),
        ("c", spec(retry=attempts(0)), Code.INVALID),
    ]:
        assert rig.wait(name, item) and rig.told[name].code is code


# --- leaving, and bounds


def test_withdrawal():
    rig = Callers()
    rig.wait("a")
    for name in "bcde":
        rig.wait(name)
    rig.handle(*(ev.SubmissionWithdrawn(name) for name in "bd"))
    assert rig.waiting() == 2
    rig.cancel("a")
    rig.cancel("c")
    assert [name for name in rig.order if name] == ["a", "c", "e"] and rig.waiting() == 0


@pytest.mark.parametrize("name", ["nobody", "answered", "withdrawn"])
def test_withdrawing_what_does_not_wait_changes_nothing(name):
    rig = Callers()
    rig.wait("answered")
    rig.wait("withdrawn")
    rig.handle(ev.SubmissionWithdrawn("withdrawn"))
    step = rig.handle(ev.SubmissionWithdrawn(name))
    assert not step.writes and not step.once_durable and len(rig.engine.tasks.live) == 1


def test_room_and_withdrawal_in_one_step():
    """Events are applied in their order; the room is looked at once, after them."""
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.wait("c")
    rig.handle(ev.TaskCancelled(None, 1), ev.SubmissionWithdrawn("b"))
    assert "b" not in rig.told and rig.id("c") == 2


def test_the_number_of_those_who_wait_is_bounded(monkeypatch):
    monkeypatch.setattr(waiting_room, "MAX_WAITING_SUBMISSIONS", 2)
    rig = Callers()
    for name in "abc":
        rig.wait(name)
    assert rig.wait("d") and rig.told["d"].code is Code.FULL
    assert rig.told["d"].message == "2 submissions wait for room already, as many as may; retry later"
    rig.handle(ev.SubmissionWithdrawn("b"))
    assert not rig.wait("e") and rig.waiting() == 2


def test_many_are_let_in_in_portions():
    """A step does a bounded number of consequences; the rest is due now, and nobody is forgotten."""
    rig = Callers(pool(overflow="wait", max_pending=3_000))
    engine, waiting = rig.engine, MAX_UNITS + 500
    engine.handle([ev.BatchSubmitted(None, (spec(),) * 3_000)], rig.now)
    engine.handle([ev.TaskSubmitted(number, spec(), True) for number in range(waiting)], rig.now)
    rig.handle(*(ev.TaskCancelled(None, task) for task in list(engine.tasks.live)[:2_000]))
    portions = [waiting - rig.waiting()]
    while engine.next_timeout() is not None:
        assert engine.next_timeout() == rig.now and len(portions) < 5
        before = rig.waiting()
        rig.handle(ev.TimerFired())
        portions.append(before - rig.waiting())
    assert rig.waiting() == 0 and len(portions) > 1 and max(portions) <= MAX_UNITS
    assert [name for name in rig.order if name is not None] == list(range(waiting))


def test_somebody_who_waits_twice_is_our_own_mistake():
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    with pytest.raises(AssertionError, match="waits already"):
        rig.handle(ev.TaskSubmitted("b", spec(), True))


def test_invariants_see_somebody_who_waits_beside_room():
    rig = Callers()
    rig.wait("a")
    rig.wait("b")
    rig.engine.pools["default"].settings = pool(overflow="wait", max_pending=5)
    with pytest.raises(AssertionError, match="although there is room"):
        rig.engine.check_invariants(None)


# --- against a naive model: nothing is dispatched, so only cancels make room

events = st.lists(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("submit"),
                st.sampled_from("ab"),
                st.sampled_from(list(Priority)),
                st.sampled_from(["", "", "k", "l"]),
                st.booleans(),
            ),
            st.tuples(st.just("withdraw"), st.integers(0, 40)),
            st.tuples(st.just("cancel"), st.integers(1, 20)),
        ),
        min_size=1,
        max_size=5,
    ),
    min_size=3,
    max_size=20,
)


class Naive:
    """All that happens, on plain lists."""

    def __init__(self, pools, total):
        self.pools, self.total = pools, total
        self.live: list[tuple[int, str, int, str]] = []
        self.finished: dict[str, int] = {}
        self.line: list[tuple[object, tuple]] = []
        self.next_id = 1
        self.answers: list[tuple[object, object]] = []

    def fits(self, item):
        _, name, priority, *_ = item
        mine = [task for task in self.live if task[1] == name]
        bound = self.pools[name].max_pending_by_class[priority]
        return (
            len(mine) < self.pools[name].max_pending
            and len(self.live) < self.total
            and (bound is None or sum(task[2] == priority for task in mine) < bound)
        )

    def submit(self, request, item, may_wait):
        _, name, priority, key, *_ = item
        known = [task[0] for task in self.live if key and task[3] == key]
        if known or key in self.finished:
            outcome = Submitted(known[0] if known else self.finished[key], True)
        elif may_wait and (not self.fits(item) or any(other[1:3] == item[1:3] for _, other in self.line)):
            self.line.append((request, item))
            return
        elif not self.fits(item):
            outcome = Code.FULL
        else:
            outcome = Submitted(self.next_id, False)
            self.live.append((self.next_id, name, priority, key))
            self.next_id += 1
        self.answers.append((request, outcome))

    def cancel(self, task_id):
        ended = [task for task in self.live if task[0] == task_id]
        self.live = [task for task in self.live if task[0] != task_id]
        self.finished.update({task[3]: task_id for task in ended if task[3]})
        self.answers.append((None, CancelOutcome(bool(ended))))

    def let_in(self):
        while True:
            heads = {other[1:3]: (request, other) for request, other in reversed(self.line)}
            fitting = [head for head in self.line if head in heads.values() and self.fits(head[1])]
            if not fitting:
                return
            best = min(fitting, key=lambda head: head[1][2])
            self.line.remove(best)
            self.submit(*best, may_wait=False)


@given(events, st.sampled_from([1, 2, 4]), st.sampled_from([1, 3, 9]), st.sampled_from([None, 1, 2]))
def test_those_who_wait_against_a_naive_model(script, bound, total, of_normal):
    pools = {
        "a": pool("a", overflow="wait", max_pending=bound),
        "b": pool("b", overflow="wait", max_pending_by_class=(None, None, of_normal, 1)),
    }
    rig = Callers(*pools.values(), limits=LimitSettings(max_pending_total=total))
    naive, number = Naive(pools, total), 0
    for batch in script:
        step, naive.answers = [], []
        for item in batch:
            if item[0] == "submit":
                number += 1
                step.append(ev.TaskSubmitted(number, spec(item[3], pool=item[1], priority=item[2]), item[4]))
                naive.submit(number, item, item[4])
            elif item[0] == "withdraw":
                step.append(ev.SubmissionWithdrawn(item[1]))
                naive.line = [head for head in naive.line if head[0] != item[1]]
            else:
                step.append(ev.TaskCancelled(None, item[1]))
                naive.cancel(item[1])
        naive.let_in()
        told = deque(action for action in rig.handle(*step).once_durable if type(action) is Answer)
        for request, expected in naive.answers:
            answer = told.popleft()
            outcome = answer.outcome.code if isinstance(answer.outcome, Rejection) else answer.outcome
            assert (answer.request, outcome) == (request, expected)
        assert not told and rig.waiting() == len(naive.line)
