"""A database of the first schema, with tasks in every state: it opens, and everything in it goes on.

`schema_1.sql` is what the version that knew no other left behind after a clean stop, as `sqlite3` dumps it.
"""

import os
from pathlib import Path

import pytest

from cronoq._stores.sqlite_probe import probe
from cronoq._stores.sqlite_schema import migrations
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import OutputStored, TaskInserted
from cronoq_sansio.service.messages import ListFinished
from cronoq_sansio.settings import PoolSettings, Settings
from cronoq_sansio.spec import Dependency, TaskSpec, TaskStatus
from tests.stores.support import (
    UNIX,
    WALL,
    Harness,
    as_loaded,
    changed,
    commit,
    edge,
    ended,
    execute,
    find,
    finished,
    inserted,
    live,
    loaded,
    waiting,
    write_dump,
)

SCRIPT = Path(__file__).with_name("schema_1.sql")
FIRST = 1 << 48 | 1
PLAIN = TaskInserted(FIRST + 8, TaskSpec(b"", "", "", "default", 2, "", None, None, (), 0), 3, WALL)


def row(number):
    return inserted(FIRST + number, f"key-{number}", b"payload %d" % number)


LIVE = [
    as_loaded(row(0)),
    as_loaded(row(1), changed(FIRST + 1, TaskStatus.RETRYING, 2, "boom")),
    as_loaded(row(2), changed(FIRST + 2)),
    as_loaded(row(7)),
    as_loaded(PLAIN),
]


@pytest.fixture
def old(tmp_path):
    made = Harness("sqlite", "trio", tmp_path)
    write_dump(made.path, SCRIPT)
    return made


def test_every_task_is_there(old):
    async def body(store, first):
        assert first == 2 << 48 | 1
        records = await loaded(store)
        assert live(records) == LIVE
        assert [(r.task_id - FIRST, r.key, r.status, r.finished - WALL) for r in ended(records)] == [
            (3, "key-3", TaskStatus.SUCCEEDED, 3),
            (4, "key-4", TaskStatus.SUCCEEDED, 4),
            (5, "key-5", TaskStatus.FAILED, 5),
            (6, "key-6", TaskStatus.CANCELLED, 6),
        ]
        assert (await find(store, "key-3")).output == b"small"
        assert (await find(store, FIRST + 4)).output == bytes(range(256)) * 5
        assert (await find(store, "key-5")).info.message == "no good ✗"
        assert (await find(store, "key-0")).info.tenant == ""
        page = await store.list(ListFinished(1, (), (), 0, 10))
        assert [(info.task_id - FIRST, info.tenant) for info in page.tasks] == [(n, "") for n in (3, 4, 5, 6)]

    old.with_store(body)
    assert execute(old.path, "PRAGMA user_version") == [(migrations()[-1][0],)]
    assert execute(old.path, "PRAGMA integrity_check") == [("ok",)]


def test_what_is_written_afterwards_stands_beside_it(old):
    """Also edges to old tasks; and old and new rows are read alike in a later term."""
    rows = []

    async def body(store, first):
        rows.append(waiting(first, edge(FIRST), edge(key="later"), tenant="acme"))
        await commit(store, rows[0], finished(FIRST, end=WALL + 50), OutputStored(FIRST, b"new", "t"))

    async def later(store, _first):
        records = await loaded(store, WALL + 60)
        assert live(records) == [*LIVE[1:], as_loaded(rows[0])]
        assert [record.task_id for record in ended(records)] == [FIRST]
        assert (await find(store, FIRST)).output == b"new"
        assert (await find(store, rows[0].task_id)).info.tenant == "acme"
        assert await store.prune(WALL * 2) == 4
        assert [record.task_id for record in ended(await loaded(store))] == [FIRST]

    old.with_store(body)
    old.with_store(later)


def test_recovery_takes_the_tasks_over_and_they_run_to_their_end(old):
    settings = Settings(pools=(PoolSettings("default"),))
    now = 1_000 * SECOND

    async def body(store, first):
        engine = Engine.recover(
            settings, now=now, first_task_id=first, first_lease_id=1, seed=1, wall_offset=WALL + 100 * SECOND - now
        )
        async for portion in store.load(0):
            engine.load(portion)
        while engine.settle(now):
            pass
        steps = [engine.begin(now)]
        engine.check_invariants(None)
        assert {n: TaskStatus(engine.find(FIRST + n).status).name for n in range(9)} == {
            **dict.fromkeys((0, 1, 7, 8), "READY"),
            2: "RETRYING",
            3: "SUCCEEDED",
            4: "SUCCEEDED",
            5: "FAILED",
            6: "CANCELLED",
        }
        later = now + 60 * SECOND
        steps.append(engine.handle([ev.TimerFired(), ev.GroupCapacitySet("default", (), 9)], later))
        leases = [action.lease.id for action in steps[-1].once_durable if hasattr(action, "lease")]
        assert len(leases) == 5
        reports = [ev.AttemptSucceeded(lease, b"out", "") for lease in leases]
        steps.append(engine.handle([ev.LeasesReleased(tuple(leases)), *reports], later))
        for step in steps:
            await commit(store, *step.writes)

    async def afterwards(store, _first):
        records = await loaded(store)
        assert live(records) == [] and len(ended(records)) == 9
        for number, attempt in {0: 1, 1: 3, 2: 2, 7: 1, 8: 1}.items():
            known = await find(store, FIRST + number)
            assert (known.info.status, known.info.attempt, known.output) == (TaskStatus.SUCCEEDED, attempt, b"out")

    old.with_store(body)
    old.with_store(afterwards)


def test_dependencies_are_what_the_edges_of_a_new_task_name(old):
    async def body(store, first):
        await commit(store, waiting(first, edge(FIRST + 1, condition=2), edge(key="k", condition=3)))
        (task,) = [r.inserted for r in live(await loaded(store)) if r.inserted.task_id == first]
        assert task.spec.scheduling.dependencies == (Dependency(FIRST + 1, 2), Dependency("k", 3))

    old.with_store(body)


def test_nothing_is_copied_when_a_large_file_is_migrated(tmp_path):
    made = Harness("sqlite", "trio", tmp_path)
    write_dump(made.path, SCRIPT)
    size = 20 << 20
    execute(made.path, "UPDATE cronoq_trio_tasks SET spec = spec || zeroblob(?) WHERE id = ?", size, FIRST + 3)
    execute(made.path, "PRAGMA wal_checkpoint(TRUNCATE)")

    async def body():
        store = made.make()
        await store.open()
        logged = os.stat(f"{made.path}-wal").st_size
        await store.claim(UNIX)
        await store.close()
        return logged

    assert made.path.stat().st_size > size
    assert made.run(body) < 200_000


def test_a_look_at_an_old_file_does_not_change_it(old):
    probe(str(old.path))
    assert execute(old.path, "PRAGMA user_version") == [(1,)]


def test_a_file_that_was_migrated_is_refused_by_the_version_before(old, monkeypatch):
    """A downgrade needs the copy that was made before the upgrade."""
    old.with_store(lambda store, _first: loaded(store))
    for module in ("sqlite", "sqlite_schema"):
        monkeypatch.setattr(f"cronoq._stores.{module}.migrations", lambda: migrations()[:1])
    with pytest.raises(Exception, match=r"newer version of cronoq-trio \(schema 3, this one knows 1\)"):
        old.with_store(lambda store, _first: loaded(store))
