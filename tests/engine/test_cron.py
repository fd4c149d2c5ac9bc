"""When cron expressions fire: checked instants around changes of the clocks, and what the rules say of them."""

import os
import subprocess
import sys
from importlib.resources import files

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import cron as cron_module
from cronoq_sansio.engine.cron import TZDATA_VERSION, Cron, Fire, compile_cron, zone_names
from cronoq_sansio.engine.cron_preview import preview
from cronoq_sansio.limits import CRON_END
from tests.engine.cron_oracle import fires as fires_of
from tests.engine.cron_oracle import ns, shown
from tests.tidy.tree import ROOT

HOUR = 3_600 * SECOND


def compiled(expression, zone="", **options):
    cron = compile_cron(expression, zone, **options)
    assert isinstance(cron, Cron), cron
    return cron


@pytest.mark.parametrize(
    ("expression", "zone", "options", "after", "expected"),
    [
        # the clocks of New York skip 02:00 to 03:00 on 2027-03-14, and repeat 01:00 to 02:00 on 2027-11-07
        ("30 2 * * *", "America/New_York", {}, "2027-03-13T00:00Z", "03-13T07:30 03-14T07:00 03-15T06:30"),
        ("30 2 * * *", "America/New_York", {"gap": "skip"}, "2027-03-13T00:00Z", "03-13T07:30 03-15T06:30 03-16T06:30"),
        ("30 1 * * *", "America/New_York", {}, "2027-11-07T00:00Z", "11-07T05:30 11-08T06:30"),
        ("30 1 * * *", "America/New_York", {"fold": "last"}, "2027-11-07T00:00Z", "11-07T06:30 11-08T06:30"),
        ("30 1 * * *", "America/New_York", {"fold": "both"}, "2027-11-07T00:00Z", "11-07T05:30 11-07T06:30"),
        # every hour counts: every pass does
        ("30 * * * *", "Europe/Helsinki", {}, "2027-10-30T23:00Z", "10-30T23:30 10-31T00:30 10-31T01:30 10-31T02:30"),
        ("30 0-23 * * *", "Europe/Helsinki", {"fold": "last"}, "2027-10-31T00:00Z", "10-31T00:30 10-31T01:30"),
        ("30 0-22 * * *", "Europe/Helsinki", {}, "2027-10-31T00:00Z", "10-31T00:30 10-31T02:30"),
        ("0 */2 * * *", "Europe/London", {}, "2027-10-30T22:00Z", "10-30T23:00 10-31T02:00 10-31T04:00"),
        # a wildcard over a gap: what is named in it comes at its end, once
        ("30 * * * *", "Europe/Helsinki", {}, "2027-03-28T00:00Z", "03-28T00:30 03-28T01:00 03-28T01:30"),
        ("*/20 * * * *", "Europe/Helsinki", {}, "2027-03-28T00:40Z", "03-28T01:00 03-28T01:20"),
        ("*/20 * * * *", "Europe/Helsinki", {"gap": "skip"}, "2027-03-28T00:40Z", "03-28T01:00 03-28T01:20"),
        ("50 * * * *", "Europe/Helsinki", {"gap": "skip"}, "2027-03-28T00:00Z", "03-28T00:50 03-28T01:50"),
        # midnight itself is skipped
        ("30 1-5/2 * * *", "Europe/London", {}, "2027-10-31T00:00Z", "10-31T00:30 10-31T01:30 10-31T03:30"),
        ("0 0 * * *", "America/Santiago", {}, "2027-09-04T00:00Z", "09-04T04:00 09-05T04:00 09-06T03:00"),
        # half an hour
        ("15 2 * * *", "Australia/Lord_Howe", {}, "2027-10-02T00:00Z", "10-02T15:30 10-03T15:15"),
        ("45 1 * * *", "Australia/Lord_Howe", {}, "2027-04-03T00:00Z", "04-03T14:45 04-04T15:15"),
        ("45 1 * * *", "Australia/Lord_Howe", {"fold": "last"}, "2027-04-03T00:00Z", "04-03T15:15 04-04T15:15"),
        # two hours
        ("30 2 * * *", "Antarctica/Troll", {}, "2027-03-27T12:00Z", "03-28T01:00 03-29T00:30"),
        ("30 2 * * *", "Antarctica/Troll", {"fold": "both"}, "2027-10-30T12:00Z", "10-31T00:30 10-31T02:30"),
        # a whole day
        ("0 9 * * *", "Pacific/Apia", {}, "2011-12-29T00:00Z", "12-29T19:00 12-30T10:00 12-30T19:00"),
        ("0 9 * * *", "Pacific/Apia", {"gap": "skip"}, "2011-12-29T00:00Z", "12-29T19:00 12-30T19:00"),
        ("0 */6 * * *", "Pacific/Apia", {}, "2011-12-30T03:00Z", "12-30T04:00 12-30T10:00 12-30T16:00"),
        # winter is the exception there, and a month in spring
        ("30 1 * * *", "Europe/Dublin", {}, "2027-03-27T12:00Z", "03-28T01:00 03-29T00:30"),
        ("30 1 * * *", "Europe/Dublin", {"fold": "last"}, "2027-10-30T12:00Z", "10-31T01:30 11-01T01:30"),
        ("30 2 * * *", "Africa/Casablanca", {}, "2026-02-14T12:00Z", "02-15T01:30 02-16T02:30"),
        ("30 2 * * *", "Africa/Casablanca", {"fold": "last"}, "2026-02-14T12:00Z", "02-15T02:30 02-16T02:30"),
        # seconds, leap days, days that are named in two ways
        ("*/20 59 1 * * *", "America/New_York", {"fold": "last"}, "2027-11-07T06:59Z", "11-07T06:59:20 11-07T06:59:40"),
        ("0 9 29 2 *", "", {}, "2028-02-29T09:00Z", "2032-02-29T09:00Z 2036-02-29T09:00Z"),
        ("0 0 29 2 *", "", {}, "2096-03-01T00:00Z", "2104-02-29T00:00Z"),
        ("0 0 * 2 1#5", "", {}, "2044-03-01T00:00Z", "2072-02-29T00:00Z 2112-02-29T00:00Z"),
        ("0 12,18 * 2 1#5", "", {}, "2044-02-29T13:00Z", "2044-02-29T18:00Z 2072-02-29T12:00Z"),
        ("0 0 13 * fri", "", {}, "2027-08-01T00:00Z", "08-06T00:00 08-13T00:00 08-20T00:00"),
        ("0 0 31 2 fri", "", {}, "2027-01-30T00:00Z", "02-05T00:00 02-12T00:00"),
        ("0 0 L * ?", "", {}, "2028-02-01T00:00Z", "02-29T00:00 03-31T00:00"),
        ("0 0 ? * L5", "", {}, "2027-01-01T00:00Z", "01-29T00:00 02-26T00:00"),
        ("0 0 * * 2#3,fri#1", "", {}, "2027-01-02T00:00Z", "01-19T00:00 02-05T00:00 02-16T00:00"),
        ("0 22-1 * * *", "", {}, "2027-01-01T00:30Z", "01-01T01:00 01-01T22:00 01-01T23:00"),
        ("0 0 * NOV-jan Sun", "", {}, "2027-11-20T00:00Z", "11-21T00:00 11-28T00:00"),
        # before 1970
        ("0 0 1 1 *", "Europe/Berlin", {}, "1900-06-01T00:00Z", "12-31T23:00 1901-12-31T23:00Z"),
    ],
)  # fmt: skip
def test_fires(expression, zone, options, after, expected):
    """Instants without a year are of that of `after`."""
    cron, now = compiled(expression, zone, **options), ns(after)
    for instant in expected.split():
        fire = cron.next(now)
        assert shown(fire.at) == (instant if instant.endswith("Z") else f"{after[:5]}{instant}Z")
        now = fire.at


def test_a_quarter_of_an_hour_comes_eight_times_in_two_hours():
    found = fires_of(compiled("*/15 * * * *", "Europe/London"), ns("2027-10-31T00:00Z") - 1, ns("2027-10-31T02:00Z"))
    assert len(found) == 8
    assert [fire.mark for fire in found] == ["first pass"] * 4 + ["second pass"] * 4
    assert [fire.local for fire in found[:4]] == [fire.local for fire in found[4:]]


@pytest.mark.parametrize(
    ("options", "after", "mark", "local"),
    [
        ({}, "2027-03-13T00:00Z", "", "2027-03-13T02:30Z"),
        ({}, "2027-03-14T00:00Z", "moved", "2027-03-14T02:30Z"),
        ({"fold": "last"}, "2027-11-07T12:00Z", "", "2027-11-08T02:30Z"),
    ],
)
def test_a_fire_says_what_was_named(options, after, mark, local):
    fire = compiled("30 2 * * *", "America/New_York", **options).next(ns(after))
    assert (fire.mark, shown(fire.local)) == (mark, local)


def test_the_end_of_a_gap_that_has_a_name_of_its_own_is_not_moved():
    fire = compiled("0 2,3 * * *", "America/New_York").next(ns("2027-03-14T05:00Z"))
    assert (shown(fire.at), shown(fire.local), fire.mark) == ("2027-03-14T07:00Z", "2027-03-14T03:00Z", "")


def test_a_fire_is_strictly_later():
    cron = compiled("0 10 * * *")
    ten = ns("2027-01-01T10:00Z")
    assert cron.next(ten - 1) == Fire(ten, ten, "") != cron.next(ten)
    assert cron.next(ten).at == cron.next(ten + 1).at == ten + 24 * HOUR


@pytest.mark.parametrize("after", [CRON_END, CRON_END - 1, 2**63 - 1, 2**80])
def test_there_is_no_fire_from_2200_on(after):
    assert compiled("* * * * * *", "Asia/Tokyo").next(after) is None


def test_the_last_fires_before_2200():
    cron = compiled("0 0 1 1 *")
    last = ns("2199-01-01T00:00Z")
    assert cron.next(last - 1).at == last and cron.next(last) is None
    assert cron.latest(ns("2190-01-01T00:00Z"), 2**63).at == last


@pytest.mark.parametrize("after", [-(2**63), -(2**70), 0, -1])
def test_any_time_may_be_the_start(after):
    for zone in ("", "Europe/Amsterdam", "Asia/Manila", "America/Juneau"):
        fire = compiled("0 0 * * *", zone).next(after)
        assert fire.at > max(after, ns("1843-01-01T00:00Z"))


def test_what_fires_in_gaps_alone_never_fires():
    """The second Sunday of March at 02:30 is always skipped in New York."""
    said = compile_cron("30 2 * 3 0#2", "America/New_York", gap="skip")
    assert said == (
        "cron: it never fires: the clocks of America/New_York skip every time that it names, and dst_gap is skip"
    )
    assert compiled("30 2 * 3 0#2", "America/New_York").next(ns("2027-01-01T00:00Z")).mark == "moved"
    assert compiled("30 2 * 3 0#2", "Europe/Berlin", gap="skip").next(ns("2027-01-01T00:00Z")).mark == ""


def test_after_many_skipped_times_in_a_row_the_search_ends():
    """The same in a schedule that was not refused: its search does not go on to 2200."""
    moved = compiled("30 2 * 3 0#2", "America/New_York")
    skipped = Cron(moved._names, moved._zone, True, "first")
    assert skipped.next(ns("2027-01-01T00:00Z")) is None
    assert skipped.next(ns("2004-01-01T00:00Z")).at == ns("2004-03-14T07:30Z"), "the rules were others"


# --- latest and resolve


@pytest.mark.parametrize(
    ("expression", "after", "until", "expected"),
    [
        ("*/5 * * * *", "2027-01-01T00:00Z", "2027-01-01T03:02Z", "2027-01-01T03:00Z"),
        ("*/5 * * * *", "2027-01-01T00:00Z", "2027-01-01T03:00Z", "2027-01-01T03:00Z"),
        ("*/5 * * * *", "2027-01-01T00:00Z", "2027-01-01T00:04Z", None),
        ("*/5 * * * *", "2027-01-01T00:00Z", "2026-01-01T00:00Z", None),
        ("*/5 * * * *", "2027-01-01T00:00Z", "2027-01-01T00:05Z", "2027-01-01T00:05Z"),
        ("0 0 29 2 *", "2000-01-01T00:00Z", "2031-01-01T00:00Z", "2028-02-29T00:00Z"),
        ("* * * * * *", "2000-01-01T00:00Z", "2031-01-01T00:00:07Z", "2031-01-01T00:00:07Z"),
    ],
)
def test_latest(expression, after, until, expected):
    found = compiled(expression).latest(ns(after), ns(until))
    assert (found and shown(found.at)) == expected


@pytest.mark.parametrize(
    ("expression", "after", "until", "expected"),
    [
        # searched from behind the gap, the fire has none before it
        ("0-34 1,2,4 * * *", "2027-03-14T06:33Z", "2027-03-14T08:00Z", ("2027-03-14T08:00Z", ["2027-03-14T07:00Z"])),
        ("0-34 1,2,4 * * *", "2027-03-14T06:33Z", "2027-03-14T08:01Z", ("2027-03-14T08:01Z", [])),
        ("30 2 * * *", "2027-03-10T00:00Z", "2027-03-15T20:00Z", ("2027-03-15T06:30Z", ["2027-03-14T07:00Z"])),
        # the first fire of all: what was skipped before `after` does not count
        ("30 2 * * *", "2027-03-14T00:00Z", "2027-03-15T20:00Z", ("2027-03-15T06:30Z", ["2027-03-14T07:00Z"])),
        ("30 2 * * *", "2027-03-14T07:00Z", "2027-03-15T20:00Z", ("2027-03-15T06:30Z", [])),
        # more gaps in a row than a search for the next fire looks through
        ("30 2 * 4 0#1", "1980-01-01T00:00Z", "2007-06-01T00:00Z", ("2007-04-01T06:30Z", [])),
    ],
)
def test_the_latest_one_knows_what_was_skipped_since_the_one_before(expression, after, until, expected):
    found = compiled(expression, "America/New_York", gap="skip").latest(ns(after), ns(until))
    assert (shown(found.at), [shown(gap) for gap in found.skipped]) == expected


@pytest.mark.parametrize(("gap", "most"), [("shift", 80), ("skip", 160)])
def test_latest_asks_few_times(monkeypatch, gap, most):
    asked = []
    search = cron_module._Names.next
    monkeypatch.setattr(cron_module._Names, "next", lambda names, after: asked.append(after) or search(names, after))
    for expression in ("* * * * * *", "*/7 * * * *", "0 0 1 1 *", "59 59 23 31 12 *", "0 0 13 * fri"):
        cron = compiled(expression, "Europe/Berlin", gap=gap)
        asked.clear()
        assert cron.latest(ns("1990-01-01T00:00Z"), ns("2031-07-08T09:10Z"))
        assert len(asked) < most


@pytest.mark.parametrize(
    ("local", "options", "expected"),
    [
        ("2027-03-13T02:30Z", {}, "2027-03-13T07:30Z"),
        ("2027-03-14T02:30Z", {}, "2027-03-14T07:00Z"),
        ("2027-03-14T02:30Z", {"gap": "skip"}, "2027-03-14T07:00Z"),
        ("2027-11-07T01:30Z", {}, "2027-11-07T05:30Z"),
        ("2027-11-07T01:30Z", {"fold": "last"}, "2027-11-07T06:30Z"),
        ("2027-11-07T01:30Z", {"fold": "both"}, "2027-11-07T05:30Z"),
    ],
)
def test_resolve(local, options, expected):
    assert shown(compiled("30 1,2 * * *", "America/New_York", **options).resolve(ns(local))) == expected


@pytest.mark.parametrize("local", [-(2**70), 2**70])
def test_resolve_takes_any_number(local):
    assert abs(compiled("* * * * *", "Europe/Paris").resolve(local)) < 2**63


# --- zones


@pytest.mark.parametrize(
    ("zone", "sentence"),
    [
        ("europe/berlin", f"tz: 'europe/berlin' is not a zone of tzdata {TZDATA_VERSION}; do you mean Europe/Berlin?"),
        ("Berlin", f"tz: 'Berlin' is not a zone of tzdata {TZDATA_VERSION}; do you mean Europe/Berlin?"),
        ("x" * 65, "tz: 65 characters; allowed are 64"),
        *(
            (name, f"tz: {name!r} is not a zone of tzdata {TZDATA_VERSION}, which has names such as Europe/Berlin")
            for name in ("Mars/Base", "../zones", "/etc/localtime", "Europe/../UTC2", "Europe/", "\0", "UTC\n", "ü")
        ),
    ],
)  # fmt: skip
def test_a_zone_that_tzdata_does_not_list_is_refused(zone, sentence):
    assert compile_cron("* * * * *", zone) == sentence


def test_a_name_that_is_not_listed_opens_no_file(monkeypatch):
    def opened(*_):
        raise AssertionError("a file was opened")

    zone_names()
    monkeypatch.setattr("importlib.resources.files", opened)
    assert "is not a zone" in compile_cron("* * * * *", "Europe/Nowhere")


def test_every_zone_of_the_list_can_be_loaded():
    names = zone_names()
    assert list(names) == sorted(names) and len(names) > 400 and "Europe/Berlin" in names
    assert all(isinstance(compile_cron("0 0 * * *", name), Cron) for name in names)


def test_the_host_and_the_process_decide_nothing(tmp_path):
    """Another TZ, another search path with other rules, and no rules at all: the same fires."""
    (tmp_path / "America").mkdir()
    source = ROOT / "tests" / "engine" / "cron_elsewhere.py"
    for name in ("America/New_York", "UTC"):  # Tokyo's rules under another name, where zoneinfo looks first
        (tmp_path / name).write_bytes(files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes())
    told = {
        subprocess.run(
            [sys.executable, str(source)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for variables in (
            {"TZ": "Asia/Kolkata"},
            {"TZ": "America/St_Johns", "PYTHONTZPATH": str(tmp_path)},
            {"TZ": "UTC-7:31", "PYTHONTZPATH": ""},
        )
    }
    assert told == {"2027-03-13T07:30Z 2027-03-14T07:00Z 2027-03-15T06:30Z\n"}


# --- sharing


def test_schedules_with_the_same_expression_share_the_search_and_not_its_state():
    one, other = compiled("30 2 * * *", "Europe/Berlin"), compiled("30  2 * * *", "Asia/Tokyo", fold="last")
    assert one._names is other._names
    begin = ns("2027-03-27T00:00Z")
    alone = [fire.at for fire in fires_of(compiled("30 2 * * *", "Europe/Berlin"), begin, begin + 96 * HOUR)]
    mixed, now = [], begin
    while (fire := one.next(now)).at < begin + 96 * HOUR:
        other.next(now - 5 * HOUR)
        mixed.append(fire.at)
        now = fire.at
    assert alone == mixed


def test_unknown_words_are_refused():
    assert compile_cron("* * * * *", "", "shif", "first") == "dst_gap: 'shif' is not allowed; allowed are shift, skip"
    assert compile_cron("* * * * *", "", "skip", "x") == "dst_fold: 'x' is not allowed; allowed are first, last, both"


# --- as text


def test_a_preview_shows_local_time_and_utc():
    cron = compiled("30 2 * * *", "America/New_York")
    first, second = preview(cron, ns("2027-03-13T07:30Z"), 2)
    assert (first.weekday, first.local, first.utc, first.mark, first.named) == (
        *("Sat", "2027-03-13T02:30:00-05:00", "2027-03-13T07:30:00Z"),
        *("", ""),
    )
    assert (second.weekday, second.local, second.utc, second.mark, second.named) == (
        *("Sun", "2027-03-14T03:00:00-04:00", "2027-03-14T07:00:00Z"),
        *("moved", "2027-03-14T02:30:00"),
    )
    assert len(preview(cron, ns("2199-12-31T00:00Z"), 5)) == 1


def test_a_preview_begins_at_its_begin():
    (fire,) = preview(compiled("* * * * * *"), ns("2027-01-01T00:00Z"), 1)
    assert fire.at == ns("2027-01-01T00:00Z")
