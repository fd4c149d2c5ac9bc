"""`kill -9` of the server under load: nothing that was acknowledged is lost. The long form is in `tests/long`."""

from tests.acceptance.crash import crash

CYCLES = 5


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path):
    crash(tmp_path, "kill -9 under load, SQLite", CYCLES)
