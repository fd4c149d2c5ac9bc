"""`kill -9` with schedules that fire every second. The long form is in `tests/long`."""

from tests.acceptance.crash_schedules import crash_schedules

CYCLES = 3


def test_every_occurrence_exists_once_whatever_is_killed(tmp_path):
    crash_schedules(tmp_path, "kill -9 with schedules, SQLite", CYCLES)
