"""The worker's session: its transition table, each rule of the worker protocol, and any order of everything at once."""

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cronoq_sansio import limits
from cronoq_sansio.clock import MILLISECOND, SECOND
from cronoq_sansio.errors import RemoteProtocolError
from cronoq_sansio.worker import words as w
from cronoq_sansio.worker.session import (
    CUTTING,
    DRAINING,
    DRAINING_TEXT,
    NO_SLOT,
    OVER,
    PARTING,
    REGISTERING,
    SERVING,
    STOPPED_TEXT,
    STOPPING,
    TRANSITIONS,
    State,
    WorkerSession,
)

INPUTS = typing.get_args(w.Input)
TTL = 3 * SECOND
NOTHING = w.Completed(b"", "")
REGISTERED = w.Registered(7, 0, 3, TTL, 100_000)

#: What is ignored on purpose. Everything else has a line in the table.
IGNORED = {
    REGISTERING: {w.HandlerExited},
    STOPPING: {w.HandlerExited, w.StopAsked},
    SERVING: set(),
    DRAINING: set(),
    CUTTING: {w.StopAsked},
    PARTING: {w.Registered, w.Leased, w.Aborted, w.StopAsked},
    OVER: {w.Registered, w.Leased, w.Aborted, w.ServerLeaves, w.StopAsked, w.StreamEnded},
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_in_every_state_is_in_the_table_or_ignored_on_purpose(state, kind):
    assert ((state, kind) in TRANSITIONS) != (kind in IGNORED[state])


def test_every_effect_exists_and_no_state_is_left_backwards():
    order = list(State)
    for (state, kind), (effect, after) in TRANSITIONS.items():
        assert callable(getattr(WorkerSession, f"_{effect}")), f"{state} {kind}"
        assert order.index(after) >= order.index(state)


class Bench:
    """A session with its clock; handlers are what it started."""

    def __init__(self, slots=2, *, busy=0, registered=REGISTERED):
        self.now = 1_000 * SECOND
        self.session = WorkerSession(slots, busy=busy)
        self.handlers = {}
        self.interrupted = []
        self.parted = False
        self.left = None
        if registered is not None:
            self.tell(registered)

    def tell(self, event):
        self.perform(self.session.handle(event, self.now))

    def pass_time(self, nanoseconds):
        self.now += nanoseconds
        self.perform(self.session.handle_timer(self.now))

    def perform(self, effects):
        for effect in effects:
            match effect:
                case w.Start(held):
                    self.handlers[held.lease] = held
                case w.Interrupt(held, reason):
                    self.interrupted.append((held.lease, reason))
                case w.Part():
                    self.parted = True
                case w.Leave():
                    self.left = effect
        self.session.check_invariants()

    def lease(self, *numbers, ttl=None):
        for number in numbers:
            self.tell(w.Leased(number, ttl, f"job {number}"))

    def exit(self, number, outcome=NOTHING):
        self.tell(w.HandlerExited(self.handlers.pop(number), outcome))

    @property
    def said(self):
        messages = []
        while self.session.has_messages:
            messages.append(self.session.next_message())
        assert None not in messages and self.session.next_message() is None
        return messages


def test_registration_replaces_zeros_by_what_they_stand_for():
    bench = Bench(4, registered=w.Registered(7, 0, 0, None, None))
    assert bench.session.registered == w.Registered(7, 4, 1, None, None)
    assert Bench(10, registered=w.Registered(7, 4, 3, TTL, 5)).session.granted == 4
    assert Bench(4, registered=w.Registered(7, 9, 3, TTL, 5)).session.granted == 4, "never more than was asked for"


def test_a_lease_starts_its_handler_and_is_reported_once():
    bench = Bench()
    bench.lease(1)
    assert bench.handlers[1].job == "job 1" and bench.session.held == 1
    bench.exit(1, w.Completed(b"out", "text/plain"))
    assert bench.said == [w.Complete(1, b"out", "text/plain")] and bench.session.held == 0


@pytest.mark.parametrize(
    ("outcome", "version", "message"),
    [
        (w.Completed(b"x", "t"), 3, w.Complete(1, b"x", "t")),
        (w.Completed(bytes(98_976), "t"), 3, w.Complete(1, bytes(98_976), "t")),
        (w.Failed("bad"), 3, w.Fail(1, "bad", False, None)),
        (w.Failed("bad", True), 3, w.Fail(1, "bad", True, None)),
        (w.Failed("bad", False, 2.5), 3, w.Fail(1, "bad", False, 2.5)),
        (w.Refused("not mine"), 3, w.Nack(1, "not mine")),
        (w.Refused("not mine"), 1, w.Fail(1, "not mine", False, None)),
        (w.Withdrawn("no use"), 3, w.Cancelled(1)),
        (w.Withdrawn("no use"), 1, w.Fail(1, "no use", True, None)),
        (w.Interrupted(), 3, w.Nack(1, STOPPED_TEXT)),
        (w.Interrupted(), 1, w.Fail(1, STOPPED_TEXT, False, None)),
    ],
)
def test_outcomes(outcome, version, message):
    bench = Bench(registered=w.Registered(7, 0, version, TTL, 100_000))
    bench.lease(1)
    bench.exit(1, outcome)
    assert bench.said == [message]


def test_an_output_that_does_not_fit_fails_permanently():
    bench = Bench()
    bench.lease(1)
    bench.exit(1, w.Completed(bytes(98_977), ""))
    (fail,) = bench.said
    assert fail.permanent and "98977 bytes, at most 98976 fit" in fail.message and "message limit" in fail.message
    unlimited = Bench(registered=w.Registered(7, 0, 3, TTL, None))
    unlimited.lease(1)
    unlimited.exit(1, w.Completed(bytes(1 << 20), ""))
    assert len(unlimited.said[0].output) == 1 << 20


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("a\0b", 100_000, "a�b"),
        ("x" * 20_000, 100_000, "x" * 8_192),
        ("x" * 20_000, 4_000, "x" * 1_000),
        ("ü" * 800, 4_004, "ü" * 500),
        ("half \ud800 pair", 100_000, "half ? pair"),
    ],
)
def test_texts_are_cut_to_what_may_be_sent(text, limit, kept):
    bench = Bench(registered=w.Registered(7, 0, 3, TTL, limit))
    bench.lease(1, 2)
    bench.exit(1, w.Failed(text))
    bench.exit(2, w.Refused(text))
    fail, nack = bench.said
    assert fail.message == nack.reason == kept


def test_heartbeats_every_third_of_the_ttl_the_first_after_one_period():
    bench = Bench()
    bench.lease(1)
    bench.lease(2, ttl=30 * MILLISECOND // 10)
    assert bench.session.next_timeout() == bench.now + limits.MIN_HEARTBEAT
    bench.pass_time(limits.MIN_HEARTBEAT)
    assert bench.said == [w.Beat(2)]
    bench.exit(2)
    assert bench.said == [w.Complete(2, b"", "")]
    assert bench.session.next_timeout() == bench.now - limits.MIN_HEARTBEAT + SECOND
    bench.pass_time(SECOND - limits.MIN_HEARTBEAT)
    assert bench.said == [w.Beat(1)]
    bench.exit(1)
    bench.pass_time(10 * SECOND)
    assert bench.said == [w.Complete(1, b"", "")] and bench.session.next_timeout() is None


def test_no_heartbeats_without_a_ttl():
    bench = Bench(registered=w.Registered(7, 0, 3, None, None))
    bench.lease(1)
    assert bench.session.next_timeout() is None


def test_heartbeats_that_could_not_be_sent_do_not_pile_up_and_a_report_replaces_them():
    bench = Bench()
    bench.lease(1, 2)
    for _ in range(50):
        bench.pass_time(SECOND)
    bench.exit(2)
    assert bench.said == [w.Beat(1), w.Complete(2, b"", "")]


def test_lateness_is_known():
    bench = Bench()
    bench.lease(1)
    bench.pass_time(SECOND + 700 * MILLISECOND)
    assert bench.session.late_by == 700 * MILLISECOND


def test_a_lease_above_the_slots_is_given_back():
    bench = Bench(2)
    bench.lease(1, 2, 3)
    assert bench.said == [w.Nack(3, NO_SLOT)] and list(bench.handlers) == [1, 2]


def test_an_abort_interrupts_and_nothing_is_said_about_that_lease_any_more():
    bench = Bench(2)
    bench.lease(1, 2)
    bench.tell(w.Aborted(1, "timeout"))
    bench.tell(w.Aborted(99, "unknown"))
    assert bench.interrupted == [(1, "timeout")]
    bench.pass_time(SECOND)
    assert bench.said == [w.Beat(2), w.Offer(1)], "the handler still fills a slot"
    bench.exit(1, w.Completed(b"late", ""))
    assert bench.said == [w.Offer(2)]


def test_a_handler_that_exits_at_once_changes_no_offer():
    bench = Bench(1)
    bench.lease(1)
    bench.tell(w.Aborted(1, "timeout"))
    bench.exit(1, w.Interrupted())
    assert bench.said == []


def test_a_lease_that_came_before_the_offer_was_lowered_waits_for_the_handler_to_exit():
    bench = Bench(1)
    bench.lease(1)
    bench.tell(w.Aborted(1, "timeout"))
    bench.lease(2)
    assert list(bench.handlers) == [1] and bench.session.held == 1
    bench.exit(1, w.Interrupted())
    assert list(bench.handlers) == [2]
    bench.exit(2)
    assert bench.said == [w.Complete(2, b"", "")]


def test_it_is_given_back_when_the_handler_does_not_exit():
    bench = Bench(1)
    bench.lease(1, ttl=900 * MILLISECOND)
    bench.tell(w.Aborted(1, "timeout"))
    bench.lease(2, ttl=900 * MILLISECOND)
    assert bench.said == [w.Offer(0)]
    bench.pass_time(300 * MILLISECOND)
    assert bench.said == [w.Beat(2)]
    bench.pass_time(700 * MILLISECOND)
    assert bench.said == [w.Nack(2, NO_SLOT)]
    bench.exit(1)
    assert bench.said == [w.Offer(1)]


def test_an_abort_of_a_waiting_lease_forgets_it():
    bench = Bench(1)
    bench.lease(1)
    bench.tell(w.Aborted(1, "timeout"))
    bench.lease(2)
    bench.tell(w.Aborted(2, "timeout"))
    bench.exit(1)
    assert bench.interrupted == [(1, "timeout")] and bench.said == [] and not bench.handlers


def test_handlers_of_an_earlier_session_fill_slots():
    bench = Bench(3, busy=2)
    assert bench.session.requested == 1 and bench.said == []
    bench.tell(w.EarlierExited())
    assert bench.said == [w.Offer(2)]
    bench.tell(w.EarlierExited())
    assert bench.said == [w.Offer(3)] and bench.session.granted == 3


def test_drain_lets_handlers_finish_and_gives_back_what_still_comes():
    bench = Bench(2)
    bench.lease(1)
    bench.tell(w.StopAsked(bench.now + 10 * SECOND))
    bench.lease(2)
    assert bench.said == [w.Offer(0), w.Nack(2, DRAINING_TEXT)]
    assert not bench.parted
    bench.pass_time(SECOND)
    bench.exit(1)
    assert bench.parted and bench.said == [w.Complete(1, b"", "")]


def test_an_idle_worker_lingers_for_leases_on_their_way():
    bench = Bench(2)
    bench.tell(w.StopAsked(bench.now + 10 * SECOND))
    assert not bench.parted and bench.session.next_timeout() == bench.now + limits.WORKER_DRAIN_LINGER
    bench.pass_time(limits.WORKER_DRAIN_LINGER // 2)
    bench.lease(1)
    assert bench.said == [w.Offer(0), w.Nack(1, DRAINING_TEXT)]
    bench.pass_time(limits.WORKER_DRAIN_LINGER // 2)
    assert not bench.parted, "more may follow"
    bench.pass_time(limits.WORKER_DRAIN_LINGER // 2)
    assert bench.parted


def test_after_the_grace_handlers_are_cut_off_and_what_they_report_counts():
    bench = Bench(3)
    bench.lease(1, 2, 3)
    bench.tell(w.StopAsked(bench.now + SECOND))
    bench.pass_time(SECOND)
    assert bench.session.state is CUTTING and [lease for lease, _ in bench.interrupted] == [1, 2, 3]
    bench.exit(1, w.Interrupted())
    bench.exit(2, w.Completed(b"after all", ""))
    assert not bench.parted
    bench.pass_time(limits.WORKER_CUT_WAIT)
    assert bench.parted
    assert [message for message in bench.said if not isinstance(message, w.Beat)] == [
        w.Offer(0),
        w.Nack(1, STOPPED_TEXT),
        w.Complete(2, b"after all", ""),
        w.Nack(3, STOPPED_TEXT),
    ]
    bench.exit(3, w.Completed(b"too late", ""))
    assert bench.said == []


def test_a_drain_gives_back_leases_that_wait():
    bench = Bench(1)
    bench.lease(1)
    bench.tell(w.Aborted(1, "timeout"))
    bench.lease(2)
    bench.tell(w.StopAsked(bench.now + SECOND))
    assert bench.said == [w.Offer(0), w.Nack(2, DRAINING_TEXT)]


def test_a_second_stop_can_only_bring_the_end_nearer():
    bench = Bench(1)
    bench.lease(1)
    bench.tell(w.StopAsked(bench.now + 10 * SECOND))
    bench.tell(w.StopAsked(bench.now + 20 * SECOND))
    bench.tell(w.StopAsked(bench.now))
    assert bench.session.state is CUTTING


def test_a_stop_before_the_answer_waits_for_it():
    bench = Bench(2, registered=None)
    bench.tell(w.StopAsked(bench.now + SECOND))
    assert bench.session.state is STOPPING and not bench.parted
    bench.tell(REGISTERED)
    bench.lease(1)
    assert bench.said == [w.Offer(0), w.Nack(1, DRAINING_TEXT)]
    bench.pass_time(limits.WORKER_DRAIN_LINGER)
    assert bench.parted


def test_a_stop_before_the_answer_does_not_wait_for_ever():
    bench = Bench(2, registered=None)
    bench.tell(w.StopAsked(bench.now))
    bench.pass_time(limits.WORKER_PART_TIMEOUT - 1)
    assert not bench.parted, "the grace is for handlers"
    bench.pass_time(1)
    assert bench.parted and bench.session.state is PARTING


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("event", [w.ServerLeaves("bye", True), w.StreamEnded()])
def test_the_end_of_the_stream_ends_every_lease(event, draining):
    bench = Bench(2)
    bench.lease(1, 2)
    if draining:
        bench.tell(w.StopAsked(bench.now + SECOND))
    bench.pass_time(SECOND // 2)
    bench.tell(event)
    assert bench.session.state is OVER and [lease for lease, _ in bench.interrupted] == [1, 2]
    assert bench.session.held == 0 and bench.said == [] and bench.session.next_timeout() is None
    assert (bench.left is not None) == isinstance(event, w.ServerLeaves)
    bench.exit(1)
    bench.exit(2, w.Failed("x"))
    assert bench.said == []


@pytest.mark.parametrize(
    ("registered", "event"),
    [(None, w.Leased(1, None, "")), (None, w.Aborted(1, "")), (REGISTERED, REGISTERED)],
)
def test_a_server_that_breaks_the_order_ends_the_session(registered, event):
    bench = Bench(registered=registered)
    if registered is not None:
        bench.lease(1)
    with pytest.raises(RemoteProtocolError, match="broke the worker protocol") as caught:
        bench.tell(event)
    bench.perform(caught.value.reply)
    assert bench.session.state is OVER and len(bench.interrupted) == len(bench.handlers)


def test_a_server_that_floods_is_not_read_on():
    bench = Bench(1)
    bench.lease(*range(1, 100))
    assert bench.session.congested
    assert len(bench.said) == 98 and not bench.session.congested


def test_ended_alarms_do_not_pile_up():
    bench = Bench(1)
    for number in range(1, 1_000):
        bench.lease(number)
        bench.exit(number)
    assert len(bench.session._alarms) <= limits.MAX_LANE_GARBAGE + 2


class Everything(RuleBasedStateMachine):
    """Any order of everything; a model of the server says what must hold."""

    @initialize(slots=st.integers(0, 4), busy=st.integers(0, 2), version=st.integers(0, 3), grant=st.integers(0, 5))
    def begin(self, slots, busy, version, grant):
        self.bench = Bench(slots, busy=min(busy, slots), registered=None)
        self.busy = min(busy, slots)
        self.slots = slots
        self.answer = w.Registered(7, grant, version, TTL, 5_000)
        self.next = 1
        self.given = {}
        """Leases that the server counts as the worker's."""
        self.reported = set()
        self.interrupted = {}

    def read(self):
        for message in self.bench.said:
            match message:
                case w.Beat(lease):
                    assert lease in self.given, "a heartbeat of a lease that is over"
                case w.Offer(slots):
                    assert 0 <= slots <= self.slots
                case _:
                    assert message.lease not in self.reported, "two reports of one lease"
                    self.reported.add(message.lease)
                    self.given.pop(message.lease, None)

    @property
    def state(self):
        return self.bench.session.state

    @precondition(lambda self: self.state in (REGISTERING, STOPPING))
    @rule()
    def register(self):
        self.bench.tell(self.answer)

    @precondition(lambda self: self.state not in (REGISTERING, STOPPING))
    @rule(ttl=st.sampled_from([None, 1, SECOND, TTL]))
    def lease(self, ttl):
        was = self.state
        self.bench.lease(self.next, ttl=ttl)
        if was in (SERVING, DRAINING, CUTTING):
            self.given[self.next] = True
        self.next += 1

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def abort(self, data):
        lease = data.draw(st.sampled_from(sorted(self.given)))
        self.read()
        if self.given.pop(lease, None):
            self.bench.tell(w.Aborted(lease, "aborted"))
            self.reported.add(lease)

    @precondition(lambda self: self.bench.handlers)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(
            [w.Completed(b"", ""), w.Completed(bytes(9_999), ""), w.Failed("x"), w.Refused(""), w.Withdrawn("")]
        ),
        cut=st.booleans(),
    )
    def exit(self, data, outcome, cut):
        self.bench.exit(data.draw(st.sampled_from(sorted(self.bench.handlers))), w.Interrupted() if cut else outcome)

    @precondition(lambda self: self.busy)
    @rule()
    def earlier(self):
        self.busy -= 1
        self.bench.tell(w.EarlierExited())

    @rule(milliseconds=st.integers(0, 7_000))
    def time(self, milliseconds):
        self.bench.pass_time(milliseconds * MILLISECOND)

    @rule(grace=st.integers(0, 5))
    def stop(self, grace):
        self.bench.tell(w.StopAsked(self.bench.now + grace * SECOND))

    @rule(event=st.sampled_from([w.ServerLeaves("bye", False), w.StreamEnded()]), really=st.integers(0, 9))
    def end(self, event, really):
        if really == 0 and self.state not in (REGISTERING,):
            self.read()
            self.bench.tell(event)
            self.given.clear()

    @rule()
    def send(self):
        self.read()

    @invariant()
    def what_must_hold(self):
        if not hasattr(self, "bench"):
            return
        session = self.bench.session
        session.check_invariants()
        assert len(self.bench.handlers) + self.busy <= self.slots, "more handlers than slots"
        due = session.next_timeout()
        assert due is None or due > self.bench.now, "the shell would spin"
        assert due is None or session.due <= due, "the shell would be late"
        if self.state is PARTING:
            self.read()
            assert not self.given, "parted with leases that nobody reported"

    def teardown(self):
        """However it went, a stop and time bring it to its end."""
        if not hasattr(self, "bench"):
            return
        self.bench.tell(w.StopAsked(self.bench.now + SECOND))
        for _ in range(3):
            self.bench.pass_time(6 * SECOND)
        assert self.state in (PARTING, OVER)
        self.what_must_hold()


TestEverything = Everything.TestCase


@given(st.integers(1, 8), st.lists(st.sampled_from("lae"), max_size=60))
def test_heartbeats_are_never_further_apart_than_a_third_of_the_ttl(slots, steps):
    bench = Bench(slots)
    seen = {}
    for number, step in enumerate(steps, 1):
        if step == "l":
            bench.lease(number)
            if number in bench.handlers:
                seen[number] = bench.now
        elif step == "e" and bench.handlers:
            bench.exit(min(bench.handlers))
        due = bench.session.next_timeout()
        if step == "a" and due is not None:
            bench.pass_time(due - bench.now)
        for message in bench.said:
            if isinstance(message, w.Beat):
                assert bench.now - seen[message.lease] == TTL // 3
                seen[message.lease] = bench.now
