"""Several processes and one file: who leads, and what is left when one is killed in the middle of its work."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import anyio
import pytest

from cronoq._stores.base import Fenced, StoreHeld, StoreUnusable
from cronoq._stores.sqlite import SqliteStore
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.spec import TaskStatus
from tests.stores.support import (
    UNIX,
    WALL,
    RecurringLoaded,
    attempt,
    batch,
    commit,
    ended,
    find,
    fired,
    inserted,
    live,
    loaded,
    schedule,
    schedules,
)

HOLDER = """
import sys, anyio
from tests.stores.support import *
from cronoq._stores.sqlite import SqliteStore
async def body():
    store = SqliteStore(sys.argv[1], key_retention_max=10)
    await store.open()
    first = (await store.claim(UNIX)).first_task_id
    await commit(store, inserted(first, "held"))
    print("ready", flush=True)
    sys.stdin.read()
    await store.close()
anyio.run(body, backend="trio")
"""

COMMITTER = """
import sys, anyio
from tests.stores.support import *
from cronoq._stores.sqlite import SqliteStore
async def body():
    store = SqliteStore(sys.argv[1], key_retention_max=10_000)
    await store.open()
    first = (await store.claim(UNIX)).first_task_id
    size = 20
    for number in range(1_000_000):
        at = first + number * size
        # Each task names one of the batch before, and a key that the next one brings, for every second task.
        records = [
            waiting(at + n, edge(at - size + n), edge(key=f"{at + size + n}"), key=f"{at + n}") for n in range(size)
        ]
        if number:
            records += [EdgeResolved(at - size + n, f"{at + n}", at + n) for n in range(0, size, 2)]
        if number > 1:
            over = at - 2 * size
            records += [finished(over + n, end=WALL + number) for n in range(size)]
            records += [OutputStored(over + n, bytes(n * 100), "") for n in range(size)]
        # A schedule fires with each batch, and another one comes with every other batch and goes with the next.
        records += [] if number else [schedule(f"fires {first}", added=first)]
        records += [fired(f"fires {first}", WALL + number, -1, at)]
        records += [gone(f"goes {first}")] if number % 2 else [schedule(f"goes {first}"), fired(f"goes {first}", at)]
        await commit(store, *records)
        print(at, flush=True)
anyio.run(body, backend="trio")
"""


def start(code, path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def holder(tmp_path):
    """Another process that leads on `cronoq.db`."""
    process = start(HOLDER, tmp_path / "cronoq.db")
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


async def take(path):
    """Open and claim; the epoch and the keys that are there. Closes whatever happens."""
    store = SqliteStore(path, key_retention_max=10)
    try:
        await store.open()
        claim = await store.claim(UNIX)
        return claim.epoch, [record.inserted.spec.key for record in await loaded(store)]
    finally:
        await store.close()


def test_a_second_server_is_refused_and_told_the_pid(holder, tmp_path):
    path = tmp_path / "cronoq.db"
    link = tmp_path / "link.db"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(StoreUnusable) as caught:
            anyio.run(take, name, backend="trio")
        assert str(caught.value) == (
            f"{name} is in use by the server with pid {holder.pid}; stop that one first, or set another store.path"
        )
    assert holder.poll() is None
    assert (tmp_path / "cronoq.db.leader").read_text() == f"{holder.pid}\n"


def test_a_holder_without_a_name_is_refused_too(holder, tmp_path):
    (tmp_path / "cronoq.db.leader").write_text("")
    with pytest.raises(StoreUnusable, match="is in use by another server; stop that one first"):
        anyio.run(take, tmp_path / "cronoq.db", backend="trio")


def test_a_fresh_file_that_another_process_fills_is_refused(holder, tmp_path):
    """The second one finds version 0 as long as the first one has not migrated."""
    path = tmp_path / "cronoq.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 0")
    connection.execute("PRAGMA application_id = 0")
    connection.close()
    with pytest.raises(StoreUnusable):
        anyio.run(take, path, backend="trio")


def test_two_stores_of_one_process_exclude_each_other(tmp_path):
    path = tmp_path / "cronoq.db"

    async def body():
        first = SqliteStore(path, key_retention_max=10)
        await first.open()
        await first.claim(UNIX)
        with pytest.raises(StoreUnusable, match=f"is in use by the server with pid {os.getpid()};"):
            await take(path)
        await first.close()
        assert await take(path) == (2, [])

    anyio.run(body, backend="trio")


def test_without_its_lock_file_a_leader_is_fenced_by_the_next_one(tmp_path):
    path = tmp_path / "cronoq.db"

    async def body():
        first = SqliteStore(path, key_retention_max=10)
        await first.open()
        claim = await first.claim(UNIX)
        await commit(first, inserted(claim.first_task_id, "kept"))
        (tmp_path / "cronoq.db.leader").unlink()
        assert await take(path) == (2, ["kept"])
        error = await attempt(first, batch(inserted(claim.first_task_id + 1, "lost")))
        assert isinstance(error, Fenced)
        await first.close()
        assert await take(path) == (3, ["kept"])

    anyio.run(body, backend="trio")


def test_a_fenced_leader_does_not_take_the_store_back_from_a_living_one(tmp_path):
    path = tmp_path / "cronoq.db"

    async def body():
        first = SqliteStore(path, key_retention_max=10)
        await first.open()
        claim = await first.claim(UNIX)
        (tmp_path / "cronoq.db.leader").unlink()
        second = start(HOLDER, path)
        assert second.stdout.readline() == "ready\n"
        try:
            assert isinstance(await attempt(first, batch(inserted(claim.first_task_id))), Fenced)
            for _ in range(2):
                with pytest.raises(StoreHeld, match=f"is in use by the server with pid {second.pid};"):
                    await first.claim(UNIX)
            await anyio.to_thread.run_sync(second.communicate, "")
        finally:
            second.kill()
            second.communicate()
        assert (await first.claim(UNIX)).epoch == 3, "the other one has ended"
        await first.close()

    anyio.run(body, backend="trio")


def test_a_leader_whose_lock_file_was_deleted_locks_the_new_one_with_its_next_claim(tmp_path):
    path = tmp_path / "cronoq.db"

    async def body():
        first = SqliteStore(path, key_retention_max=10)
        await first.open()
        await first.claim(UNIX)
        (tmp_path / "cronoq.db.leader").unlink()
        assert (await first.claim(UNIX)).epoch == 2
        with pytest.raises(StoreHeld):
            await take(path)
        await first.close()

    anyio.run(body, backend="trio")


def test_after_a_clean_stop_the_next_one_leads(holder, tmp_path):
    holder.communicate("")
    assert anyio.run(take, tmp_path / "cronoq.db", backend="trio") == (2, ["held"])


@pytest.mark.realtime
def test_after_kill_9_the_next_one_leads_at_once(holder, tmp_path):
    holder.kill()
    holder.wait()
    begun = time.monotonic()
    assert anyio.run(take, tmp_path / "cronoq.db", backend="trio") == (2, ["held"])
    assert time.monotonic() - begun < 1


def test_a_stopped_holder_still_leads(holder, tmp_path):
    holder.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnusable, match=f"pid {holder.pid}"):
            anyio.run(take, tmp_path / "cronoq.db", backend="trio")
    finally:
        holder.send_signal(signal.SIGCONT)


def test_kill_9_at_random_instants_loses_no_acknowledged_batch(tmp_path):
    path = tmp_path / "cronoq.db"
    draw = random.Random(20_261_129)
    acknowledged = []
    for cycle in range(1, 7):
        with start(COMMITTER, path) as process:
            for _ in range(draw.randint(1, 40)):
                acknowledged.append(int(process.stdout.readline()))
            busy = draw.randint(0, 20_000)
            while busy:  # a random instant, often in the middle of the next commit
                busy -= 1
            process.kill()
            # Not communicate(): it would lose what readline() has read ahead.
            acknowledged += [int(line) for line in process.stdout.read().splitlines() if line]
        anyio.run(check, path, acknowledged, cycle, backend="trio")


async def check(path, acknowledged, cycle):
    """Every acknowledged batch is there whole, and at most one more per crash; that one is whole too."""
    store = SqliteStore(path, key_retention_max=1_000_000)
    await store.open()
    try:
        records = await loaded(store)
        waiting = {record.inserted.task_id: record.inserted.edges for record in live(records)}
        over = [record.task_id for record in ended(records)]
        present = {*waiting, *over}
        assert len(present) == len(waiting) + len(over)
        expected = {at + n for at in acknowledged for n in range(20)}
        assert expected <= present
        assert len(present - expected) <= 20 * cycle
        check_live(waiting, present, cycle)
        check_schedules(schedules(records), present)
        for at in acknowledged[-3:]:
            answer = await find(store, at + 7)
            if at + 7 in over:
                assert (answer.info.status, answer.output) == (TaskStatus.SUCCEEDED, bytes(700))
            else:
                assert answer.info.status == TaskStatus.READY
    finally:
        await store.close()
    forgetful = SqliteStore(path, key_retention_max=0)
    await forgetful.open()
    try:
        parents = [record.task_id for record in ended(await loaded(forgetful))]
    finally:
        await forgetful.close()
    named = {edge.parent for edges in waiting.values() for edge in edges}
    assert sorted(parents) == sorted(named.intersection(over))
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*) FROM cronoq_trio_edges").fetchall() == [(2 * len(waiting),)]
    connection.close()


def check_live(waiting, present, cycle):
    """Of each killed process the last two batches wait, with every edge and the parents that had appeared."""
    for epoch in range(1, cycle + 1):
        begun = {at for at in present if at >> 48 == epoch and (at - 1) % (1 << 48) % 20 == 0}
        assert sorted(at for at in waiting if at >> 48 == epoch) == [
            at + n for at in sorted(begun)[-2:] for n in range(20)
        ]
    for task_id, (before, after) in waiting.items():
        assert before == Edge(task_id - 20, "", 1)
        n = (task_id - 1) % (1 << 48) % 20
        appeared = n % 2 == 0 and task_id + 20 in present
        assert after == (Edge(task_id + 20, "", 1) if appeared else Edge(0, f"{task_id + 20}", 1))


def check_schedules(found, present):
    """Those of each killed process have come as far as its last batch, and no further."""
    wanted = {}
    for epoch in {task_id >> 48 for task_id in present}:
        ids = [task_id for task_id in present if task_id >> 48 == epoch]
        first, count = min(ids), len(ids) // 20
        last = first + (count - 1) * 20
        name = f"fires {first}"
        wanted[name] = RecurringLoaded(schedule(name, added=first), fired(name, WALL + count - 1, -1, last))
        if count % 2:
            wanted[f"goes {first}"] = RecurringLoaded(schedule(f"goes {first}"), fired(f"goes {first}", last))
    assert found == wanted


def test_a_copy_of_the_file_made_by_the_sqlite_tools_restores(holder, tmp_path):
    """As the page on operating says: copy while it runs, later start a server on the copy."""
    source = sqlite3.connect(tmp_path / "cronoq.db")
    source.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    source.close()

    async def body():
        store = SqliteStore(tmp_path / "copy.db", key_retention_max=10)
        await store.open()
        claim = await store.claim(UNIX)
        await commit(store, inserted(claim.first_task_id, "new"))
        keys = [record.inserted.spec.key for record in await loaded(store)]
        await store.close()
        return claim.epoch, keys

    assert anyio.run(body, backend="trio") == (2, ["held", "new"])
