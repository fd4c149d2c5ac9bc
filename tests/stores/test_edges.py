"""Dependencies in every store: edges that come back whole, keys that appear, parents that stay, damaged rows."""

import pytest

from cronoq_sansio import limits
from cronoq_sansio.engine.records import Edge, TaskDamaged
from cronoq_sansio.spec import Condition, Dependency, TaskStatus
from tests.stores.support import (
    WALL,
    EdgeResolved,
    as_loaded,
    attempt,
    batch,
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
)

ON_COMPLETE, ON_FAILURE = Condition.ON_COMPLETE, Condition.ON_FAILURE
BLOCKED = TaskStatus.BLOCKED


async def edges_of(store, task_id):
    (found,) = [r.inserted.edges for r in live(await loaded(store)) if r.inserted.task_id == task_id]
    return found


def ids(records):
    return [record.task_id for record in ended(records)]


def test_edges_and_all_that_a_task_asks_for_come_back(harness):
    async def body(store, first):
        rows = [
            inserted(first, "a"),
            waiting(first + 1, edge(first), edge(first, condition=ON_COMPLETE), edge(key="k", condition=ON_FAILURE)),
            waiting(first + 2, deadline=WALL, duration_hint=0, resources=(("gpu", 2),), labels=(("zone", "é"),)),
            waiting(first + 3, tenant="acme"),
            waiting(first + 4, edge(first + 1), tenant="acme", deadline=0),
        ]
        await commit(store, *rows, changed(first + 1, BLOCKED, 0))
        assert await loaded(store) == [
            as_loaded(rows[0]),
            as_loaded(rows[1], changed(first + 1, BLOCKED, 0)),
            *map(as_loaded, rows[2:]),
        ]
        assert (await find(store, first + 4)).info.tenant == "acme"
        assert (await find(store, first)).info.tenant == ""

    async def later(store, first):
        assert [len(record.inserted.edges) for record in await loaded(store)] == [0, 3, 0, 0, 1]

    harness.with_store(body)
    harness.with_store(later)


def test_dependencies_are_what_the_edges_name_and_not_what_was_submitted(harness):
    """A parent that was met at submit has no edge; one that was named by key has an id by now."""

    async def body(store, first):
        row = waiting(first + 1, edge(first), tenant="t")
        asked = row.spec.scheduling
        submitted = type(asked)(dependencies=(Dependency("gone", 1), Dependency("a", 1)), tenant="t")
        spec = type(row.spec)(**{**fields(row.spec), "scheduling": submitted})
        await commit(store, inserted(first, "a"), type(row)(row.task_id, spec, 5, row.arrival, row.edges))
        assert (await loaded(store))[1] == as_loaded(row)
        nothing = type(row)(first + 2, type(row.spec)(**{**fields(row.spec), "scheduling": type(asked)()}), 5, WALL)
        await commit(store, nothing)
        assert (await loaded(store))[2].inserted.spec.scheduling is None

    harness.with_store(body)


def fields(spec):
    return {name: getattr(spec, name) for name in type(spec).__dataclass_fields__}


# --- keys that appear


@pytest.mark.parametrize("together", [True, False])
def test_all_edges_with_a_key_that_appears_have_the_parent_from_then_on(harness, together):
    async def body(store, first):
        child, other = first, first + 1
        rows = [
            waiting(child, edge(key="a"), edge(key="b"), edge(key="a", condition=ON_FAILURE)),
            waiting(other, edge(key="a")),
        ]
        news = [inserted(first + 2, "a"), EdgeResolved(child, "a", first + 2)]
        if together:
            await commit(store, *rows, *news)
        else:
            await commit(store, *rows)
            await commit(store, *news)
        assert await edges_of(store, child) == (
            edge(first + 2),
            edge(key="b"),
            edge(first + 2, condition=ON_FAILURE),
        )
        assert await edges_of(store, other) == (edge(key="a"),)
        assert (await loaded(store))[0].inserted.spec.scheduling.dependencies == (
            Dependency(first + 2, 1),
            Dependency("b", 1),
            Dependency(first + 2, 3),
        )
        await commit(store, EdgeResolved(child, "b", first + 3), EdgeResolved(other, "a", first + 2))
        assert [e.parent - first for e in await edges_of(store, child)] == [2, 3, 2]
        assert await edges_of(store, other) == (edge(first + 2),)

    harness.with_store(body)


def test_a_key_that_appears_again_is_another_task(harness):
    async def body(store, first):
        await commit(store, waiting(first, edge(key="a")), EdgeResolved(first, "a", first + 1))
        await commit(store, EdgeResolved(first, "a", first + 2), EdgeResolved(first, "b", first + 2))
        assert await edges_of(store, first) == (edge(first + 1),)

    harness.with_store(body)


def test_a_key_that_appears_for_a_task_that_has_ended_changes_nothing(harness):
    async def body(store, first):
        await commit(store, waiting(first, edge(key="a")))
        await commit(store, inserted(first + 1, "a"), EdgeResolved(first, "a", first + 1), finished(first))
        await commit(store, EdgeResolved(first, "a", first + 1), EdgeResolved(first + 9, "a", first + 1))
        assert len(live(await loaded(store))) == 1
        await commit(store, finished(first + 1, end=WALL + 1))
        assert await store.prune(WALL * 2) == 2

    harness.with_store(body)


def test_rule_2_writing_edges_again_changes_nothing(harness):
    async def body(store, first):
        await commit(store, inserted(first), waiting(first + 1, edge(first), edge(key="a"), edge(key="b")))
        made = batch(
            waiting(first + 2, edge(first), edge(key="a")),
            waiting(first + 3, edge(first + 2), edge(key="c")),
            waiting(first + 4, edge(first)),
            inserted(first + 5, "a"),
            EdgeResolved(first + 1, "a", first + 5),
            EdgeResolved(first + 2, "a", first + 5),
            finished(first + 4, TaskStatus.CANCELLED),
            finished(first, end=WALL + 1),
        )
        assert await attempt(store, made) is None
        before = await loaded(store, WALL * 2)
        assert ids(before) == [first]
        for _ in range(2):
            assert await attempt(store, made) is None
            assert await loaded(store, WALL * 2) == before
        await commit(store, *(finished(first + n) for n in (1, 2, 3)))
        assert ids(await loaded(store, WALL * 2)) == []

    harness.with_store(body)


# --- parents


def test_load_gives_finished_parents_of_live_tasks_however_old(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(6)))
        await commit(store, waiting(first + 6, edge(first + 4), edge(first + 1, condition=ON_COMPLETE)))
        await commit(store, waiting(first + 7, edge(first + 1), edge(first + 5), edge(key="none")))
        await commit(store, *(finished(first + n, TaskStatus.FAILED, WALL + 10 - n) for n in range(5)))
        records = await loaded(store, WALL + 8)
        assert [record.inserted.task_id - first for record in live(records)] == [5, 6, 7]
        kept = ended(records)
        assert sorted(record.task_id - first for record in kept) == [0, 1, 2, 4]
        assert [record.task_id - first for record in kept if record.finished >= WALL + 8] == [2, 1, 0]
        (parent,) = [record for record in kept if record.task_id == first + 4]
        assert (parent.pool, parent.key, parent.status, parent.finished) == (
            "default",
            "k4",
            TaskStatus.FAILED,
            WALL + 6,
        )
        await commit(store, finished(first + 6, TaskStatus.SKIPPED, WALL + 20))
        assert sorted(i - first for i in ids(await loaded(store, WALL + 12))) == [1, 6]
        await commit(store, finished(first + 7, TaskStatus.SKIPPED, WALL + 21))
        assert [i - first for i in ids(await loaded(store, WALL + 12))] == [6, 7]

    harness.with_store(body)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_load_gives_them_beside_the_newest_up_to_key_retention_max(harness, most):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(4)), waiting(first + 9, edge(first), edge(first + 3)))
        for n in range(4):
            await commit(store, finished(first + n, end=WALL + n))
        newest = list(range(4 - most, 4))
        assert sorted(i - first for i in ids(await loaded(store))) == sorted({*newest, 0, 3})

    harness.with_store(body, most)


def test_prune_spares_the_parents_of_live_tasks(harness):
    async def body(store, first):
        await commit(store, *(inserted(first + n) for n in range(5)))
        await commit(store, waiting(first + 5, edge(first + 1)), waiting(first + 6, edge(first + 1), edge(key="k")))
        await commit(store, inserted(first + 7, "k"), EdgeResolved(first + 6, "k", first + 7))
        await commit(store, *(finished(first + n, end=WALL + n) for n in (0, 1, 2, 7)))
        assert await store.prune(WALL * 2) == 2
        assert await store.prune(WALL * 2) == 0
        assert sorted(i - first for i in ids(await loaded(store, WALL * 2))) == [1, 7]
        await commit(store, finished(first + 6, end=WALL + 9))
        assert await store.prune(WALL + 8) == 1
        assert [i - first for i in ids(await loaded(store, WALL * 2))] == [1]
        await commit(store, finished(first + 5, end=WALL + 9))
        assert await store.prune(WALL * 2) == 3
        assert await store.prune(WALL * 2) == 0
        assert ids(await loaded(store)) == []

    harness.with_store(body)


@pytest.mark.parametrize("spared", [1, 2, 3])
def test_prune_finds_what_lies_behind_portions_that_are_spared(harness, monkeypatch, spared):
    monkeypatch.setattr(limits, "PRUNE_PORTION", 4)

    async def body(store, first):
        count = 30
        keep = [n for n in range(count) if n < 4 * spared or n % 5 == spared]
        await commit(store, *(inserted(first + n) for n in range(count)))
        await commit(store, waiting(first + count, *(edge(first + n) for n in keep)))
        await commit(store, *(finished(first + n, end=WALL + n // 3) for n in range(count)))
        gone = 0
        while portion := await store.prune(WALL + 8):
            assert portion <= 4
            gone += portion
        assert gone == sum(1 for n in range(24) if n not in keep)
        await commit(store, finished(first + count, end=WALL + 1))
        while portion := await store.prune(WALL * 2):
            gone += portion
        assert gone == count + 1

    harness.with_store(body)


def test_ten_thousand_parents_of_one_task_and_children_of_one_parent(harness):
    count = 10_000

    async def body(store, first):
        child = first + count
        await commit(store, *(inserted(first + n) for n in range(count)))
        await commit(store, waiting(child, *(edge(first + n) for n in range(count))))
        await commit(store, *(waiting(child + 1 + n, edge(child)) for n in range(count)))
        await commit(store, *(finished(first + n) for n in range(count)))
        records = await loaded(store, WALL * 2)
        assert len(records[0].inserted.edges) == count
        assert [r.inserted.edges for r in live(records)[1:]] == [(edge(child),)] * count
        assert sorted(ids(records)) == list(range(first, first + count))
        await commit(store, finished(child), *(finished(child + 1 + n) for n in range(count)))
        assert await loaded(store, WALL * 2) == []

    harness.with_store(body, 100_000)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1_000])
def test_load_comes_in_portions_bounded_by_edges_too(harness, monkeypatch, most):
    monkeypatch.setattr(limits, "LOAD_EDGES", most)
    monkeypatch.setattr(limits, "LOAD_PORTION", 5)

    async def body(store, first):
        rows = [waiting(first + n, *(edge(key=f"{n}-{m}") for m in range(n % 4))) for n in range(30)]
        await commit(store, *rows)
        portions = [portion async for portion in store.load(0)]
        assert [record for portion in portions for record in portion] == list(map(as_loaded, rows))
        assert min(map(len, portions)) > 0 and max(map(len, portions)) <= 5
        if harness.kind == "sqlite":
            assert max(sum(len(r.inserted.edges) for r in portion) for portion in portions) < most + 3

    harness.with_store(body)


# --- SQLite alone: rows


def test_edges_stand_in_the_file_as_long_as_their_task_lives(sqlite):
    async def body(store, first):
        await commit(
            store, inserted(first), waiting(first + 1, edge(first), edge(key="k")), waiting(first + 2, edge(first))
        )
        await commit(store, finished(first))
        assert execute(sqlite.path, "SELECT child - ?, position, key FROM cronoq_trio_edges", first) == [
            (1, 0, ""),
            (1, 1, "k"),
            (2, 0, ""),
        ]
        await commit(store, finished(first + 1), waiting(first + 3, edge(first + 2)), finished(first + 3))
        assert execute(sqlite.path, "SELECT child - ? FROM cronoq_trio_edges", first) == [(2,)]

    sqlite.with_store(body)


DAMAGES = [
    (
        "UPDATE cronoq_trio_edges SET parent = 'x' WHERE child = ? AND position = 1",
        "column of dependency 1 is of a wrong",
    ),
    ("UPDATE cronoq_trio_edges SET position = 'x' WHERE child = ? AND position = 1", "dependency x is of a wrong type"),
    ("UPDATE cronoq_trio_edges SET key = x'00' WHERE child = ? AND position = 1", "dependency 1 is of a wrong type"),
    ("UPDATE cronoq_trio_edges SET key = CAST(x'ff' AS TEXT) WHERE child = ?", "dependency 0 is of a wrong type"),
    ("UPDATE cronoq_trio_edges SET condition = 4 WHERE child = ? AND position = 0", "dependency 0 has no condition 4"),
    ("UPDATE cronoq_trio_edges SET condition = 0 WHERE child = ? AND position = 0", "dependency 0 has no condition 0"),
    ("UPDATE cronoq_trio_edges SET condition = 1.5 WHERE child = ?", "dependency 0 is of a wrong type"),
    ("UPDATE cronoq_trio_edges SET parent = child WHERE child = ? AND position = 0", "0 does not name another task"),
    ("UPDATE cronoq_trio_edges SET parent = -1 WHERE child = ? AND position = 0", "0 does not name another task"),
    ("UPDATE cronoq_trio_edges SET parent = 0 WHERE child = ? AND position = 0", "0 does not name another task"),
    ("UPDATE cronoq_trio_edges SET key = 'k' WHERE child = ? AND position = 0", "0 does not name another task"),
    ("DELETE FROM cronoq_trio_edges WHERE child = ? AND position = 1", "had 2 dependencies, and 1 are there"),
    ("DELETE FROM cronoq_trio_edges WHERE child = ?", "had 2 dependencies, and 0 are there"),
    ("INSERT INTO cronoq_trio_edges VALUES (?, 7, 1, '', 1)", "had 2 dependencies, and 3 are there"),
]


def test_damaged_edges_end_their_task_and_no_other(sqlite):
    async def body(store, first):
        count = len(DAMAGES)
        rows = [waiting(first + n, edge(1), edge(key="k")) for n in range(2 * count)]
        await commit(store, *rows)
        for n, (text, _) in enumerate(DAMAGES):
            execute(sqlite.path, text, first + 2 * n)
        records = await loaded(store)
        for n, (_, reason) in enumerate(DAMAGES):
            damaged, whole = records[2 * n : 2 * n + 2]
            assert type(damaged) is TaskDamaged and damaged.task_id == first + 2 * n
            assert damaged.reason.startswith("the stored row is damaged: ") and reason in damaged.reason
            assert whole == as_loaded(rows[2 * n + 1])
        await commit(store, *(finished(record.task_id, TaskStatus.FAILED) for record in records[::2]))
        assert live(await loaded(store)) == list(map(as_loaded, rows[1::2]))
        assert execute(sqlite.path, "SELECT count(*) FROM cronoq_trio_edges") == [(2 * count,)]

    sqlite.with_store(body)


def test_edges_of_tasks_that_are_not_there_hold_nothing(sqlite, monkeypatch):
    """Left behind by whatever damaged the file: not recovered, and their parents are pruned."""
    monkeypatch.setattr(limits, "LOAD_EDGES", 2)

    async def body(store, first):
        await commit(store, inserted(first), waiting(first + 50, edge(key="k")), finished(first))
        for n in range(20):
            execute(sqlite.path, "INSERT INTO cronoq_trio_edges VALUES (?, 0, ?, '', 1)", first + 10 + n, first)
        execute(sqlite.path, "INSERT INTO cronoq_trio_edges VALUES ('x', 0, 0, 'k', 1)")
        await commit(store, EdgeResolved(first + 50, "k", first + 51))
        assert live(await loaded(store)) == [as_loaded(waiting(first + 50, edge(first + 51)))]
        assert await store.prune(WALL * 2) == 1

    sqlite.with_store(body)


def test_a_parent_whose_row_is_damaged_is_left_out(sqlite):
    async def body(store, first):
        await commit(store, inserted(first), inserted(first + 1), waiting(first + 2, edge(first), edge(first + 1)))
        await commit(store, finished(first), finished(first + 1))
        execute(sqlite.path, "UPDATE cronoq_trio_tasks SET pool = CAST(x'ff' AS TEXT) WHERE id = ?", first)
        records = await loaded(store, WALL * 2)
        assert ids(records) == [first + 1]
        assert live(records)[0].inserted.edges == (Edge(first, "", 1), Edge(first + 1, "", 1))

    sqlite.with_store(body)
