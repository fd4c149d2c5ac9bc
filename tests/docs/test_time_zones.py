"""The page about time zones: every line of its table fires as it says."""

import re

import pytest

from cronoq_sansio.engine.cron import FOLDS, GAPS, compile_cron
from tests.engine.cron_oracle import ns, shown
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "design" / "time-zones.md"
YEAR = 2027
ROWS = re.findall(
    r"^\| `([^`]+)` \| (\S+) \|(?: `(\w+)`)? \| ([-\d]+ [:\d]+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE
)


def test_the_table_is_read():
    text = PAGE.read_text().partition("| expression | zone |")[2].partition("\n\n")[0]
    assert len(ROWS) == text.count("\n") - 1 >= 10
    assert {option for _, _, option, _, _ in ROWS} == {"", "skip", "last", "both"}


@pytest.mark.parametrize(("expression", "zone", "option", "after", "fires"), ROWS)
def test_examples(expression, zone, option, after, fires):
    cron = compile_cron(expression, zone, option if option in GAPS else "shift", option if option in FOLDS else "first")
    now = ns(f"{YEAR}-{after.replace(' ', 'T')}Z")
    for instant in fires.split(", "):
        now = cron.next(now).at
        assert shown(now) == f"{YEAR}-{instant.replace(' ', 'T')}Z"


def test_what_the_text_says_of_days_and_wrapping_ranges():
    either = compile_cron("0 0 */2 * mon", "")
    days, now = [], ns("2027-03-01T00:00Z") - 1
    for _ in range(6):
        now = either.next(now).at
        days.append(shown(now)[8:10])
    assert days == ["01", "03", "05", "07", "08", "09"]
    assert isinstance(compile_cron("5-5 * * * *", ""), str) and isinstance(compile_cron("0 22-6/3 * * *", ""), str)
