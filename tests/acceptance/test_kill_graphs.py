"""`kill -9` under load, with dependencies, a semaphore, labels. The long form is in `tests/long`."""

from tests.acceptance.crash import crash
from tests.acceptance.crash_graphs import GraphCrash

CYCLES = 3


def test_what_depends_on_what_survives_kill_9(tmp_path):
    crash(tmp_path, "kill -9 under load with dependencies, SQLite", CYCLES, GraphCrash)
