"""What a term writes is watched from outside: right writes pass, and each wrong one is named."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import Edge, EdgeResolved, OutputStored, RecurringStored, TaskChanged
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.sim.lockstep.workload import LIMITS, small_settings
from cronoq_sansio.spec import Condition, Dependency, MissPolicy, RecurringSpec, RetryOverride
from cronoq_sansio.spec import TaskStatus as S
from tests.sim.shadows import (
    NOW,
    blocked,
    completes,
    done,
    end,
    new,
    played,
    ready,
    retry,
    says,
    spec,
    start,
    view,
    world,
)

ONCE = RetryOverride(1, None, None, None, None)
SURE = RetryOverride(3, SECOND, None, None, False)
FAILS = m.Fail(0, "broken", False, 0)
ON_SUCCESS, ON_FAILURE = Condition.ON_SUCCESS, Condition.ON_FAILURE


def after(*refs, condition=ON_SUCCESS, **more):
    """A specification that depends on these."""
    return spec(dependencies=tuple(Dependency(ref, condition) for ref in refs), **more)


def needs(name, units, **more):
    """A specification that needs these."""
    return spec(resources=((name, units),), **more)


def cancels(ref):
    """Somebody has asked for it."""
    return lambda term: term.cancels.__setitem__(ref, None)


def frozen(term):
    """Dispatch is held back."""
    term.frozen = True


def sent(task_id):
    """A worker was given its attempt."""
    return lambda term: setattr(term.live[task_id], "sent", term.live[task_id].attempt)


def moved(offset):
    """The wall clock is set."""

    def move(term):
        term.look()
        term._world.wall_shift += offset

    return move


def batch(*specs):
    """Somebody asked for these in one piece."""
    return lambda term: term._batches.__setitem__("batch 1", specs)


CHILD = Edge(1, "", ON_SUCCESS)
FIXED = spec(start=NOW + 5 * SECOND, tolerance=SECOND)
SKIPS = spec(start=NOW + 5 * SECOND, tolerance=SECOND, on_miss=MissPolicy.SKIP)
FIRE = spec(start=NOW, tags=(("cronoq.recurring", "s"),))
SCHEDULE = RecurringSpec("s", "* * * * *", "", spec())
PLAIN, KEYED = spec(marker="batch 1"), spec(marker="batch 1", key="k")

RIGHT = {
    "a life": [[new(1)], [start(1)], says(1, FAILS), [retry(1)], [start(1, 2, first=NOW)], completes(1), done(1, 2)],
    "a dispatch taken back": [[new(1)], [start(1)], [ready(1)], [start(1)]],
    "in order": [[new(1), new(2)], [start(1), start(2)]],
    "a higher class first": [[new(1, spec(priority=3)), new(2, spec(priority=0))], [start(2), start(1)]],
    "age lifts": [
        [new(1, spec(priority=3))],
        46 * SECOND,
        [new(2, at=NOW + 46 * SECOND)],
        [start(1, at=NOW + 46 * SECOND)],
    ],
    "a parent": [
        [new(1)],
        [new(2, after(1), edges=(CHILD,)), blocked(2)],
        [start(1)],
        completes(1),
        done(1),
        [start(2)],
    ],
    "a skip": [
        *([new(1)], [new(2, after(1), edges=(CHILD,)), blocked(2)], cancels(1)),
        [end(1, S.CANCELLED, 0), end(2, S.SKIPPED, 0)],
    ],
    "a key that comes": [
        [new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND)],
        *([new(2, spec(key="k")), EdgeResolved(1, "k", 2)], [start(2)], completes(2), done(2), [start(1)]),
    ],
    "a wait that is over": [
        [new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND)],
        *(SECOND, [end(1, S.SKIPPED, 0)]),
    ],
    "a fixed start": [[new(1, FIXED)], 5 * SECOND, [start(1, at=NOW + 5 * SECOND)]],
    "a start that came on another clock": [
        *([new(1, FIXED)], moved(9 * SECOND), moved(-9 * SECOND), [start(1)]),
    ],
    "a missed start": [[new(1, SKIPS)], 7 * SECOND, [end(1, S.MISSED, 0)]],
    "permits come back": [
        *([new(1, needs("db", 1)), new(2, needs("db", 1))], [start(1)], completes(1), [*done(1), start(2)]),
    ],
    "tokens come back with time": [
        [new(1, needs("mail", 4)), new(2, needs("mail", 3))],
        *([start(1)], 2 * SECOND, [start(2, at=NOW + 2 * SECOND)]),
    ],
    "tokens of a dispatch taken back": [
        *([new(1, needs("mail", 4)), new(2, needs("mail", 4))], [start(1)], [ready(1)], [start(2)]),
    ],
    "a key after its time": [
        *([new(1, spec(key="k"))], [start(1)], completes(1), done(1), LIMITS.key_retention),
        [new(2, spec(key="k"), at=NOW + LIMITS.key_retention)],
    ],
    "a whole batch": [batch(PLAIN, KEYED), [new(1, PLAIN), new(2, KEYED)], [new(3, PLAIN)]],
    "an occurrence after another put": [
        [RecurringStored(SCHEDULE, NOW), new(1, FIRE)],
        *([start(1)], completes(1), done(1), [RecurringStored(SCHEDULE, NOW)], [new(2, FIRE)]),
    ],
    "shed": [[new(1, spec(pool="c")), new(2, spec(pool="c")), end(1, S.SHED, 0)]],
}


@pytest.mark.parametrize("steps", RIGHT.values(), ids=RIGHT)
def test_right_writes_pass(steps):
    played(view(), *steps)


WRONG = [
    ("a task id was given twice, or out of order", [[new(2)], [new(2)]]),
    ("a task id was given twice, or out of order", [[new(2)], [new(1)]]),
    ("a task arrives at another time than now", [[new(1, at=NOW - 1)]]),
    ("a task may have another number of attempts than was asked for", [[replace(new(1), max_attempts=4)]]),
    ("two live tasks have one key", [[new(1, spec(key="k"))], [new(2, spec(key="k"))]]),
    (
        "a key was given away that a finished task still has",
        [
            *([new(1, spec(key="k"))], [start(1)], completes(1), done(1), LIMITS.key_retention - 1),
            [new(2, spec(key="k"), at=NOW + LIMITS.key_retention - 1)],
        ],
    ),
    ("a task that has ended changes", [[new(1)], [start(1)], completes(1), done(1), [start(1, 2)]]),
    ("a task changes as none may", [[new(1)], [retry(1)]]),
    ("a task changes as none may", [[new(1)], [ready(1)]]),
    ("a task changes as none may", [[new(1), new(2)], [blocked(1)]]),
    ("a task changes as none may", [[new(1)], [start(1)], [start(1)]]),
    ("a dispatch is not one attempt more", [[new(1)], [start(1, 2)]]),
    ("a dispatch is not one attempt more", [[new(1)], [start(1)], [ready(1)], [start(1, 2)]]),
    (
        "a task has more attempts than it may",
        [[new(1)], lambda term: setattr(term.live[1], "attempt", 3), [start(1, 4)]],
    ),
    ("a task is dispatched while dispatch is held back", [[new(1)], frozen, [start(1)]]),
    ("a task is taken in while none may be", [frozen, [new(1)]]),
    (
        "a task starts before those that it depends on",
        [[new(1)], [new(2, after(1), edges=(CHILD,)), blocked(2)], [start(2)]],
    ),
    (
        "a task starts before those that it depends on",
        [
            [new(1)],
            [new(2, after(1, condition=ON_FAILURE), edges=(replace(CHILD, condition=ON_FAILURE),)), blocked(2)],
            *([start(1)], completes(1), done(1), [start(2)]),
        ],
    ),
    (
        "an attempt is repeated before its time",
        [[new(1)], [start(1)], says(1, FAILS), [retry(1, due=NOW + 1)], [start(1, 2, first=NOW)]],
    ),
    ("a task starts before its fixed start", [[new(1, FIXED)], 5 * SECOND - 1, [start(1, at=NOW + 5 * SECOND - 1)]]),
    ("a task starts that has missed its start", [[new(1, SKIPS)], 6 * SECOND + 1, [start(1, at=NOW + 6 * SECOND + 1)]]),
    ("an attempt starts at another time than now", [[new(1)], [start(1, at=NOW + 1)]]),
    ("the first start of a task is another one", [[new(1)], [start(1, first=NOW - 1)]]),
    ("the last error of a task is another one", [[new(1)], [start(1, message="broken")]]),
    ("the last error of a task is another one", [[new(1)], [start(1)], [ready(1, message="broken")]]),
    (
        "the last error of a task is another one",
        [[new(1)], [start(1)], says(1, FAILS), [retry(1)], [start(1, 2, first=NOW, message="")]],
    ),
    ("a task has started at another time than before", [[new(1)], [start(1)], [ready(1, first=NOW)]]),
    (
        "a task has started at another time than before",
        [[new(1)], [start(1)], says(1, FAILS), [replace(retry(1), last_started=NOW - 1)]],
    ),
    (
        "a task has started at another time than before",
        [[new(1)], [start(1)], completes(1), [done(1)[0], end(1, S.SUCCEEDED, last=NOW + 1)]],
    ),
    (
        "an attempt fails for another reason than there was",
        [[new(1)], [start(1)], says(1, FAILS), [replace(retry(1), message="other")]],
    ),
    ("an attempt fails for another reason than there was", [[new(1)], [start(1)], [replace(retry(1), message="")]]),
    (
        "an attempt fails for another reason than there was",
        [[new(1)], [start(1)], says(1, replace(FAILS, permanent=True)), [end(1, S.FAILED, message="other")]],
    ),
    (
        "a task succeeds with an error",
        [[new(1)], [start(1)], completes(1), [done(1)[0], end(1, S.SUCCEEDED, message="x")]],
    ),
    ("a plain task overtakes one of its class", [[new(1), new(2)], [start(2)]]),
    ("a task overtakes one with a higher score", [[new(1, spec(priority=3)), new(2)], [start(1)]]),
    (
        "a task overtakes one with a higher score",
        [[new(1, spec(priority=3))], 46 * SECOND, [new(2, at=NOW + 46 * SECOND)], [start(2, at=NOW + 46 * SECOND)]],
    ),
    (
        "more permits are in use than there are",
        [[new(1, needs("db", 1)), new(2, needs("db", 1))], [start(1), start(2)]],
    ),
    (
        "more tokens were given than there were",
        [[new(1, needs("mail", 4)), new(2, needs("mail", 1))], [start(1), start(2)]],
    ),
    (
        "more tokens were given than there were",
        [
            [new(1, needs("mail", 4)), new(2, needs("mail", 3))],
            *([start(1)], 2 * SECOND - 1, [start(2, at=NOW + 2 * SECOND - 1)]),
        ],
    ),
    ("a dispatch that is taken back costs an attempt", [[new(1)], [start(1)], [ready(1, 1, NOW)]]),
    ("a dispatch is taken back that a worker has seen", [[new(1)], [start(1)], sent(1), [ready(1)]]),
    ("an attempt that failed is counted in another way", [[new(1)], [start(1)], [retry(1, 2)]]),
    ("a task is to be repeated that has no attempt left", [[new(1, spec(retry=ONCE))], [start(1)], [retry(1)]]),
    (
        "an attempt that failed for good is to be repeated",
        [[new(1)], [start(1)], says(1, replace(FAILS, permanent=True)), [retry(1)]],
    ),
    ("a backoff is not what the policy says", [[new(1)], [start(1)], says(1, FAILS), [retry(1, due=NOW + SECOND + 1)]]),
    (
        "a backoff is not what the policy says",
        [[new(1)], [start(1)], says(1, replace(FAILS, retry_after=9)), [retry(1)]],
    ),
    ("a backoff is not what the policy says", [[new(1, spec(retry=SURE))], [start(1)], says(1, FAILS), [retry(1)]]),
    ("a task ends twice", [[new(1)], [start(1)], completes(1), done(1), [end(1, S.SUCCEEDED)]]),
    ("a task ends as none may", [[new(1)], [end(1, S.DEAD_LETTERED, 0)]]),
    ("a task ends as none may", [[new(1)], [start(1)], [end(1, S.SHED)]]),
    ("a task ends with another number of attempts", [[new(1)], [start(1)], completes(1), done(1, 2)]),
    ("a task succeeds without an output", [[new(1)], [start(1)], completes(1), [end(1, S.SUCCEEDED)]]),
    ("an output is stored that no worker has reported", [[new(1)], [start(1)], done(1)]),
    (
        "an output is stored that no worker has reported",
        [[new(1)], [start(1)], completes(1), [OutputStored(1, b"y", "")]],
    ),
    ("a task has an output that does not run", [[new(1)], done(1)]),
    ("a task is given up that has attempts left", [[new(1)], [start(1)], [end(1, S.DEAD_LETTERED)]]),
    ("an attempt fails for good that may be repeated", [[new(1)], [start(1)], says(1, FAILS), [end(1, S.FAILED)]]),
    ("an attempt fails although its output fits", [[new(1)], [start(1)], completes(1), [end(1, S.FAILED)]]),
    ("a task is cancelled that nobody has cancelled", [[new(1)], cancels(2), [end(1, S.CANCELLED, 0)]]),
    ("a task is shed that may not be", [[new(1), end(1, S.SHED, 0)]]),
    ("a task is shed that may not be", [[new(1, replace(FIXED, pool="c")), end(1, S.SHED, 0)]]),
    (
        "a task is skipped although its edges may be met",
        [[new(1)], [new(2, after(1), edges=(CHILD,)), blocked(2)], [end(2, S.SKIPPED, 0)]],
    ),
    (
        "a task is skipped although its edges may be met",
        [
            [new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND)],
            *(SECOND - 1, [end(1, S.SKIPPED, 0)]),
        ],
    ),
    ("a task that waits ends and has missed nothing", [[new(1, SKIPS)], 6 * SECOND, [end(1, S.MISSED, 0)]]),
    ("a task that waits ends and has missed nothing", [[new(1)], [end(1, S.FAILED, 0)]]),
    ("the edges of a task are not those that it asks for", [[new(1)], [new(2, after(1))]]),
    (
        "the edges of a task are not those that it asks for",
        [[new(1)], [new(2, edges=(CHILD,), asked=spec(tenant="red"))]],
    ),
    ("the edges of a task are not those that it asks for", [[new(1, after("k"))]]),
    ("a task depends on one that never was", [[new(2, after(1))]]),
    ("an edge of a task that has ended changes", [[EdgeResolved(1, "k", 2)]]),
    (
        "an edge is given a parent that does not have its key",
        [
            [new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND)],
            [new(2), EdgeResolved(1, "k", 2)],
        ],
    ),
    ("a part of a batch was inserted", [batch(PLAIN, PLAIN), [new(1, PLAIN)]]),
    ("a part of a batch was inserted", [batch(PLAIN, KEYED), [new(1, PLAIN)]]),
    ("a part of a batch was inserted", [batch(PLAIN, KEYED), [new(1, KEYED)]]),
    ("a fire of a schedule became two tasks", [[RecurringStored(SCHEDULE, NOW), new(1, FIRE)], [new(2, FIRE)]]),
    (
        "a fire of a schedule became two tasks",
        [[RecurringStored(SCHEDULE, NOW), new(1, FIRE)], [RecurringStored(SCHEDULE, NOW)], [new(2, FIRE)]],
    ),
]


@pytest.mark.parametrize(("what", "steps"), WRONG, ids=[f"{index} {what}" for index, (what, _) in enumerate(WRONG)])
def test_each_wrong_write_is_named(what, steps):
    term = played(view(), *steps[:-1])
    with pytest.raises(Violation) as caught:
        played(term, steps[-1])
    assert caught.value.what == what
    assert not any(character.isdigit() for character in what)


def test_a_key_came_twice_in_one_step_and_nothing_is_remembered():
    limits = LimitSettings(key_retention=0, key_retention_max=0)
    term = view(settings=replace(small_settings(), limits=limits))
    late = spec(key="k", start=NOW - 9 * SECOND, tolerance=1, on_miss=MissPolicy.SKIP)
    waiting = [new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND)]
    came = [new(2, late), end(2, S.MISSED, 0), new(3, late), end(3, S.MISSED, 0)]
    played(term, waiting, [*came, EdgeResolved(1, "k", 2), end(1, S.SKIPPED, 0)])


def test_the_newest_ends_are_remembered_and_no_more():
    limits = LimitSettings(key_retention_max=1)
    term = view(settings=replace(small_settings(), limits=limits))
    life = [[new(1, spec(key="k"))], [start(1)], completes(1), done(1)]
    other = [[new(2)], [start(2)], completes(2), done(2)]
    played(term, *life, *other, [new(3, spec(key="k"))])


def stored(*records):
    """Rows with these."""
    rows = NaiveStore()
    rows.write(records)
    return rows


class TestRecovery:
    def test_nothing_is_dispatched_before_it_is_over(self):
        with pytest.raises(Violation, match="before recovery is over"):
            played(view(stored(new(1))), [start(1)])

    def test_an_attempt_that_ran_is_lost(self):
        term = view(stored(new(1), start(1)))
        with pytest.raises(Violation, match="still runs after a recovery"):
            term.begun()
        played(term, [retry(1)])
        term.begun()
        played(term, [start(1, 2, first=NOW)])
        assert term.running == 1

    def test_a_backoff_goes_on(self):
        term = view(stored(new(1), retry(1, due=NOW + SECOND)))
        term.begun()
        with pytest.raises(Violation, match="before its time"):
            played(term, [start(1, 2, first=NOW)])

    def test_edges_are_judged_by_what_ended_meanwhile(self):
        child = (new(2, after(1), edges=(CHILD,)), blocked(2))
        term = view(stored(new(1), *child, end(1, S.CANCELLED)))
        term.begun()
        assert term.live[2].impossible
        term = view(stored(new(1), *child, end(1, S.SUCCEEDED)))
        term.begun()
        played(term, [start(2)])

    def test_a_key_that_came_is_the_parents(self):
        child = (new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND))
        term = view(stored(*child, new(2, spec(key="k"))))
        term.begun()
        assert term.live[1].edges == {2: [ON_SUCCESS]}

    def test_what_it_frees_is_written(self):
        rows = (new(1, after("k", pool="b"), edges=(Edge(0, "k", ON_SUCCESS),)), blocked(1, NOW + SECOND))
        term = view(stored(*rows, new(2, spec(key="k")), end(2, S.SUCCEEDED)))
        with pytest.raises(Violation, match="nobody wrote that"):
            term.begun()
        played(term, [ready(1)])
        term.begun()

    def test_the_last_error_and_start_come_back(self):
        term = view(stored(new(1), retry(1)))
        term.begun()
        with pytest.raises(Violation, match="the last error of a task"):
            played(term, [start(1, 2, first=NOW, message="")])

    def test_keys_of_finished_tasks_come_back(self):
        term = view(stored(new(1, spec(key="k")), end(1, S.SUCCEEDED, at=NOW - SECOND)))
        term.begun()
        with pytest.raises(Violation, match="given away"):
            played(term, [new(2, spec(key="k"))])

    def test_an_occurrence_of_an_earlier_term_is_not_made_again(self):
        made = world(stored(RecurringStored(SCHEDULE, NOW), new(1, FIRE)))
        made.ledger.committed([RecurringStored(SCHEDULE, NOW), new(1, FIRE)])
        term = type(view())(made, small_settings(), 0, NOW)
        with pytest.raises(Violation, match="two tasks"):
            played(term, [new(2, FIRE)])


def test_a_state_that_nobody_knows_is_no_transition():
    with pytest.raises(Violation, match="as none may"):
        played(view(), [new(1)], [TaskChanged(1, S.SCHEDULED, 0, 0, 0, 0, "")])
