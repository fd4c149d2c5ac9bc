"""The transition table of a worker stream, and the slots of a group."""

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.service import messages as m
from cronoq_sansio.service.worker_session import TRANSITIONS, Gone, Group, Late, Session, State, Stop
from cronoq_sansio.service.workers import Workers

MESSAGES = typing.get_args(m.FromWorker)
INPUTS = (*MESSAGES, Gone, Late, Stop)

#: What is ignored on purpose. Everything else has a line in the table.
IGNORED = {
    State.CONNECTED: set(),
    State.REGISTERED: {Late, m.EmptyMessage},
    State.LEAVING: {*MESSAGES, Late, Stop},
    State.CLOSED: {*INPUTS},
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_in_every_state_is_in_the_table_or_ignored_on_purpose(state, kind):
    assert ((state, kind) in TRANSITIONS) != (kind in IGNORED[state])


def test_every_effect_exists_and_no_state_is_left_backwards():
    order = list(State)
    for (state, kind), (effect, after) in TRANSITIONS.items():
        assert callable(getattr(Workers, f"_{effect}")), f"{state} {kind}"
        assert order.index(after) >= order.index(state)


class FakeLease:
    def __init__(self, number):
        self.id = number


def session(worker_id, slots):
    made = Session(m.WorkerStream(""))
    made.id, made.slots, made.cap, made.state = worker_id, slots, 10, State.REGISTERED
    made.stream.max_queued = 36
    return made


def group_of(*slots):
    group = Group("default", ())
    for worker_id, number in enumerate(slots, 1):
        made = session(worker_id, number)
        made.group = group
        group.add(made)
    return group


def choices(group, count, refused=()):
    chosen = []
    for number in range(count):
        worker = group.choose(refused)
        chosen.append(worker.id if worker else None)
        if worker:
            group.fill(worker, FakeLease(number))
    return chosen


@pytest.mark.parametrize(
    ("slots", "refused", "expected"),
    [
        ((3, 3, 3), (), [1, 2, 3, 1, 2, 3]),  # in turn
        ((1, 3, 1), (), [1, 2, 3, 2, 2, None]),  # the full ones are passed over
        ((0, 2), (), [2, 2, None]),
        ((2, 2, 2), {2}, [1, 3, 1, 3, None]),
        ((1, 1), {1, 2}, [None]),
        ((), (), [None]),
    ],
)
def test_workers_take_turns_in_id_order(slots, refused, expected):
    assert choices(group_of(*slots), len(expected), refused) == expected


def test_the_turn_goes_on_where_it_stopped_although_workers_come_and_go():
    group = group_of(5, 5, 5)
    assert choices(group, 2) == [1, 2]
    group.remove(group.sessions[2])
    newcomer = session(4, 5)
    newcomer.group = group
    group.add(newcomer)
    assert choices(group, 4) == [3, 4, 1, 3]


moves = st.lists(
    st.tuples(st.sampled_from(["fill", "empty", "resize", "join", "leave"]), st.integers(0, 5)), max_size=40
)


@given(moves)
def test_free_list_and_capacity_always_agree_with_the_sessions(script):
    group = group_of(2, 1)
    last_id, number = 2, 0
    for move, argument in script:
        sessions = list(group.sessions.values())
        worker = sessions[argument % len(sessions)]
        before = sum(max(other.slots, len(other.leases)) for other in sessions)
        if move == "fill":
            chosen = group.choose()
            assert (chosen is None) == all(len(other.leases) >= other.slots for other in sessions)
            if chosen is not None:
                number += 1
                group.fill(chosen, FakeLease(number))
        elif move == "empty" and worker.leases:
            lowered = group.empty(worker, next(iter(worker.leases)))
            assert before - group.capacity == (1 if lowered else 0)
        elif move == "resize":
            group.resize(worker, argument)
        elif move == "join":
            last_id += 1
            newcomer = session(last_id, argument)
            newcomer.group = group
            group.add(newcomer)
        elif move == "leave" and len(sessions) > 1:
            group.remove(worker)
        group.check_invariants()
        assert group.offered == sum(other.slots for other in group.sessions.values())


def test_remembered_aborts_are_bounded_and_the_oldest_goes():
    worker = session(1, 1)
    worker.stream.max_queued = 3
    for lease in range(5):
        worker.remember_abort(lease)
    assert list(worker.aborted) == [2, 3, 4]
