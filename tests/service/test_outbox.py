"""The outbox over a machine of straw: nothing before it is durable, nothing lost, nothing twice, in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio import outbox as outbox_module
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.outbox import Outbox, StepsDurable
from cronoq_sansio.values import value


@value
class Say:
    """An action for `subject`, the `serial`-th that the machine made."""

    subject: int
    after: int
    serial: int
    at_once: bool


@value
class Work:
    """An event: one step with these actions, as (subject, how many steps back it shows)."""

    now: tuple[int, ...]
    later: tuple[tuple[int, int], ...]
    writes: int


@value
class Over:
    """An event: a subject ends."""

    subject: int


class Straw:
    """A machine: does what its events say, and notes in `log` what it saw, in order."""

    def __init__(self):
        self.number = 0
        self.made = []
        self.over = set()
        self.log = []
        self.asked = 0

    def handle(self, events, now):
        self.number += 1
        step = Step(self.number)
        for event in events:
            self.log.append(event)
            if isinstance(event, Over):
                self.over.add(event.subject)
                continue
            for subject in event.now:
                step.at_once.append(self.say(subject, 0, True))
            for subject, back in event.later:
                step.once_durable.append(self.say(subject, max(self.number - back, 0)))
            step.writes += [f"{self.number}.{index}" for index in range(event.writes)]
        return step

    def say(self, subject, after, at_once=False):
        action = Say(subject, after, len(self.made), at_once)
        self.made.append(action)
        return action

    def released(self, actions, now):
        performed = [action for action in actions if action.subject not in self.over]
        self.log += performed
        return performed

    def wanted(self, action):
        self.asked += 1
        return action.subject not in self.over

    def next_timeout(self):
        return 17


subjects = st.integers(0, 4)
work = st.builds(
    Work,
    st.lists(subjects, max_size=2).map(tuple),
    st.lists(st.tuples(subjects, st.integers(0, 6)), max_size=4).map(tuple),
    st.integers(0, 2),
)
#: "durable" n: everything up to n steps before the newest is in the store.
events = st.one_of(work, work, st.builds(Over, subjects), st.tuples(st.just("durable"), st.integers(0, 5)))
scripts = st.lists(st.lists(events, max_size=4), max_size=15)


class Run:
    """A straw machine behind an outbox, and what came out."""

    def __init__(self, volatile=False):
        self.straw = Straw()
        self.outbox = Outbox(self.straw, volatile=volatile)
        self.durable = 0
        self.performed = []
        self.writes = []

    def handle(self, batch):
        told = []
        for event in batch:
            if isinstance(event, tuple):
                self.durable = max(self.durable, self.straw.number - event[1])
                told.append(StepsDurable(self.durable))
            else:
                told.append(event)
        step = self.outbox.handle(told, 0)
        assert not step.once_durable
        assert step.number == self.straw.number
        self.performed += step.at_once
        self.writes += step.writes
        return step.at_once


@given(scripts)
def test_nothing_is_performed_before_its_step_is_durable_and_nothing_is_lost(script):
    run = Run()
    for batch in script:
        for action in run.handle(batch):
            assert action.after <= run.durable
    run.handle([("durable", 0)])
    assert run.outbox.held() == 0
    assert len(set(run.performed)) == len(run.performed), "something was performed twice"
    missing = set(run.straw.made) - set(run.performed)
    assert all(action.subject in run.straw.over for action in missing)


@given(scripts)
def test_what_goes_is_told_to_the_machine_in_the_same_order(script):
    run = Run()
    for batch in script:
        run.handle(batch)
    assert [entry for entry in run.straw.log if isinstance(entry, Say)] == run.performed


@given(scripts)
def test_order_is_that_of_the_steps_shown_and_then_that_of_the_machine(script):
    """A later action may pass an earlier one only when it shows an older step, or may go at once."""
    run = Run()
    for batch in script:
        run.handle(batch)
    run.handle([("durable", 0)])
    for subject in range(5):
        said = [action for action in run.performed if action.subject == subject]
        for index, action in enumerate(said):
            for later in said[index + 1 :]:
                assert action.serial < later.serial or action.after < later.after or action.at_once


@given(scripts)
def test_no_write_is_lost_and_their_order_is_kept(script):
    run = Run()
    expected = []
    for batch in script:
        run.handle(batch)
    for entry in run.straw.log:
        if isinstance(entry, Work):
            expected.append(entry.writes)
    assert len(run.writes) == sum(expected)
    assert run.writes == sorted(run.writes, key=lambda write: int(write.split(".")[0]))


@given(scripts)
def test_a_volatile_store_holds_nothing_back(script):
    run = Run(volatile=True)
    for batch in script:
        run.handle([event for event in batch if not isinstance(event, tuple)])
        assert run.outbox.held() == 0


@given(scripts)
def test_the_outbox_holds_what_a_list_would_hold(script):
    """The oracle: everything said, minus what could go, minus what was dropped when it came up."""
    run = Run()
    for batch in script:
        run.handle(batch)
        waiting = [action for action in run.straw.made if action.after > run.durable]
        assert run.outbox.held() == len(waiting)


def test_events_take_effect_in_their_order_with_commits_among_them():
    run = Run()
    run.handle([Work((), ((1, 0), (2, 0)), 1)])
    step = run.outbox.handle([Over(1), StepsDurable(1), Over(2)], 0)
    assert [action.subject for action in step.at_once] == [2], "subject 1 was over before the commit, 2 was not"
    assert [type(entry).__name__ for entry in run.straw.log] == ["Work", "Over", "Say", "Over"]


def test_writes_of_all_portions_are_one_transaction():
    run = Run()
    run.handle([Work((), (), 1)])
    step = run.outbox.handle([Work((), (), 2), StepsDurable(1), Work((), ((1, 0),), 1)], 0)
    assert step.writes == ["2.0", "2.1", "3.0"] and step.number == 3
    assert run.outbox.handle([StepsDurable(2)], 0).at_once == []
    assert len(run.outbox.handle([StepsDurable(3)], 0).at_once) == 1


def test_a_commit_alone_does_not_drive_the_machine():
    run = Run()
    run.handle([Work((), ((1, 0),), 1)])
    run.straw.log.clear()
    step = run.outbox.handle([StepsDurable(1)], 0)
    assert [type(entry).__name__ for entry in run.straw.log] == ["Say"]
    assert step.number == 1 and not step.writes and len(step.at_once) == 1


def test_an_older_commit_reported_again_takes_nothing_back():
    run = Run()
    run.handle([Work((), ((1, 0),), 1), Work((), (), 0)])
    run.outbox.handle([StepsDurable(1), StepsDurable(0)], 0)
    assert [action.after for action in run.outbox.handle([Work((), ((1, 1),), 0)], 0).at_once] == [1]


def test_actions_that_wait_for_a_step_that_does_not_exist_are_our_own_bug():
    run = Run()
    with pytest.raises(AssertionError, match="does not exist"):
        run.outbox.handle([Work((), ((1, -1),), 0)], 0)


def test_what_nobody_wants_any_more_does_not_pile_up_while_the_store_hangs(monkeypatch):
    monkeypatch.setattr(outbox_module, "MIN_OUTBOX_SWEEP", 8)
    run = Run()
    most = 0
    for subject in range(1_000):  # a caller that asks, gives up, and asks again
        run.handle([Work((), ((subject, 0),), 1)])
        run.handle([Over(subject)])
        most = max(most, run.outbox.held())
    assert most <= 16
    run.handle([Work((), ((5_000, 0),), 1), ("durable", 0)])
    assert [action.subject for action in run.performed] == []
    run.handle([("durable", 0)])
    assert [action.subject for action in run.performed] == [5_000]


def test_a_sweep_keeps_what_is_wanted(monkeypatch):
    monkeypatch.setattr(outbox_module, "MIN_OUTBOX_SWEEP", 8)
    run = Run()
    run.handle([Work((), tuple((subject, 0) for subject in range(100)), 1)])
    assert run.outbox.held() == 100
    run.handle([("durable", 0)])
    assert [action.subject for action in run.performed] == list(range(100))


def test_looking_for_what_is_unwanted_costs_a_constant_per_action(monkeypatch):
    monkeypatch.setattr(outbox_module, "MIN_OUTBOX_SWEEP", 8)
    run = Run()
    for subject in range(2_000):
        run.handle([Work((), ((subject, 0),), 1)])
    assert run.straw.asked <= 2 * 2_000


def test_the_timeout_is_the_machines():
    assert Run().outbox.next_timeout() == 17
