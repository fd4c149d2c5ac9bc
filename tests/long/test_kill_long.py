"""`kill -9` under load, many times; the short forms are in `tests/acceptance/test_kill*.py`."""

import os

import pytest

from tests.acceptance.crash import crash
from tests.acceptance.crash_graphs import GraphCrash
from tests.acceptance.crash_schedules import crash_schedules

CYCLES = int(os.environ.get("CRONOQ_KILL_CYCLES", "25"))


@pytest.mark.long
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path):
    crash(tmp_path, "kill -9 under load, SQLite, long", CYCLES)


@pytest.mark.long
def test_what_depends_on_what_survives_kill_9(tmp_path):
    crash(tmp_path, "kill -9 under load with dependencies, SQLite, long", CYCLES, GraphCrash)


@pytest.mark.long
def test_every_occurrence_exists_once_whatever_is_killed(tmp_path):
    crash_schedules(tmp_path, "kill -9 with schedules, SQLite, long", 4 * CYCLES)
