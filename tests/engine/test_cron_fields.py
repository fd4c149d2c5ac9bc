"""The grammar of cron expressions: what each field names, and the sentence for what it may not hold."""

import pytest

from cronoq_sansio.engine.cron import Cron, compile_cron
from cronoq_sansio.limits import MAX_CRON
from tests.engine.cron_oracle import fires, ns

WHOLE = ", steps like */2, and lists with commas"


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("", "it is empty; allowed are 5 (minutes, hours, day of month, month, day of week), or 6 with seconds first"),
        ("*", "1 field; allowed are 5 (minutes, hours, day of month, month, day of week), or 6 with seconds first"),
        ("* * * *", "4 fields; allowed are 5"),
        ("0 0 0 1 1 * 2027", "7 fields; allowed are 5"),
        ("*" * 257, "257 characters; allowed are 256"),
        ("0 0 1 1 *\n", "the character U+000A is not allowed; allowed are ASCII letters, digits and * , - / ? #"),
        ("0\x000 1 1 *", "the character U+0000 is not allowed"),
        ("0\u00a00 1 1 *", "the character U+00A0 is not allowed"),
        ("\uff11 * * * *", "the character U+FF11 is not allowed"),
        ("@daily", "'@daily' is a nickname; allowed are fields, such as `0 0 * * *` for every midnight"),
        ("60 * * * *", f"minutes: '60' is not allowed; allowed are 0 to 59, `*`, ranges like 0-2{WHOLE}"),
        ("60 * * * * *", f"seconds: '60' is not allowed; allowed are 0 to 59, `*`, ranges like 0-2{WHOLE}"),
        ("* 24 * * *", f"hours: '24' is not allowed; allowed are 0 to 23, `*`, ranges like 0-2{WHOLE}"),
        ("* * 0 * *", "day of month: '0' is not allowed; allowed are 1 to 31, `L` (the last day), `?`, `*`, ranges"),
        ("* * * 13 *", "month: '13' is not allowed; allowed are 1 to 12, jan to dec, `*`, ranges like 1-3"),
        ("0 0 * * 8", "day of week: '8' is not allowed; allowed are 0 to 7 (0 and 7 are Sunday), sun to sat, `2#3`"),
        ("* * * mon *", "month: 'mon' is not allowed"),
        ("* * * january *", "month: 'january' is not allowed"),
        ("* * * * jan", "day of week: 'jan' is not allowed"),
        ("R * * * *", "minutes: 'R' is not allowed"),
        ("H/5 * * * *", "minutes: 'H/5' is not allowed"),
        ("* * H(1-5) * *", "day of month: 'H(1-5)' is not allowed"),
        ("* * 15W * *", "day of month: '15W' is not allowed"),
        ("* * L-3 * *", "day of month: 'L-3' is not allowed"),
        ("* * * * L", "day of week: 'L' is not allowed"),
        ("* * * * 5L", "day of week: '5L' is not allowed"),
        ("L * * * *", "minutes: 'L' is not allowed"),
        ("? * * * *", "minutes: '?' is not allowed"),
        ("* * ?,1 * *", "day of month: '?' is not allowed"),
        ("-5 * * * *", "minutes: '-5' is not allowed"),
        ("5- * * * *", "minutes: '5-' is not allowed"),
        ("1-2-3 * * * *", "minutes: '1-2-3' is not allowed"),
        ("*/ * * * *", "minutes: '*/' is not allowed"),
        ("*-5 * * * *", "minutes: '*-5' is not allowed"),
        ("1,,2 * * * *", "minutes: '1,,2' has an empty item; allowed are 0 to 59"),
        (", * * * *", "minutes: ',' has an empty item"),
        ("*/0 * * * *", "minutes: '*/0': the step must be 1 to 60"),
        ("*/61 * * * *", "minutes: '*/61': the step must be 1 to 60"),
        ("0 */25 * * *", "hours: '*/25': the step must be 1 to 24"),
        ("0 0 * * */8", "day of week: '*/8': the step must be 1 to 7"),
        (f"*/{'9' * 200} * * * *", f"minutes: '*/{'9' * 30}…': the step must be 1 to 60"),
        ("5-5 * * * *", "minutes: '5-5' is a range of one value; write 5"),
        ("0 0 * Jan-jan *", "month: 'Jan-jan' is a range of one value; write Jan"),
        ("0 0 * * 7-0", "day of week: '7-0' is a range of one value; write 7"),
        ("0 22-6/3 * * *", "hours: '22-6/3': a range that wraps takes no step; list its values"),
        ("0 0 * * 1,2#3", "day of week: '1,2#3' mixes days of every week with days of a month such as 2#3"),
        ("0 0 * * *,L5", "day of week: '*,L5' mixes days of every week with days of a month such as L5"),
        ("0 0 * * 2#0", "day of week: '2#0': a weekday comes 1 to 5 times in a month"),
        ("0 0 * * 2#6", "day of week: '2#6': a weekday comes 1 to 5 times in a month"),
        ("0 0 * * 8#1", "day of week: '8#1' is not allowed"),
        ("0 0 * * L8", "day of week: 'L8' is not allowed"),
        ("0 0 * * mon-fri#2", "day of week: 'mon-fri#2' is not allowed"),
        ("0 0 13 * 5#2", "day of month '13' cannot stand beside '5#2', a weekday of the month; make two"),
        ("0 0 L * L5", "day of month 'l' cannot stand beside 'l5', a weekday of the month"),
        ("0 0 31 2 *", "it never fires: no month of '2' has a day 31"),
        ("0 0 30 2 ?", "it never fires: no month of '2' has a day 30"),
        ("0 0 0 31 feb,apr,6,9,11 *", "it never fires: no month of 'feb,apr,6,9,11' has a day 31"),
    ],
)  # fmt: skip
def test_a_fault_names_the_field_and_what_is_allowed(expression, fault):
    said = compile_cron(expression, "")
    assert isinstance(said, str) and said.startswith(f"cron: {fault}") and "\n" not in said


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "  0\t0  1 1 * ",
        "0 0 1 1 7",
        "00 00 01 01 07",
        "0 0 ? * ?",
        "*/60 */24 */31 */12 */7",
        "0-59 0-23 1-31 1-12 0-7",
        "*,5 * * * *",
        "59/15 * * * *",
        "0 0 l * *",
        "0 0 1,L * *",
        "0 0 * * l7,MON#1",
        "0 0 * nov-feb fri-mon",
        "0 0 30 4,2 *",
        "0 0 29 2 *",
        ",".join(str(number) for number in range(60)) + " * * * *",
        "* * * * * " + ",".join(f"{day}#{nth}" for day in range(7) for nth in range(1, 6)),
        ("0 0 1 1 *" + " " * MAX_CRON)[:MAX_CRON],
    ],
)
def test_accepted(expression):
    assert isinstance(compile_cron(expression, "Europe/Berlin"), Cron)


def named(expression, unit, length):
    """What of a field an expression names, found by letting it fire through a whole cycle."""
    begin = ns("2027-01-01T00:00Z")
    return {
        fire.local // 10**9 // unit for fire in fires(compile_cron(expression, ""), begin - 1, begin + length * 10**9)
    }


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 24])
def test_ranges_and_steps_name_what_they_say(step):
    first_hour = ns("2027-01-01T00:00Z") // 10**9 // 3_600
    for low in range(24):
        for high in (low + 1, low + 2, 12, 23):
            if low < high <= 23:
                found = named(f"0 {low}-{high}/{step} * * *", 3_600, 86_400)
                assert found == {first_hour + hour for hour in range(low, high + 1, step)}
        assert named(f"0 {low}/{step} * * *", 3_600, 86_400) == {first_hour + hour for hour in range(low, 24, step)}


def test_ranges_may_wrap():
    first_hour = ns("2027-01-01T00:00Z") // 10**9 // 3_600
    for low in range(1, 24):
        for high in (0, low // 2, low - 1):
            hours = {hour for hour in range(24) if hour >= low or hour <= high}
            assert named(f"0 {low}-{high} * * *", 3_600, 86_400) == {first_hour + hour for hour in hours}


def test_days_of_the_week_with_both_numbers_of_sunday():
    # 2027-01-03 is a Sunday; a week from 2027-01-01 on has each day once.
    days = {day: ns(f"2027-01-0{1 + (day + 2) % 7}T00:00Z") // 10**9 // 86_400 for day in range(7)}
    for low in range(8):
        for high in range(8):
            if low % 7 == high % 7:
                continue
            for step in (1, 2, 3):
                if low > high and step > 1:
                    continue
                wanted = range(low, high + 1, step) if low < high else [*range(low, 7), *range(high + 1)]
                text = f"0 0 * * {low}-{high}" + (f"/{step}" if step > 1 else "")
                assert named(text, 86_400, 7 * 86_400) == {days[day % 7] for day in wanted}, text


def test_a_star_in_a_list_and_the_whole_range_are_the_whole_field():
    for field in ("*", "0-23", "*,5", "*/1", "22-21"):
        assert len(named(f"0 {field} * * *", 3_600, 86_400)) == 24


@pytest.mark.parametrize(
    ("day", "weekday", "count"), [("*", "mon", 4), ("13", "*", 1), ("13", "mon", 5), ("?", "mon", 4)]
)
def test_either_restricted_field_of_days_counts(day, weekday, count):
    # January 2027 has the 13th on a Wednesday, and four Mondays.
    assert len(named(f"0 0 {day} * {weekday}", 86_400, 31 * 86_400)) == count
