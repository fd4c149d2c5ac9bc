"""What no server writes into a recording is refused: rows that no store has, numbers and calls without end."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cronoq_sansio.recording import format as recording_format
from cronoq_sansio.recording import words
from cronoq_sansio.recording.replay import RecordingReport, replay_recording
from cronoq_sansio.service.messages import Heartbeat
from cronoq_sansio.settings import PoolSettings, Settings
from tests.recording.recorded import FIRST, SETTINGS, Term
from tests.recording.test_replay import records


def damaged_rows(damage: Callable[[list[Any]], object]) -> RecordingReport:
    """The replay of a recording whose rows were changed."""
    lines = Term(records=records()).end()
    found = json.loads(lines[1])
    damage(found["load"])
    return replay_recording([lines[0], json.dumps(found) + "\n", *lines[2:]])


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda rows: rows[4]["stored"]["spec"].update(cron="x"), "load[4].stored.spec: cron: 1 field; allowed are"),
        (lambda rows: rows[4]["stored"]["spec"].update(cron="0 0 30 2 *"), "load[4].stored.spec: cron: it never fires"),
        (lambda rows: rows[4]["stored"]["spec"].update(fold="x"), "load[4].stored.spec: dst_fold: "),
        (lambda rows: rows.append(rows[4]), 'load[5]: schedule "n" is there twice'),
        (lambda rows: rows.append({"is": "RecurringDamaged", "name": "n", "reason": ""}), "load[5]: schedule"),
        (
            lambda rows: rows[4].update(fired={"name": "m", "through": 0, "local": -1, "last_task": 0}),
            'load[4].fired: expected the name "n", found "m"',
        ),
        (lambda rows: rows.append(rows[0]), "load[5]: task 1 is there twice"),
        (lambda rows: rows[3].update(task_id=1), "load[3]: task 1 is there twice"),
        (lambda rows: rows[3].update(task_id=FIRST), f"load[3].task_id: expected a number from 1 to {FIRST - 1}"),
        (lambda rows: rows[0]["inserted"].update(task_id=0), "load[0].inserted.task_id: expected a number from 1"),
        (lambda rows: rows[0]["inserted"].update(max_attempts=0), "load[0].inserted.max_attempts: expected"),
        (lambda rows: rows[1]["changed"].update(task_id=1), "load[1].changed.task_id: expected a number from 2 to 2"),
        (lambda rows: rows[1]["changed"].update(attempt=4), "load[1].changed.attempt: expected a number from 0 to 3"),
        (
            lambda rows: rows[0]["inserted"].update(arrival=1 << 64),
            "arrival: expected a number from -9223372036854775808 to",
        ),
        (lambda rows: rows[0]["inserted"].update(arrival=-(1 << 70)), "arrival: expected a number from -"),
    ],
)
def test_rows_that_no_store_has_are_refused(damage: Callable[[list[Any]], object], text: str) -> None:
    report = damaged_rows(damage)
    assert report.exit_code == 2 and report.detail.startswith("line 2: ") and text in report.detail, report.text()


def test_a_zone_that_is_not_known_here_is_noted() -> None:
    """Where it was recorded it may be known, or was not either: nothing is damaged."""
    report = damaged_rows(lambda rows: rows[4]["stored"]["spec"].update(tz="Mars/Base"))
    assert report.exit_code == 5
    assert report.notes[0].startswith('schedule "n" does not fire here: tz: '), report.text()


def test_integers_of_events_have_64_bits() -> None:
    term = Term()
    stream = term.worker()
    term.say(stream, Heartbeat(200))
    lines = term.end()
    for number, right in (((1 << 64) - 1, True), (1 << 64, False), (-(1 << 63), True), (-(1 << 63) - 1, False)):
        told = [line.replace('"lease":200', f'"lease":{number}') for line in lines]
        assert told != lines
        detail = replay_recording(told).detail
        assert ("message.lease: expected a number from -9223372036854775808" in detail) is not right, detail
    told = [line.replace('"stream":1', f'"stream":{1 << 64}') for line in lines]
    assert "stream: expected a number from 0 to 18446744073709551615" in replay_recording(told).detail
    assert words.Words().decoder(float)(3) == 3
    with pytest.raises(words.Malformed, match="a number from -9223372036854775808"):
        words.Words().decoder(float)(10**400)


def test_calls_that_are_open_at_a_time_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    term = Term()
    for _ in range(3):
        term.submit(wait=True)
    lines = term.end()
    monkeypatch.setattr(recording_format, "MAX_RECORDED_OPEN", 3)
    assert replay_recording(lines).outcome == "same"
    with pytest.raises(recording_format.Unrecordable, match="more than 3 calls and workers are open"):
        term.submit(wait=True)
    monkeypatch.setattr(recording_format, "MAX_RECORDED_OPEN", 2)
    report = replay_recording(lines)
    assert report.exit_code == 2 and report.detail.startswith("line 7: events[0].call: more than 2 calls"), (
        report.text()
    )


def test_settings_that_no_replay_takes() -> None:
    assert not recording_format.too_many_pools(SETTINGS)
    many = Settings(pools=tuple(PoolSettings(f"p{number}") for number in range(10_001)))
    text = "10001 pools are more than the 10000 that a replay takes"
    assert recording_format.too_many_pools(many) == text
