"""Calls about recurring schedules: what the engine is asked, when its answer is told, and as what."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer, OccurrenceDropped, RecurringAdded, RecurringGone
from cronoq_sansio.engine.events import RecurringPut, RecurringRemoved
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as words
from cronoq_sansio.service.schedules import FAULTS_OF_A_TEMPLATE, ScheduleCall
from cronoq_sansio.settings import LimitSettings, PoolSettings, Settings
from cronoq_sansio.spec import RecurringSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_codec import ROUTES
from cronoq_sansio.wire.protobuf_worker import encode_for_worker
from tests.service.harness import Harness, spec

NIGHTLY = RecurringSpec("nightly", "0 2 * * *", "", spec())
LIMITS = replace(LimitSettings(), max_wait=10 * SECOND, request_timeout=5 * SECOND)


class Played(Harness):
    """A harness whose engine answers calls about schedules as the test says, in a step that also admits a task."""

    def __init__(self, outcome, settings=None, **options):
        super().__init__(settings, **options)
        self.outcome = outcome
        self.asked = []
        self.views = ()
        self.to_drop = []
        handle = self.engine.handle

        def play(events, now):
            asked = [event for event in events if isinstance(event, RecurringPut | RecurringRemoved)]
            self.asked += asked
            step = handle([event for event in events if event not in asked], now)
            step.once_durable += [Answer(event.request, self.outcome, step.number) for event in asked]
            step.at_once += self.to_drop
            self.to_drop = []
            return step

        self.engine.handle = play
        self.engine.list_recurring = lambda: list(self.views)

    def change(self, request, **options):
        """A call in a batch with a Submit, so that its step has something to store."""
        call = m.Call("")
        self.handle(self.received(m.Call(""), m.Submit(spec(), False, None)), self.received(call, request, **options))
        return call


# --- changes


CHANGES = [
    (words.AddRecurring(NIGHTLY), RecurringAdded(), words.RecurringAddedReply()),
    (words.RemoveRecurring("nightly"), RecurringGone(True), words.RecurringRemovedReply(True)),
    (words.RemoveRecurring("nightly"), RecurringGone(False), words.RecurringRemovedReply(False)),
]


@pytest.mark.parametrize(("request_", "outcome", "reply"), CHANGES, ids=["added", "removed", "there was none"])
def test_a_change_is_told_once_it_is_durable(request_, outcome, reply):
    rig = Played(outcome)
    call = rig.change(request_)
    (asked,) = rig.asked
    assert asked.request is call
    assert asked.spec == NIGHTLY if isinstance(asked, RecurringPut) else asked.name == "nightly"
    assert rig.answer(call) is None
    rig.durable()
    assert rig.answer(call) == reply


@pytest.mark.parametrize("code", [code for code in Code if code not in FAULTS_OF_A_TEMPLATE])
def test_what_is_no_fault_of_the_template_keeps_its_code(code):
    refusal = Rejection(code, "cron: no", (("a", "b"),))
    for request in (words.AddRecurring(NIGHTLY), words.RemoveRecurring("nightly")):
        rig = Played(refusal)
        call = rig.change(request)
        rig.durable()
        assert rig.answer(call) == refusal


@pytest.mark.parametrize("code", FAULTS_OF_A_TEMPLATE)
def test_what_a_template_names_and_nobody_has_is_invalid(code):
    refusal = Rejection(code, "unknown pool 'p'")
    rig = Played(refusal)
    added, removed = rig.change(words.AddRecurring(NIGHTLY)), rig.change(words.RemoveRecurring("nightly"))
    rig.durable()
    assert rig.answer(added) == Rejection(Code.INVALID, "unknown pool 'p'")
    assert rig.answer(removed) == refusal


def test_a_caller_that_went_away_is_told_nothing_and_the_change_stays():
    rig = Played(RecurringAdded())
    call = m.Call("")
    rig.handle(rig.received(call, words.AddRecurring(NIGHTLY)), m.CallEnded(call))
    rig.durable()
    assert len(rig.asked) == 1 and rig.answer(call) is None
    assert rig.service.statistics()["open_requests"] == 0 and rig.outbox.held() == 0


@pytest.mark.parametrize("request_", [words.AddRecurring(NIGHTLY), words.RemoveRecurring("nightly")])
def test_a_change_that_runs_out_of_time_says_that_it_may_be_made_again(request_):
    rig = Played(RecurringAdded() if isinstance(request_, words.AddRecurring) else RecurringGone(True))
    call = rig.change(request_, deadline=2 * SECOND)
    rig.advance(2 * SECOND)
    assert rig.answer(call) == Rejection(Code.DEADLINE_EXCEEDED, ScheduleCall.UNSTORED)
    rig.durable()
    assert rig.outbox.held() == 0


def test_the_servers_own_bound_counts_too():
    rig = Played(RecurringAdded(), Settings(limits=LIMITS))
    call = rig.change(words.AddRecurring(NIGHTLY))
    rig.advance(15 * SECOND)
    assert rig.answer(call) == Rejection(Code.CANCELLED, ScheduleCall.UNSTORED)


def test_changes_and_listings_count_as_requests():
    rig = Played(RecurringAdded(), Settings(limits=replace(LIMITS, max_concurrent_requests=1)))
    rig.change(words.AddRecurring(NIGHTLY))
    assert rig.asked == [], "the Submit before it took the place"
    rig.durable()
    rig.submit()
    for request in (words.AddRecurring(NIGHTLY), words.RemoveRecurring("a"), words.ListRecurring()):
        refused = rig.answer(rig.call(request))
        assert refused.code is Code.UNAVAILABLE and "max_concurrent_requests" in refused.message


# --- the list


def view(name, **fields):
    return RecurringView(replace(NIGHTLY, name=name, **fields), None, 0)


def test_a_list_shows_what_is_durable():
    rig = Played(RecurringAdded())
    rig.views = (view("a"), view("b"))
    rig.submit()
    call = rig.call(words.ListRecurring())
    assert rig.answer(call) is None, "who knows what the step that is not stored yet has made of them"
    rig.durable()
    assert rig.answer(call) == words.RecurringListReply(rig.views)
    again = rig.call(words.ListRecurring())
    assert rig.answer(again) == words.RecurringListReply(rig.views), "nothing to wait for"


def test_a_list_shows_what_came_before_it_in_the_same_batch():
    rig = Played(RecurringAdded())
    seen = []
    rig.engine.list_recurring = lambda: seen.extend(rig.asked) or []
    rig.handle(rig.received(m.Call(""), words.AddRecurring(NIGHTLY)), rig.received(m.Call(""), words.ListRecurring()))
    assert len(seen) == 1


def test_a_list_that_fits_no_message_is_refused():
    limits = replace(LIMITS, max_message_bytes=8_192)
    rig = Played(RecurringAdded(), Settings(limits=limits))
    names = [f"{number:02}".ljust(250, "ü") for number in range(40)]
    for count in range(1, 40):
        rig.views = tuple(view(name, cron="* " * 5, tz="Europe/Paris") for name in names[:count])
        rig.now += 1  # calls that come together share one list
        answer = rig.answer(rig.call(words.ListRecurring()))
        if isinstance(answer, Rejection):
            break
        encoded = ROUTES[b"/cronoq.v1.Admin/ListRecurring"].encode(answer)
        assert len(encoded) <= limits.max_message_bytes
    assert 8 < count < 16
    assert answer.code is Code.TOO_LARGE
    assert answer.message.startswith(f"{count} schedules take about ")
    assert answer.message.endswith(f"bytes, a message at most {8_192 - MESSAGE_HEADROOM} (limits.max_message_bytes)")


def test_an_entry_is_never_larger_than_it_counts():
    """Numbers at their largest, and texts of the lengths at which their own lengths take another byte."""
    for length in (0, 1, 127, 128, 256):
        made = replace(NIGHTLY, name="n" * length, cron="c" * length, tz="z" * min(length, 64), overlap=4)
        made = replace(made, template=replace(spec(), pool="p" * min(length, 64), kind="k" * length))
        shown = (RecurringView(made, (1 << 63) - 1, (1 << 64) - 1),)
        limits = replace(LIMITS, max_message_bytes=1)
        rig = Played(RecurringAdded(), Settings(limits=limits))
        rig.views = shown
        size = len(ROUTES[b"/cronoq.v1.Admin/ListRecurring"].encode(words.RecurringListReply(shown)))
        counted = int(rig.answer(rig.call(words.ListRecurring())).message.split()[4])
        assert size <= counted <= size + 64


# --- what is dropped


def test_a_drop_is_logged_at_once():
    rig = Played(RecurringAdded())
    drop = OccurrenceDropped("nightly", "conflict", 1, 1, 1, False, "the calendar is full")
    rig.to_drop = [drop]
    performed = rig.handle(rig.received(m.Call(""), m.Submit(spec(), False, None)))
    assert performed == [words.LogDrop(drop)], "while the store has not answered"


def test_a_drop_beside_an_abort():
    rig = Played(RecurringAdded())
    stream = rig.worker()
    rig.submit()
    rig.durable()
    (lease,) = rig.leases(stream)
    drop = OccurrenceDropped("nightly", "missed", 1, 1, 1, False, "")
    rig.to_drop = [drop]
    call = m.Call("")
    performed = rig.handle(rig.received(call, m.Cancel(1)))
    assert words.LogDrop(drop) in performed
    (abort,) = [action.message for action in performed if isinstance(action, m.SendToWorker)]
    assert abort.lease == lease


# --- with the engine's own answers

EVERY_SECOND = RecurringSpec("often", "* * * * * *", "", spec(key="o"))
YEARLY = replace(NIGHTLY, name="yearly", cron="0 0 1 1 *")


def added(rig, *schedules):
    """These are there, durably."""
    for made in schedules:
        call = rig.call(words.AddRecurring(made))
        rig.durable()
        assert rig.answer(call) == words.RecurringAddedReply()


def listed(rig):
    call = rig.call(words.ListRecurring())
    rig.durable()
    return [(view.spec.name, view.last_task) for view in rig.answer(call).schedules]


@pytest.mark.parametrize("volatile", [False, True])
def test_schedules_are_listed_by_name(volatile):
    rig = Harness(volatile=volatile)
    added(rig, YEARLY, NIGHTLY, EVERY_SECOND)
    assert listed(rig) == [("nightly", 0), ("often", 0), ("yearly", 0)]
    assert rig.service.statistics()["schedules"] == 3
    if not volatile:
        assert list(rig.schedules) == ["yearly", "nightly", "often"]


def test_a_schedule_that_is_not_stored_yet_is_not_shown():
    rig = Harness()
    added(rig, NIGHTLY)
    rig.call(words.AddRecurring(YEARLY))
    rig.call(words.RemoveRecurring("nightly"))
    call = rig.call(words.ListRecurring())
    rig.durable(1)
    assert rig.answer(call) is None
    rig.durable(1)
    assert [view.spec.name for view in rig.answer(call).schedules] == ["yearly"]


def test_a_removal_is_told_with_what_there_was():
    rig = Harness()
    added(rig, NIGHTLY)
    first, second = rig.call(words.RemoveRecurring("nightly")), rig.call(words.RemoveRecurring("nightly"))
    assert rig.answer(first) is None and rig.answer(second) is None, "that there is none is not stored either"
    rig.durable()
    assert [rig.answer(call).removed for call in (first, second)] == [True, False]
    assert rig.schedules == {}


BAD = [
    (replace(NIGHTLY, cron="* * * *"), "cron: "),
    (replace(NIGHTLY, cron=""), "cron: "),
    (replace(NIGHTLY, cron="0 0 31 2 *"), "cron: "),
    (replace(NIGHTLY, tz="Mars/Olympus"), "tz: "),
    (replace(NIGHTLY, tz="../etc/passwd"), "tz: "),
    (replace(NIGHTLY, template=spec("nowhere")), "template: unknown pool 'nowhere'"),
    (replace(NIGHTLY, template=spec(resources=(("gpu", 1),))), "template.resources['gpu']: "),
    (replace(NIGHTLY, template=spec(attempts=0)), "template.retry.max_attempts"),
]


@pytest.mark.parametrize(("bad", "begins"), BAD, ids=[begins for _, begins in BAD])
def test_whatever_is_wrong_with_a_schedule_is_invalid(bad, begins):
    rig = Harness()
    answer = rig.answer(rig.call(words.AddRecurring(bad)))
    assert answer.code is Code.INVALID and answer.message.startswith(begins)
    assert not rig.waiting and listed(rig) == []


def test_schedules_of_the_configuration_are_changed_there_alone():
    rig = Harness(Settings(recurring=(replace(NIGHTLY, configured=True),)))
    rig.durable()
    assert list(rig.schedules) == ["nightly"]
    for request in (words.AddRecurring(NIGHTLY), words.RemoveRecurring("nightly")):
        answer = rig.answer(rig.call(request))
        assert answer.code is Code.FAILED_PRECONDITION and "configuration file" in answer.message
    assert listed(rig) == [("nightly", 0)]


def test_an_occurrence_that_is_refused_is_logged_once_each():
    """One slot of one may be reserved: two schedules of every second cannot both have it."""
    settings = Settings(pools=(PoolSettings(max=1),))
    rig = Harness(settings)
    added(rig, EVERY_SECOND, replace(EVERY_SECOND, name="too", template=spec(key="t")))
    rig.worker()
    rig.advance(10 * SECOND)
    rig.durable()
    reasons = {(drop.name, drop.reason) for drop in rig.drops}
    assert ("too", "conflict") in reasons and all(drop.count == 1 for drop in rig.drops)
    assert all("reserv" in drop.detail for drop in rig.drops if drop.reason == "conflict")
    counts = dict(rig.engine.snapshot(rig.now).occurrences_dropped)
    assert sum(counts.values()) == len(rig.drops)


def test_a_worker_learns_the_schedule_and_the_deadline():
    rig = Harness()
    added(rig, replace(EVERY_SECOND, template=spec(key="o", deadline_in=5 * SECOND)))
    stream = rig.worker()
    rig.advance(3 * SECOND)
    rig.durable()
    rig.advance(SECOND)
    rig.durable()
    lease = next(iter(rig.peers[stream].leases.values()))
    found = pb.ServerMessage.FromString(encode_for_worker(lease)).lease
    start = found.deadline_unix_ns - 5 * SECOND
    assert dict(found.tags) == {"cronoq.recurring": "often"}
    assert start % SECOND == 0 and found.key == f"o@{moment(start)}"


def moment(wall):
    return datetime.fromtimestamp(wall // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_while_the_server_stops_nothing_fires_and_removals_are_taken():
    rig = Harness()
    added(rig, EVERY_SECOND)
    stream = rig.worker()
    rig.submit()
    rig.durable()
    rig.handle(m.StopRequested(30 * SECOND))
    rig.durable()
    before = len(rig.engine.tasks.live)
    rig.advance(10 * SECOND)
    assert len(rig.engine.tasks.live) <= before
    removed = rig.call(words.RemoveRecurring("often"))
    rig.durable()
    assert rig.answer(removed).removed
    for lease in rig.leases(stream):
        rig.say(stream, m.Complete(lease, b"", ""))
    rig.durable()
    assert rig.finished
