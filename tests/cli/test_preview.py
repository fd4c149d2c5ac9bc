"""`recurring preview`: when a schedule would fire, told without a server."""

import json
import subprocess
import sys

import pytest

from cronoq._cli import preview as preview_module
from cronoq._cli.main import main
from cronoq_sansio.engine.cron import TZDATA_VERSION
from tests.tidy.tree import SOURCE


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("CRONOQ_SERVER", "127.0.0.1:1")  # nobody is asked

    def run(*arguments):
        code = main(["recurring", "preview", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_moved_fires_are_marked(run):
    code, out, err = run("30 2 * * *", "--tz", "America/New_York", "--from", "2027-03-13T00:00:00Z", "--count", "3")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "LOCAL TIME                     UTC                   NOTE",
        "Sat 2027-03-13T02:30:00-05:00  2027-03-13T07:30:00Z  -",
        "Sun 2027-03-14T03:00:00-04:00  2027-03-14T07:00:00Z  moved from 02:30:00",
        "Mon 2027-03-15T02:30:00-04:00  2027-03-15T06:30:00Z  -",
        "",
        f"America/New_York, by the rules of tzdata {TZDATA_VERSION}",
    ]


@pytest.mark.parametrize(
    ("fold", "marks"),
    [("first", ["first pass", ""]), ("last", ["second pass", ""]), ("both", ["first pass", "second pass"])],
)
def test_times_that_come_twice_are_marked(run, fold, marks):
    arguments = ("30 1 * * *", "--tz", "America/New_York", "--from", "2027-11-07", "--count", "2", "--dst-fold", fold)
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    fires = told.pop("fires")
    assert [fire.get("mark", "") for fire in fires] == marks
    assert told == {
        "cron": "30 1 * * *",
        "tz": "America/New_York",
        "dst_gap": "shift",
        "dst_fold": fold,
        "tzdata": TZDATA_VERSION,
    }


def test_a_moved_fire_as_json(run):
    zone = ("--tz", "America/New_York")
    _, out, _ = run("30 2 * * *", *zone, "--from", "2027-03-14T00:00:00-05:00", "--count", "1", "--json")
    assert json.loads(out)["fires"] == [
        {
            "local": "2027-03-14T03:00:00-04:00",
            "utc": "2027-03-14T07:00:00Z",
            "unix_ns": "1805007600000000000",
            "mark": "moved",
            "named": "2027-03-14T02:30:00",
        }
    ]
    _, out, _ = run("30 2 * * *", *zone, "--from", "2027-03-14", "--dst-gap", "skip", "--count", "1", "--json")
    (fire,) = json.loads(out)["fires"]
    assert fire["utc"] == "2027-03-15T06:30:00Z" and "mark" not in fire


@pytest.mark.parametrize(
    ("begin", "first"),
    [
        ("2027-01-01T10:00:00Z", "2027-01-01T10:00:00Z"),
        ("2027-01-01T10:00:00.000001Z", "2027-01-01T10:01:00Z"),
        ("2027-01-01T10:00:00+02:00", "2027-01-01T08:00:00Z"),
        ("2027-01-01T10:00", "2027-01-01T09:00:00Z"),
        ("2027-01-01", "2026-12-31T23:00:00Z"),
    ],
)
def test_a_time_without_an_offset_is_local(run, begin, first):
    _, out, _ = run("* * * * *", "--tz", "Europe/Berlin", "--from", begin, "--count", "1", "--json")
    assert json.loads(out)["fires"][0]["utc"] == first


def test_without_options_ten_fires_in_utc_from_now_on(run, monkeypatch):
    class Clock:
        time_ns = staticmethod(lambda: 1_800_000_000_000_000_000)

    monkeypatch.setattr(preview_module, "time", Clock)
    code, out, _ = run("0 0 1 * *")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 13 and lines[1].split()[2] == "2027-02-01T00:00:00Z"
    assert lines[-1] == f"UTC, by the rules of tzdata {TZDATA_VERSION}"


def test_the_end_is_told(run):
    code, out, err = run("0 0 1 1 *", "--from", "2198-06-01", "--count", "5")
    assert (code, err) == (0, "No more before 2200\n") and len(out.splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["* * * *"], "cron: 4 fields; allowed are 5 (minutes, hours, day of month, month, day of week), or 6"),
        (["0 0 31 2 *"], "cron: it never fires: no month of '2' has a day 31"),
        (["0 0 * * 8"], "cron: day of week: '8' is not allowed; allowed are 0 to 7"),
        (["H * * * *"], "cron: minutes: 'H' is not allowed; allowed are 0 to 59"),
        (["0 0 * * *\x1b[31m"], "cron: the character U+001B is not allowed"),
        (["0 0 * * *", "--tz", "Berlin"], "tz: 'Berlin' is not a zone of tzdata"),
        (["0 0 * * *", "--count", "0"], "--count: 0 is not from 1 to 1000"),
        (["0 0 * * *", "--count", "1001"], "--count: 1001 is not from 1 to 1000"),
        (["0 0 * * *", "--from", "soon"], "--from: 'soon' is not a time; write 2027-03-14T00:00:00Z, or a local time"),
        (["0 0 * * *", "--from", "1969-12-31"], "--from: '1969-12-31': the year must be 1970 to 2199"),
        (["0 0 * * *", "--from", "2200-01-01"], "--from: '2200-01-01': the year must be 1970 to 2199"),
        (["0 0 * * *", "--dst-gap", "jump"], 'Invalid value "jump" for --dst-gap. Choose from: "shift", "skip".'),
        (["0", "0", "*", "*", "*"], "Unexpected argument: 0 * * *."),
        ([], 'Command "recurring preview" parameter CRON requires an argument.'),
        (
            ["30 2 * 3 0#2", "--tz", "America/New_York", "--dst-gap", "skip", "--from", "2027-01-01"],
            "cron: it never fires: the clocks of America/New_York skip every time that it names, and dst_gap is skip",
        ),
        (["0 0 29 2 *", "--from", "2199-01-01"], "cron: it does not fire before 2200"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence_and_2(run, arguments, sentence):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.startswith(f"Error: {sentence}") and err.count("\n") == 1


def test_other_commands_do_not_load_what_this_one_needs():
    needed = ("croniter", "zoneinfo", "tzdata")
    code = f"import sys, cronoq._cli.main; print([name for name in {needed} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "[]\n"


def test_an_expression_without_quotes_is_told_of_them(run):
    assert run("30", "2", "*", "*", "*") == (
        2,
        "",
        'Error: Unexpected argument: 2 * * *. CRON needs quotes, as in "30 2 * * *". See `cronoq-trio --help`.\n',
    )
