"""Recordings are replayed to the same state; what differs, breaks, raises or is damaged is named with its place."""

import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.events import (
    CascadesHeld,
    CommitsResumed,
    CommitsStalled,
    Stalled,
    TimerFired,
    WallClockMoved,
)
from cronoq_sansio.engine.records import (
    FinishedLoaded,
    RecurringLoaded,
    RecurringStored,
    TaskChanged,
    TaskInserted,
    TaskLoaded,
)
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.recording import replay as recording
from cronoq_sansio.recording import words
from cronoq_sansio.recording.format import BOUND, ENDED, RAISED, WRITES, References, Said, without_secrets
from cronoq_sansio.recording.replay import RecordingReport, bounded_lines, is_recording, replay_recording
from cronoq_sansio.recording.state_hash import state_hash
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages import (
    BatchReply,
    Call,
    CallEnded,
    CallReceived,
    Cancel,
    Complete,
    Fail,
    Get,
    GetSnapshot,
    Heartbeat,
    ListTasks,
    ListWorkers,
    Message,
    Nack,
    ServiceAction,
    SetSlots,
    StopRequested,
    StoreAnswered,
    StoredPage,
    StoredTask,
    StorePressure,
    Submit,
    SubmitBatch,
    SubmitReply,
    TaskInfo,
    Wait,
    Watch,
    WorkerGone,
)
from cronoq_sansio.service.messages_recurring import AddRecurring, ListRecurring
from cronoq_sansio.settings import AuthSettings, ServerSettings, StoreSettings, TlsSettings, TokenSettings
from cronoq_sansio.spec import RecurringSpec, RetryOverride, Scheduling
from tests.recording.recorded import FIRST, NOW, SETTINGS, SPEC, Term

CANARY = b"the canary of the payload"


def day(term: Term) -> Term:
    """Something of everything that may happen in a term."""
    worker, other = term.worker(), term.worker(1, "slow")
    watch = term.call(Watch((), (), (), True))
    waiting = term.submit(wait=True, payload=CANARY, key="k")
    term.submit(scheduling=Scheduling(resources=(("api", 2),)))
    term.submit(retry=RetryOverride(1, None, None, None, None), timeout=5 * SECOND)
    term.call(SubmitBatch((SPEC, replace(SPEC, pool="slow"), replace(SPEC, key="k"))))
    term.call(Get(77))
    term.commit()
    term.handle(*[WorkerGone(other, "its process ended")], later=SECOND)
    term.commit()
    for action in list(term.leases):
        lease = action.lease.id
        term.say(worker, Heartbeat(lease), later=SECOND)
    term.say(worker, Complete(term.leases[0].lease.id, CANARY, "text/plain"))
    term.say(worker, Complete(term.leases[0].lease.id, CANARY, "text/plain"))
    term.say(worker, Fail(term.leases[1].lease.id, "it broke", False, 0))
    term.commit()
    term.handle(CommitsStalled(), StorePressure("slow"), CascadesHeld(True))
    term.submit()
    term.handle(StorePressure(None), CascadesHeld(False), CommitsResumed(3 * SECOND), later=3 * SECOND)
    term.call(AddRecurring(RecurringSpec("nightly", "* * * * *", "Europe/Berlin", replace(SPEC, key="night"))))
    for request in (ListTasks((), (), 0, 0), ListWorkers(), GetSnapshot(), ListRecurring(), Cancel("nobody")):
        term.call(request, looked=False)
    term.commit()
    term.say(worker, Nack(term.leases[-1].lease.id, "not now"))
    term.say(worker, SetSlots(1))
    term.handle(WallClockMoved(90 * SECOND), Stalled(SECOND), later=SECOND)
    for _ in range(20):
        term.handle(TimerFired(), later=20 * SECOND)
        term.commit()
    late = term.call(Wait(FIRST, 5 * SECOND))
    term.handle(CallEnded(late), CallEnded(watch), CallEnded(waiting))
    term.handle(StopRequested(SECOND), later=SECOND)
    term.handle(TimerFired(), later=2 * SECOND)
    term.commit()
    term.handle(WorkerGone(worker, "it was told to"))
    return term


def test_a_day_is_replayed_to_the_same_state() -> None:
    term = day(Term())
    report = replay_recording(term.end())
    assert report.outcome == "same", report.text()
    assert report.exit_code == 0 and report.state == state_hash(term.engine)
    assert (report.steps, report.events) == (term.writer.steps, term.writer.events)
    assert report.text().startswith(f"same after {report.steps} steps") and "stopped, the test is over" in report.text()
    assert not term.writer._references.numbers, "whoever has ended holds no number"


def test_neither_payloads_nor_outputs_nor_credentials_are_in_it() -> None:
    secret = replace(
        SETTINGS,
        auth=AuthSettings((TokenSettings("admin", b"digest of a token"),)),
        server=ServerSettings(("secret-host", 1), tls=TlsSettings("secret-cert.pem", "secret-key.pem")),
        store=StoreSettings("sqlite", "/secret-place/tasks.db"),
        recurring=(RecurringSpec("n", "0 3 * * *", "", replace(SPEC, payload=CANARY), configured=True),),
    )
    text = "".join(day(Term(secret)).end())
    assert "canary" not in text and "secret" not in text and CANARY.hex() not in text and "digest of" not in text
    assert replay_recording(text.splitlines(keepends=True)).outcome == "same"
    assert without_secrets(SETTINGS) == SETTINGS


def records() -> list[Any]:
    """What a store may hold."""
    blocked = replace(SPEC, key="b", pool="slow")
    return [
        TaskLoaded(TaskInserted(1, SPEC, 3, NOW - SECOND), None),
        TaskLoaded(TaskInserted(2, blocked, 3, NOW - SECOND), TaskChanged(2, 4, 1, 0, NOW - SECOND, NOW - SECOND, "")),
        TaskLoaded(TaskInserted(3, replace(SPEC, pool="gone"), 3, NOW), None),
        FinishedLoaded(4, "default", "old", 6, NOW - SECOND),
        RecurringLoaded(RecurringStored(RecurringSpec("n", "* * * * *", "", SPEC), NOW - 3_600 * SECOND), None),
    ]


def test_recovery_is_part_of_it() -> None:
    term = Term(records=records() + [TaskLoaded(TaskInserted(n, SPEC, 1, NOW), None) for n in range(10, 1_500)])
    day(term)
    report = replay_recording(term.end())
    assert report.outcome == "same", report.text()
    assert sum(line.startswith('{"load"') for line in term.lines) == 15
    assert report.state == state_hash(term.engine)


def test_a_store_that_forgets() -> None:
    assert replay_recording(day(Term(volatile=True)).end()).outcome == "same"


def test_answers_of_a_store() -> None:
    term = Term()
    info = TaskInfo(5, 6, "default", "k", "", 1, 3, NOW, NOW, NOW, "", True, 2)
    answers = [None, Rejection(Code.UNAVAILABLE, "not now"), StoredTask(info, CANARY, "text/plain")]
    for answer in answers:
        call = term.call(Wait(5, None))
        term.handle(StoreAnswered(term.asked[-1], answer))
        assert not call.open
    term.call(ListTasks((), (), 0, 10))
    term.handle(StoreAnswered(term.asked[-1], StoredPage((info,), 0)))
    lines = term.end()
    assert replay_recording(lines).outcome == "same"
    assert "canary" not in "".join(lines) and f'"length":{len(CANARY)}' in "".join(lines)


@pytest.mark.parametrize("seed", range(6))
def test_any_traffic_is_replayed(seed: int) -> None:
    random = Random(seed)
    term = Term()
    streams = [term.worker(3), term.worker(2, "slow")]
    for _ in range(300):
        deed = random.randrange(8)
        if deed < 3:
            term.submit(
                random.random() < 0.3, key=random.choice(["", "a", "b"]), pool=random.choice(["default", "slow"])
            )
        elif deed == 3 and term.leases:
            lease = random.choice(term.leases)
            message: Any = random.choice(
                [Complete(lease.lease.id, b"out", ""), Fail(lease.lease.id, "no", random.random() < 0.5, 0)]
            )
            term.say(lease.stream, message, looked=random.random() < 0.5)
        elif deed == 4:
            term.call(random.choice([Cancel(random.choice(["a", "b"])), Get("a"), ListTasks((), (), 0, 5)]))
        elif deed == 5:
            term.handle(TimerFired(), later=random.randrange(40 * SECOND))
        elif deed == 6:
            stream = streams.pop(0)
            term.handle(WorkerGone(stream, "gone"), later=SECOND)
            streams.append(term.worker(2, random.choice(["default", "slow"])))
        else:
            term.commit()
    report = replay_recording(term.end())
    assert report.outcome == "same", report.text()
    assert report.state == state_hash(term.engine)


# --- what differs


def test_another_rule_diverges_and_the_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    term = day(Term())
    lines = term.end()
    honest = lifecycle.succeed
    monkeypatch.setattr(lifecycle, "succeed", lambda engine, lease, output, kind: lifecycle.fail(engine, lease, "no"))
    report = replay_recording(lines)
    assert (report.outcome, report.exit_code) == ("diverged", 5)
    line = next(at for at, line in enumerate(lines, 1) if '"Complete"' in line)
    assert report.line == line and f"line {line}, of WorkerSent: what it writes and says is not" in report.detail
    assert "retrying" in report.detail or "changed" in report.detail
    assert "recorded by version 0.0.1" in report.text()
    monkeypatch.setattr(lifecycle, "succeed", honest)
    assert replay_recording(lines).outcome == "same"


def test_a_state_that_differs_in_silence_is_seen_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = day(Term()).end()
    monkeypatch.setattr(recording, "state_hash", lambda engine: "0" * 64)
    report = replay_recording(lines)
    assert report.exit_code == 5 and "all steps are the same, the state is not" in report.detail


def test_recovery_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    term = Term(records=records())
    monkeypatch.setattr(
        lifecycle, "retry_or_bury", lambda engine, task, message: lifecycle.fail_waiting(engine, task, "")
    )
    report = replay_recording(term.end())
    assert report.exit_code in (3, 5) and "recovery" in report.detail


def test_a_broken_invariant_is_named_unless_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = day(Term()).end()

    def broken(engine: Any, step: Any) -> None:
        assert step is None or not step.writes, "permits are lost"

    monkeypatch.setattr("cronoq_sansio.engine.invariants.check", broken)
    report = replay_recording(lines)
    assert (report.outcome, report.exit_code) == ("invariant broken", 3)
    assert "permits are lost" in report.detail and "after step" in report.detail
    assert replay_recording(lines, checks=False).exit_code == 0


def faulty(engine: Any, lease: Any, output: bytes, content_type: str) -> None:
    raise AssertionError("a slot was filled twice")


def test_a_fault_of_production_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    term = Term()
    worker = term.worker()
    term.submit()
    term.commit()
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "succeed", faulty)
        with pytest.raises(AssertionError):
            term.say(worker, Complete(term.leases[0].lease.id, b"", ""))
        lines = term.end(RAISED, "a fault of the server")
        report = replay_recording(lines)
    assert (report.outcome, report.exit_code) == ("fault reproduced", 3)
    assert "raises AssertionError: a slot was filled twice; recorded: AssertionError" in report.detail
    mended = replay_recording(lines)
    assert mended.exit_code == 5 and "it raised AssertionError when it was recorded, and does not now" in mended.detail


def test_a_fault_that_was_none_when_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = day(Term()).end()
    monkeypatch.setattr(lifecycle, "succeed", faulty)
    report = replay_recording(lines)
    assert report.exit_code == 5 and "it raises AssertionError: a slot was filled twice, and did not" in report.detail


def test_a_fault_of_recovery_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Term(records=records()).end()
    monkeypatch.setattr(lifecycle, "retry_or_bury", faulty)
    report = replay_recording(lines)
    assert report.exit_code == 3 and "recovery raises TypeError" in report.detail


# --- the file


def test_a_recording_that_was_cut_off_is_replayed_as_far_as_it_goes() -> None:
    term = day(Term())
    lines = term.end()
    whole = replay_recording(lines)
    for at in (1, 2, 4, 9, len(lines) - 1):
        report = replay_recording(lines[:at])
        assert (report.outcome, report.exit_code) == ("cut off", 0), report.text()
        assert "without a last line" in report.detail
        half = replay_recording([*lines[:at], lines[at][: len(lines[at]) // 2]])
        assert (half.outcome, half.steps) == ("cut off", report.steps) and "middle of a line" in half.detail
    assert replay_recording(lines[:-1]).state == whole.state


def changed(line: str, **fields: Any) -> str:
    return json.dumps({**json.loads(line), **fields}) + "\n"


def test_what_is_damaged_is_refused_with_its_line() -> None:
    lines = day(Term()).end()
    last = len(lines)
    cases: list[tuple[list[str], str]] = [
        ([], "the file is empty"),
        (["\n"], "line 1: it is not JSON"),
        (["{"], "line 1: it is not JSON at character 2"),
        (["[]\n"], "line 1: expected an object, found an array"),
        (['{"format":"other"}\n'], "line 1: this is no recording"),
        (
            [changed(lines[0], version=2)],
            "line 1: the recording has version 2 of the format; this program reads version 1",
        ),
        ([changed(lines[0], seed="x")], 'line 1: seed: expected an integer, found "x"'),
        ([changed(lines[0], settings={"pools": [{"name": 1}]})], "line 1: settings.pools[0].name: expected a text"),
        ([lines[0], "[" * 100_000 + "\n"], "line 2: it is nested too deeply"),
        ([lines[0], '{"settle":NaN}\n'], "line 2: NaN is not JSON"),
        ([lines[0], '{"settle":1.5}\n'], "line 2: settle: expected nanoseconds, found 1.5"),
        ([lines[0], '{"load":[{"is":"TaskLoaded"}]}\n'], "line 2: load[0]: 'inserted' is missing"),
        ([lines[0], '{"begun":"0"}\n'], 'line 2: there is no "begun" here; known are begin'),
        ([*lines[:4], '{"at":1800000000000000000,"events":[]}\n'], "line 5: said: expected a text, found null"),
        (
            [*lines[:4], '{"at":1800000000000000000,"events":[{"is":"CallEnded"}],"said":""}\n'],
            "line 5: events[0]: 'call' is missing",
        ),
        (
            [*lines[:4], '{"at":1800000000000000000,"looked":1,"events":[],"said":""}\n'],
            "line 5: looked: expected true or false, found 1",
        ),
        ([*lines[:7], *lines[8:]], "line 8"),
        ([*lines, lines[-1]], f"line {last + 1}: something follows the end"),
        ([*lines[:-1], changed(lines[-1], end="x")], f"line {last}: end: expected one of stopped"),
        ([*lines[:-1], changed(lines[-1], steps=1)], f"line {last}: it counts 1 steps"),
    ]
    for damaged, text in cases:
        report = replay_recording(damaged)
        assert text in report.detail, report.text()
        assert report.exit_code == (5 if text == "line 8" else 2)


def pool(**fields: Any) -> dict[str, Any]:
    return {"pools": [{"name": "a", **fields}]}


CRON = {"name": "s", "tz": "", "template": {**dict.fromkeys(("content_type", "kind", "key"), ""), "pool": "default"}}
CRON["template"] |= {"payload": {"length": 0, "sha256": "0" * 32}, "priority": 2, "timeout": None, "retry": None}  # type: ignore[operator]
CRON["template"] |= {"tags": [], "size": 9}  # type: ignore[operator]


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"seed": 1 << 64}, "seed: expected a number from -9223372036854775808 to 18446744073709551615, found 1844"),
        ({"seed": -1}, "seed: expected"),
        ({"epoch": 1 << 63}, "epoch: expected"),
        ({"now": -1}, "now: expected"),
        ({"first_task_id": 10**30}, "first_task_id: expected"),
        ({"wall_offset": -(1 << 63)}, "wall_offset: expected"),
        ({"settings": {"pools": []}}, "settings.pools: expected a number from 1 to 10000, found 0"),
        ({"settings": {"pools": [{"name": "a"}] * 2}}, "settings.pools: names are unique"),
        ({"settings": {"pools": [{}] * 10_001}}, "settings.pools: expected a number from 1 to 10000, found 10001"),
        ({"settings": pool(max=-1)}, "settings.pools[0].max: expected an integer from 1 to 4294967295, found -1"),
        ({"settings": pool(max=10**30)}, "settings.pools[0].max: expected"),
        ({"settings": pool(max=1, min=2)}, "settings.pools[0].min: expected at most the pool's max, 1, found 2"),
        (
            {"settings": pool(lease_ttl=0)},
            "settings.pools[0].lease_ttl: expected a number of seconds from 0.1 to 31536000, found 0 ns",
        ),
        ({"settings": pool(name="")}, "settings.pools[0].name: expected 1 to 64 characters"),
        ({"settings": pool(overflow="x")}, "settings.pools[0].overflow: expected"),
        ({"settings": pool(target_utilization="nan")}, "settings.pools[0].target_utilization: expected"),
        ({"settings": pool(tenant_weights=[["a", 0]])}, "settings.pools[0].tenant_weights: expected"),
        ({"settings": pool(slo=[0, None, None, None])}, "settings.pools[0].slo.critical: expected"),
        ({"settings": pool(max_pending_by_class=[None, -1, None, None])}, "max_pending_by_class.high: expected"),
        ({"settings": {"limits": {"max_deps": -1}}}, "settings.limits.max_deps: expected"),
        ({"settings": {"resources": [{"name": "r", "kind": "x"}]}}, "settings.resources[0].kind: expected"),
        ({"settings": {"resources": [{"name": "r", "kind": "semaphore"}]}}, "settings.resources[0].permits: expected"),
        ({"settings": {"recurring": [{**CRON, "cron": "x"}]}}, "settings.recurring[0]: cron: "),
        ({"settings": {"recurring": [{**CRON, "cron": "* * * * *", "tz": "No/Where"}]}}, "settings.recurring[0]: tz: "),
    ],
)
def test_a_head_that_no_server_writes_is_refused(fields: dict[str, Any], text: str) -> None:
    report = replay_recording([changed(Term().lines[0], **fields)])
    assert report.exit_code == 2 and report.detail.startswith("line 1: ") and text in report.detail, report.text()


def test_times_checksums_and_values_that_no_server_writes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    term = Term()
    term.submit()
    lines = term.lines
    step = lines[4]
    for damaged, text in (
        ([lines[0], f'{{"settle":{NOW - 1}}}\n'], f"line 2: settle: expected at least {NOW}"),
        ([*lines[:4], changed(step, at=NOW - 1)], f"line 5: at: expected at least {NOW}, which it was before"),
        ([*lines[:4], changed(step, at=1 << 63)], "line 5: at: expected a number from 0 to 9223372036854775807"),
        ([*lines[:3], '{"begun":"0000000g"}\n'], "line 4: begun: expected 8 hexadecimal digits"),
        ([*lines[:4], changed(step, said="0")], "line 5: said: expected 8 hexadecimal digits"),
        ([*lines[:4], step.replace('"priority":2', '"priority":4')], "spec.priority: expected a number from 0 to 3"),
        ([*lines[:4], step.replace('"length":7', f'"length":{1 << 32}')], "spec.payload.length: expected a number of"),
        ([*lines[:4], step.replace('["admin"]', '["root"]')], "roles: expected some of admin, client, metrics, worker"),
    ):
        report = replay_recording(damaged)
        assert report.exit_code == 2 and text in report.detail, report.text()
    monkeypatch.setattr(words, "MAX_RECORDED_ENTRIES", 2)
    report = replay_recording([*lines[:4], changed(step, events=[0] * 3)])
    assert "line 5: events: expected at most 2 entries, found 3" in report.detail


HOSTILE = "\x1b]0;owned\x07\u009b31m\ud800\u202e\n" * 200


def test_what_a_file_says_does_nothing_to_a_terminal_and_is_cut() -> None:
    lines = day(Term()).end()
    step = next(index for index, line in enumerate(lines) if '"said"' in line)
    bare = {name: each for name, each in json.loads(lines[step]).items() if name != "said"}
    for forged in (
        [changed(lines[0], version=HOSTILE)],
        [changed(lines[0], program=HOSTILE, zones=HOSTILE), "x\n"],
        [changed(lines[0], **{HOSTILE: 1})],
        [*lines[:4], json.dumps({"at": NOW, "events": [{"is": HOSTILE}], "said": "0" * 8}) + "\n"],
        [*lines[:step], json.dumps({**bare, "raised": HOSTILE}) + "\n"],
        [*lines[:-1], changed(lines[-1], why=HOSTILE)],
        [*lines[:-1], changed(lines[-1], end=HOSTILE)],
        [*lines[:-1], changed(lines[-1], state=HOSTILE)],
    ):
        report = replay_recording(forged)
        for text in (*report.text().split("\n"), report.detail, *report.notes):
            assert text.encode().decode().isprintable() and len(text) <= 2_010, text
        assert "\\u{1b}" in report.text()


def test_a_report_that_others_made_is_safe_to_print_too() -> None:
    text = RecordingReport("same", 1, 0, 0, HOSTILE, "\x1b", (HOSTILE,)).text()
    assert all(line.encode().decode().isprintable() for line in text.split("\n")) and len(text) < 4_200


def test_of_many_events_some_are_named() -> None:
    term = Term()
    calls = [Call(None) for _ in range(1_000)]
    term.handle(*(CallReceived(call, ANYONE, Submit(SPEC, False, None), None) for call in calls))
    lines = term.end()
    at = len(lines) - 2
    report = replay_recording([*lines[:at], changed(lines[at], said="00000000")])
    assert report.outcome == "diverged" and "CallReceived and 980 more: " in report.detail
    assert report.detail.count("CallReceived") == 20


def test_what_is_no_text_and_lines_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def bytes_of_a_picture() -> Any:
        yield Term().lines[0]
        yield b"\x89PNG".decode()

    assert "line 2: this is not text" in replay_recording(bytes_of_a_picture()).detail
    monkeypatch.setattr(recording, "MAX_RECORDING_LINE", 5_000)
    rest = Term().lines[0] + "x" * 100_000

    def readline(size: int) -> str:
        nonlocal rest
        end = rest.find("\n") + 1 or len(rest)
        line, rest = rest[: min(size, end)], rest[min(size, end) :]
        return line

    lines = list(bounded_lines(readline))
    assert [len(line) for line in lines[1:]] == [5_001] and len(rest) > 90_000
    assert "line 2: it has more than 5000 characters" in replay_recording(lines).detail


def test_recordings_are_told_from_other_files() -> None:
    line = Term().lines[0]
    assert is_recording(line) and is_recording(changed(line, version=9))
    for other in ("", "\n", "{", "[]", '{"seed":1}', '{"format":"x"}', line[:-5]):
        assert not is_recording(other)


def test_other_ends_and_states_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for reason in (BOUND, ENDED):
        report = replay_recording(day(Term()).end(reason, "why"))
        assert report.exit_code == 0 and f"the recording ended: {reason}, why" in report.detail
    monkeypatch.setattr("cronoq_sansio.recording.format.MAX_HASHED", 2)
    term = Term()
    for _ in range(3):
        term.submit()
    lines = term.end()
    assert json.loads(lines[-1])["left_out"] == "3 tasks and schedules are more than 2"
    report = replay_recording(lines)
    assert report.outcome == "same" and report.state is None


def test_other_rules_of_time_zones_are_noted() -> None:
    lines = Term().end()
    report = replay_recording([changed(lines[0], zones="1999a"), *lines[1:]])
    assert report.exit_code == 0 and "recorded with the time zones of tzdata 1999a" in report.text()


def test_everything_that_is_written_or_said_is_in_the_checksum() -> None:
    from typing import get_args

    from cronoq_sansio.engine.records import Record

    assert set(WRITES) == set(get_args(Record))
    assert set(Said(References())._actions) == set(get_args(ServiceAction))
    assert {SubmitReply, BatchReply} < set(get_args(Message))


LINES = day(Term(records=records())).end()
NUMBERS = re.compile(r"(?<![\w\"])-?[0-9]+")


@settings(max_examples=60)
@given(st.data())
def test_whatever_becomes_of_a_file_the_replay_says_what_is_wrong_with_it(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        deed = data.draw(st.integers(0, 4))
        if deed == 0:
            del lines[at]
        elif deed == 1:
            lines.insert(data.draw(st.integers(0, len(lines))), line)
        elif deed == 2:
            place = data.draw(st.integers(0, len(line) - 1))
            lines[at] = line[:place] + data.draw(st.sampled_from('x"{}[],:-0\n')) + line[place + 1 :]
        elif found := list(NUMBERS.finditer(line)):
            number = data.draw(st.sampled_from(found))
            other = data.draw(
                st.sampled_from(["-1", "0", "1", "99", "1e3", "null", "true", '"x"', "[]", "{}", str(1 << 63)])
            )
            lines[at] = line[: number.start()] + other + line[number.end() :]
    report = replay_recording(lines)
    assert report.exit_code in (0, 2, 3, 5) and report.detail
