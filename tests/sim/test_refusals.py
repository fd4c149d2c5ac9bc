"""Refusals are compared with what there was: each that nothing justifies is named, and each that had to come."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.engine.records import RecurringStored
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.spec import Dependency, MissPolicy, RecurringSpec, RetryOverride
from tests.sim.shadows import NOW, Node, end, new, spec, start
from tests.sim.shadows import S as Status

SCHEDULE = RecurringSpec("s", "* * * * * *", "", spec())
UNSURE = "its outcome is unknown"
CALLS = (m.Submit(spec(), False, None), m.SubmitBatch((spec(),)), m.Cancel(1), m.Get(1), mr.AddRecurring(SCHEDULE))


@pytest.fixture
def node():
    """Task 1 is live and has a key; nothing else is there."""
    made = Node()
    made.writes(new(1, spec(key="k")))
    return made


def refuse(node, request, code, message="", details=(), deadline=None, after=0):
    if type(request) is m.SubmitBatch:
        node.world.ledger.batches["batch 1"] = request.specs
    ask = node.asked(request, marker="batch 1" if type(request) is m.SubmitBatch else "", deadline=deadline)
    if after:
        node.world.now += after
        node.hears(TimerFired())
    node.world.ledger.rejected(node, ask, Rejection(code, message, details))


def wrong(what):
    return pytest.raises(Violation, match=what)


def submit(**asked):
    return m.Submit(spec(**asked), False, None)


class TestDoor:
    @pytest.mark.parametrize(
        ("event", "refused"),
        [
            (m.StopRequested(9 * SECOND), (True, True, False, False, True)),
            (m.StorePressure("slow"), (True, True, True, False, True)),
        ],
    )
    def test_what_is_not_let_in(self, node, event, refused):
        node.runs(node.worker(), 1, 1)  # so that a stop takes its time
        node.hears(event)
        for request, right in zip(CALLS, refused, strict=True):
            if right:
                refuse(node, request, Code.UNAVAILABLE)
                with wrong("is not refused for what"):
                    refuse(node, request, Code.OVERLOADED)
            else:
                with wrong("as if the server could not serve"):
                    refuse(node, request, Code.UNAVAILABLE)

    def test_who_is_let_in_all_the_same(self, node):
        node.hears(m.StorePressure("slow"))
        ask = node.asked(submit())
        with wrong("let in that is to be refused"):
            node.world.ledger.replied(node, ask, Submitted(1, False))

    def test_pressure_goes(self, node):
        node.hears(m.StorePressure("slow"), m.StorePressure(None))
        for request in CALLS:
            with wrong("as if the server could not serve"):
                refuse(node, request, Code.UNAVAILABLE)

    @pytest.mark.parametrize(("deadline", "right"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
    def test_a_deadline_that_has_passed(self, node, deadline, right):
        if right:
            refuse(node, m.Get(1), Code.DEADLINE_EXCEEDED, deadline=deadline)
        else:
            with wrong("has some left"):
                refuse(node, m.Get(1), Code.DEADLINE_EXCEEDED, deadline=deadline)

    def test_what_was_never_looked_at_has_a_known_outcome(self, node):
        with wrong("was never looked at"):
            refuse(node, submit(), Code.DEADLINE_EXCEEDED, UNSURE, deadline=NOW)

    def test_as_many_as_may_be_open(self):
        made = Node()
        most = made.settings.limits.max_concurrent_requests
        asks = [made.asked(m.Get(1)) for _ in range(most)]
        refuse(made, m.Get(1), Code.UNAVAILABLE)
        made.hears(m.CallEnded(asks[0].call))
        with wrong("as if the server could not serve"):
            refuse(made, m.Get(1), Code.UNAVAILABLE)

    def test_each_in_the_step_that_it_comes_in(self, node):
        node.hears(m.StorePressure("slow"))
        with wrong("is not refused for what"):
            refuse(node, submit(), Code.UNAVAILABLE, after=1)


class TestStops:
    def test_who_waits_is_told_when_the_end_is_durable(self, node):
        wait, get = m.Wait(1, None), node.asked(m.Wait(1, None))
        node.written = 5
        node.hears(m.StopRequested(0))
        node.holders.stop_goes_on()
        stopped = Rejection(Code.UNAVAILABLE, "")
        with wrong("before it is durable"):
            node.world.ledger.rejected(node, get, stopped)
        with wrong("sent away before"):
            node.holders.told(node.worker(), m.Shutdown("over", False))
        node.durable = 5
        node.world.ledger.rejected(node, get, stopped)
        refuse(node, wait, Code.UNAVAILABLE)
        node.holders.told(node.worker(), m.Shutdown("over", False))

    def test_a_second_request_only_shortens_the_grace(self, node):
        node.runs(node.worker(), 1, 1)
        node.hears(m.StopRequested(3 * SECOND))
        node.hears(m.StopRequested(9 * SECOND))
        node.holders.stop_goes_on()
        node.world.now += 3 * SECOND
        with wrong("longer than its grace"):
            node.holders.stop_goes_on()


TIMES = [
    (m.Get(1), Code.CANCELLED, "", (), 330, None),
    (m.Get(1), Code.CANCELLED, "", (), 329, "has some left"),
    (m.Get(1), Code.DEADLINE_EXCEEDED, "", (), 330, "has some left"),
    (m.Get(1), Code.CANCELLED, UNSURE, (), 330, "changes nothing"),
    (m.Wait(1, 400 * SECOND), Code.DEADLINE_EXCEEDED, "", (), 300, None),
    (m.Wait(1, 0), Code.DEADLINE_EXCEEDED, "", (), 0, None),
    (submit(), Code.CANCELLED, UNSURE, (), 330, None),
    (submit(), Code.CANCELLED, "", (), 330, "what is known of the outcome"),
    (m.Submit(spec(key="k"), True, SECOND), Code.DEADLINE_EXCEEDED, "", (("cronoq-task-id", "1"),), 1, None),
    (m.Submit(spec(key="k"), True, 0), Code.DEADLINE_EXCEEDED, "", (("cronoq-task-id", "1"),), 0, None),
    (m.Submit(spec(key="k"), True, 0), Code.DEADLINE_EXCEEDED, "", (), 0, "what is known of the outcome"),
    (m.Submit(spec(key="k"), True, 0), Code.DEADLINE_EXCEEDED, UNSURE, (), 0, "asked for no time"),
    (m.Submit(spec(key="k"), True, SECOND), Code.DEADLINE_EXCEEDED, UNSURE, (), 1, "is not told which one"),
    (m.Submit(spec(), True, SECOND), Code.DEADLINE_EXCEEDED, "", (("cronoq-task-id", "1"),), 1, "of somebody else"),
    (mr.AddRecurring(SCHEDULE), Code.CANCELLED, UNSURE, (), 330, None),
    (mr.RemoveRecurring("s"), Code.CANCELLED, "", (), 330, "what is known of the outcome"),
]


@pytest.mark.parametrize(("request_", "code", "message", "details", "seconds", "what"), TIMES)
def test_who_runs_out_of_time(node, request_, code, message, details, seconds, what):
    if what is None:
        refuse(node, request_, code, message, details, after=seconds * SECOND)
    else:
        with wrong(what):
            refuse(node, request_, code, message, details, after=seconds * SECOND)


def test_who_waits_for_the_store_cannot_be_told_which_task(node):
    node.written = 1
    refuse(node, m.Submit(spec(), True, SECOND), Code.DEADLINE_EXCEEDED, UNSURE, after=SECOND)


def test_timers_that_have_fired_leave_no_call_behind(node):
    ask = node.asked(m.Wait(1, SECOND))
    node.world.now += SECOND
    node.hears(TimerFired())
    node.hears()
    with wrong("after its time was up"):
        node.world.ledger.rejected(node, ask, Rejection(Code.NOT_FOUND, ""))


NEEDS = {"resources": (("db", 2),)}
ODD = [
    (submit(pool="e"), Code.UNKNOWN_POOL, True),
    (submit(), Code.UNKNOWN_POOL, False),
    (m.ListTasks(("e",), (), 0, 0), Code.UNKNOWN_POOL, True),
    (m.ListTasks(("a",), (), 0, 0), Code.UNKNOWN_POOL, False),
    (m.Get(1), Code.UNKNOWN_POOL, False),
    (submit(resources=(("odd", 1),)), Code.UNKNOWN_RESOURCE, True),
    (submit(**NEEDS), Code.UNKNOWN_RESOURCE, False),
    (submit(**NEEDS), Code.RESOURCE_EXCEEDS_CAPACITY, True),
    (submit(resources=(("db", 1),)), Code.RESOURCE_EXCEEDS_CAPACITY, False),
    (submit(retry=RetryOverride(0, None, None, None, None)), Code.INVALID, True),
    (submit(), Code.INVALID, False),
    (submit(start=NOW), Code.RESERVATION_CONFLICT, True),
    (submit(), Code.RESERVATION_CONFLICT, False),
    (submit(dependencies=(Dependency("j", 1),)), Code.UNKNOWN_DEPENDENCY, True),
    (submit(dependencies=(Dependency("k", 1),)), Code.UNKNOWN_DEPENDENCY, False),
    (submit(dependencies=(Dependency(1, 1),)), Code.UNKNOWN_DEPENDENCY, False),
    (submit(pool="b", dependencies=(Dependency("j", 1),)), Code.UNKNOWN_DEPENDENCY, False),
    (submit(dependencies=(Dependency("k", 1),)), Code.CYCLE, True),
    (submit(), Code.CYCLE, False),
    (submit(), Code.INTERNAL, False),
    (m.Watch((), (), (), False), Code.DATA_LOSS, False),
    (mr.AddRecurring(replace(SCHEDULE, cron="61 * * * *")), Code.INVALID, True),
    (mr.AddRecurring(replace(SCHEDULE, tz="Mars/Base")), Code.INVALID, True),
    (mr.AddRecurring(replace(SCHEDULE, template=spec(pool="e"))), Code.INVALID, True),
    (mr.AddRecurring(SCHEDULE), Code.INVALID, False),
    (mr.AddRecurring(SCHEDULE), Code.OVERLOADED, False),
    (mr.AddRecurring(SCHEDULE), Code.FAILED_PRECONDITION, False),
    (mr.RemoveRecurring("s"), Code.INVALID, False),
    (mr.ListRecurring(), Code.TOO_LARGE, False),
]


@pytest.mark.parametrize(("request_", "code", "right"), ODD)
def test_a_reason_must_be_so(node, request_, code, right):
    if right:
        refuse(node, request_, code)
    else:
        with pytest.raises(Violation):
            refuse(node, request_, code)


def test_a_key_that_is_taken_is_no_reason_to_refuse(node):
    with wrong("whose key a live task has"):
        refuse(node, submit(pool="e", key="k"), Code.UNKNOWN_POOL)


def test_a_schedule_of_the_file(node):
    node.writes(RecurringStored(replace(SCHEDULE, configured=True), NOW))
    refuse(node, mr.AddRecurring(SCHEDULE), Code.FAILED_PRECONDITION)
    refuse(node, mr.RemoveRecurring("s"), Code.FAILED_PRECONDITION)


def test_a_list_of_schedules_that_fits_no_message(node):
    most = node.settings.limits.max_message_bytes - MESSAGE_HEADROOM
    node.writes(RecurringStored(replace(SCHEDULE, name="n" * most), NOW))
    refuse(node, mr.ListRecurring(), Code.TOO_LARGE)


class TestBatches:
    SPECS = (spec(key="x"), spec(key="x"), spec(pool="e"))

    @pytest.mark.parametrize(
        ("code", "index", "right"),
        [
            (Code.DUPLICATE_KEY_IN_BATCH, "1", True),
            (Code.DUPLICATE_KEY_IN_BATCH, "0", False),
            (Code.UNKNOWN_POOL, "2", True),
            (Code.UNKNOWN_POOL, "1", False),
            (Code.UNKNOWN_POOL, "3", False),
        ],
    )
    def test_the_member_at_fault_is_named(self, node, code, index, right):
        request, details = m.SubmitBatch(self.SPECS), (("cronoq-batch-index", index),)
        if right:
            refuse(node, request, code, details=details)
        else:
            with pytest.raises(Violation):
                refuse(node, request, code, details=details)

    def test_some_member_is(self, node):
        with wrong("which member"):
            refuse(node, m.SubmitBatch(self.SPECS), Code.UNKNOWN_POOL)


def queue(node, pool, count, priority=2, first=10):
    """So many tasks wait."""
    node.writes(*[new(first + number, spec(pool=pool, priority=priority)) for number in range(count)])


class TestBounds:
    @pytest.mark.parametrize(
        ("pool", "there", "priority", "request_", "code", "details", "right"),
        [
            ("d", 4, 2, submit(pool="d"), Code.OVERLOADED, (), True),
            ("d", 3, 2, submit(pool="d"), Code.OVERLOADED, (), False),
            ("a", 3, 3, submit(pool="a", priority=3), Code.OVERLOADED, (), True),
            ("a", 2, 3, submit(pool="a", priority=3), Code.OVERLOADED, (), False),
            ("a", 3, 3, submit(pool="a", priority=0), Code.OVERLOADED, (), False),
            ("b", 3, 2, submit(pool="b"), Code.FULL, (), True),
            ("d", 4, 2, submit(pool="d"), Code.FULL, (), False),
            ("d", 0, 2, m.SubmitBatch((spec("d"),) * 5), Code.OVERLOADED, (("cronoq-batch-index", "4"),), True),
            ("d", 0, 2, m.SubmitBatch((spec("d"),) * 5), Code.OVERLOADED, (("cronoq-batch-index", "3"),), False),
            ("d", 0, 2, m.Submit(replace(spec(), size=5_000), False, None), Code.OVERLOADED, (), False),
            ("d", 0, 2, m.Submit(replace(spec(), size=5_001), False, None), Code.OVERLOADED, (), True),
        ],
    )
    def test_exactly(self, pool, there, priority, request_, code, details, right):
        made = Node()
        if there:
            queue(made, pool, there, priority)
        if right:
            refuse(made, request_, code, details=details)
        else:
            with wrong("what is not so|called full"):
                refuse(made, request_, code, details=details)

    def test_in_all(self):
        made = Node()
        queue(made, "a", 3, priority=3)
        queue(made, "a", 4, priority=2, first=20)
        queue(made, "c", 6, priority=3, first=30)
        queue(made, "b", 2, first=40)
        with wrong("what is not so"):
            refuse(made, submit(pool="d"), Code.OVERLOADED)
        queue(made, "d", 1, first=50)
        refuse(made, submit(pool="d"), Code.OVERLOADED)

    def test_what_left_in_the_same_step_may_have_been_there(self):
        made = Node()
        queue(made, "d", 4)
        made.hears(TimerFired())
        made.writes(start(10))
        refuse(made, submit(pool="d"), Code.OVERLOADED)
        made.hears(TimerFired())
        made.writes()
        with wrong("what is not so"):
            refuse(made, submit(pool="d"), Code.OVERLOADED)

    @pytest.mark.parametrize(
        ("steps", "what"),
        [
            ([[new(n, spec("d")) for n in range(1, 6)], []], "none gives way"),
            ([[new(n, spec("d")) for n in range(1, 7)]], "none gives way"),
            ([[new(n, spec("a", priority=3)) for n in range(1, 5)]], "above a bound"),
            ([[new(1, replace(spec(), size=5_001))]], "above the payload budget"),
            ([[RecurringStored(replace(SCHEDULE, template=replace(spec(), size=5_001)), NOW)]], "payload budget"),
            (
                [
                    [
                        *(new(n, spec("d")) for n in range(1, 5)),
                        new(5, spec("d", start=NOW - 9 * SECOND, on_miss=int(MissPolicy.SKIP))),
                        end(5, Status.MISSED, 0),
                        end(1, Status.SHED, 0),
                    ]
                ],
                "for one that ends at once",
            ),
        ],
    )
    def test_nothing_is_taken_in_above_them(self, steps, what):
        made = Node()
        with wrong(what):
            for step in steps:
                made.writes(*step)

    def test_who_gives_way_makes_room(self):
        made = Node()
        made.writes(*(new(n, spec("d")) for n in range(1, 6)), end(1, Status.SHED, 0))
        made.writes(start(2))
        made.writes(new(6, spec("d")))
