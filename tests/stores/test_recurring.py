"""Schedules in every store: they survive, with how far each has come; replaced, deleted, damaged."""

import shutil
import threading
from dataclasses import replace

import pytest
from anyio import to_thread

from cronoq._stores.base import StoreUnavailable
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import FOLDS, GAPS
from cronoq_sansio.spec import MissPolicy, Overlap, RecurringSpec, Scheduling, TaskSpec
from tests.stores.support import (
    UNIX,
    WALL,
    RecurringDamaged,
    RecurringLoaded,
    attempt,
    batch,
    commit,
    edge,
    ended,
    execute,
    finished,
    fired,
    gone,
    inserted,
    live,
    loaded,
    schedule,
    schedules,
    spec,
    waiting,
)

BARE = RecurringSpec("bare", "* * * * *", "", TaskSpec(b"", "", "", "p", 3, "", None, None, (), 0))
EVERYTHING = Scheduling(
    deadline_in=1,
    duration_hint=2,
    resources=(("gpu", 2),),
    labels=(("zone", "a"),),
    tenant="ü",
    tolerance=0,
    on_miss=MissPolicy.FAIL,
)


async def stored(store):
    return schedules(await loaded(store))


def test_every_field_comes_back(harness):
    rows = [
        replace(schedule("bare"), spec=BARE),
        schedule("ключ ✗", "*/5 0 7 * * mon-fri", WALL + 5, configured=True),
        *(schedule(f"overlap {overlap}", overlap=overlap) for overlap in Overlap),
        *(schedule(f"{gap} {fold}", gap=gap, fold=fold) for gap in GAPS for fold in FOLDS),
        schedule("asks", template=replace(spec("k", b"\0" * 5_000), scheduling=EVERYTHING)),
        schedule("n" * limits.MAX_SCHEDULE_NAME),
    ]
    wanted = {row.spec.name: RecurringLoaded(row, None) for row in rows}

    async def body(store, _first):
        await commit(store, *rows, fired("asks", WALL + 7, WALL + 3_600 * SECOND, 1 << 62))
        wanted["asks"] = replace(wanted["asks"], fired=fired("asks", WALL + 7, WALL + 3_600 * SECOND, 1 << 62))
        assert await stored(store) == wanted

    async def later(store, _first):
        assert await stored(store) == wanted

    harness.with_store(body)
    harness.with_store(later)


def test_a_fire_and_its_task_are_one_batch(harness):
    async def body(store, first):
        await commit(store, schedule("a"), schedule("b"))
        for n in range(5):
            await commit(store, inserted(first + n), fired("a", WALL + n, WALL + 60 + n, first + n))
        records = await loaded(store)
        assert len(live(records)) == 5
        assert schedules(records) == {
            "a": RecurringLoaded(schedule("a"), fired("a", WALL + 4, WALL + 64, first + 4)),
            "b": RecurringLoaded(schedule("b"), None),
        }

    harness.with_store(body)


def test_a_schedule_that_is_replaced_has_come_as_far_as_before(harness):
    async def body(store, _first):
        await commit(store, schedule("a"), fired("a", WALL + 5, -1, 7))
        await commit(store, schedule("a", "0 8 * * *", WALL + 6, tz=""))
        now = RecurringLoaded(schedule("a", "0 8 * * *", WALL + 6, tz=""), fired("a", WALL + 5, -1, 7))
        assert await stored(store) == {"a": now}
        await commit(store, schedule("a"), fired("a", WALL + 9, WALL + 8, 9), schedule("a", "0 9 * * *"))
        assert await stored(store) == {
            "a": RecurringLoaded(schedule("a", "0 9 * * *"), fired("a", WALL + 9, WALL + 8, 9))
        }

    harness.with_store(body)


def test_nothing_is_left_of_a_schedule_that_was_deleted(harness):
    async def body(store, first):
        await commit(store, schedule("a"), fired("a", WALL + 5, -1, first), schedule("b"), inserted(first))
        await commit(store, gone("a"))
        records = await loaded(store)
        assert schedules(records) == {"b": RecurringLoaded(schedule("b"), None)}
        assert len(live(records)) == 1, "its tasks stay"
        await commit(store, schedule("a"), gone("never"))
        assert (await stored(store))["a"] == RecurringLoaded(schedule("a"), None), "it has come nowhere"

    harness.with_store(body)


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([schedule("a"), fired("a", 5)], RecurringLoaded(schedule("a"), fired("a", 5))),
        ([schedule("a"), gone("a")], None),
        ([gone("a")], None),
        ([fired("a", 5), gone("a")], None),
        ([fired("a", 5)], RecurringLoaded(schedule("a", "old"), fired("a", 5))),
        ([schedule("a")], RecurringLoaded(schedule("a"), fired("a", 1))),
        ([gone("a"), schedule("a")], RecurringLoaded(schedule("a"), None)),
        (
            [schedule("a"), fired("a", 2), gone("a"), schedule("a", "0 8 * * *")],
            RecurringLoaded(schedule("a", "0 8 * * *"), None),
        ),
        ([gone("a"), schedule("a"), fired("a", 6), fired("a", 7)], RecurringLoaded(schedule("a"), fired("a", 7))),
        ([gone("a"), schedule("a"), gone("a")], None),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_records_of_one_batch_merge_to_what_they_are_one_by_one(harness, records, wanted, together):
    async def body(store, _first):
        await commit(store, schedule("a", "old"), fired("a", 1), schedule("b"))
        if together:
            made = batch(*records)
            for _ in range(3):  # writing a batch again changes nothing
                assert await attempt(store, made) is None
        else:
            for record in records:
                await commit(store, record)
        there = {"b": RecurringLoaded(schedule("b"), None)} | ({"a": wanted} if wanted else {})
        assert await stored(store) == there

    harness.with_store(body)


def test_a_batch_counts_schedules_as_work():
    """Their rows count against the length of a transaction, their templates against the bytes that may wait."""
    made = batch(schedule("a"), fired("a"), gone("b"))
    assert (made.rows, made.spec_size) == (3, spec().size)


@pytest.mark.parametrize("count", [limits.LOAD_PORTION, limits.LOAD_PORTION + 1])
def test_load_comes_in_portions(harness, count):
    async def body(store, first):
        await commit(store, *(schedule(f"s{n}") for n in range(count)), inserted(first))
        await commit(store, *(schedule(f"s{n}") for n in range(0, count, 2)), fired("s1", WALL + 1))
        portions = [portion async for portion in store.load(0)]
        assert max(map(len, portions)) <= limits.LOAD_PORTION and min(map(len, portions)) > 0
        assert len(schedules([record for portion in portions for record in portion])) == count

    harness.with_store(body)


def test_a_store_with_nothing_but_schedules_gives_ids_and_prunes(harness):
    """Finished occurrences are pruned like others, and what they were is remembered by their schedule."""

    async def body(store, first):
        await commit(store, schedule("a"))
        for n in range(3):
            await commit(store, inserted(first + n), fired("a", WALL + n, -1, first + n))
            await commit(store, finished(first + n, end=WALL + n))
        assert await store.prune(WALL * 2) == 3
        assert ended(await loaded(store)) == []
        assert (await stored(store))["a"].fired.last_task == first + 2
        return first

    first = harness.with_store(body)

    async def later(store, again):
        assert again > first + 2
        assert (await stored(store))["a"] == RecurringLoaded(schedule("a"), fired("a", WALL + 2, -1, first + 2))

    harness.with_store(later)


def test_an_occurrence_that_waits_for_the_one_before_keeps_it(harness):
    async def body(store, first):
        await commit(store, schedule("a"), inserted(first), fired("a", WALL, -1, first))
        await commit(store, finished(first, end=WALL), waiting(first + 1, edge(first), start=WALL + 9, tolerance=0))
        assert await store.prune(WALL * 2) == 0
        records = await loaded(store, WALL * 2)
        assert [record.task_id for record in ended(records)] == [first]
        assert live(records)[0].inserted == waiting(first + 1, edge(first), start=WALL + 9, tolerance=0)

    harness.with_store(body)


# --- the SQLite file


DAMAGES = [
    ("UPDATE cronoq_trio_recurring SET template = x'c1' WHERE name = ?", "cannot be decoded"),
    ("UPDATE cronoq_trio_recurring SET template = x'81a17604' WHERE name = ?", "has format 4"),
    ("UPDATE cronoq_trio_recurring SET template = x'82a17603a16201' WHERE name = ?", "times of its own"),
    ("UPDATE cronoq_trio_recurring SET template = x'82a17602a16501' WHERE name = ?", "has dependencies"),
    ("UPDATE cronoq_trio_recurring SET template = 'text' WHERE name = ?", "of a wrong type"),
    ("UPDATE cronoq_trio_recurring SET cron = x'00' WHERE name = ?", "of a wrong type"),
    ("UPDATE cronoq_trio_recurring SET kind = CAST(x'ff' AS TEXT) WHERE name = ?", "of a wrong type"),
    ("UPDATE cronoq_trio_recurring SET added = 'noon' WHERE name = ?", "of a wrong type"),
    ("UPDATE cronoq_trio_recurring SET priority = 4 WHERE name = ?", "no priority class 4"),
    ("UPDATE cronoq_trio_recurring SET overlap = 0 WHERE name = ?", "no overlap policy 0"),
    ("UPDATE cronoq_trio_recurring SET overlap = 5 WHERE name = ?", "no overlap policy 5"),
    ("UPDATE cronoq_trio_recurring SET dst_gap = 'first' WHERE name = ?", "no way 'first', 'both'"),
    ("UPDATE cronoq_trio_recurring SET dst_fold = '' WHERE name = ?", "no way 'skip', ''"),
    ("UPDATE cronoq_trio_fired SET through = 'now' WHERE name = ?", "of a wrong type"),
    ("UPDATE cronoq_trio_fired SET last_task = 0.5 WHERE name = ?", "of a wrong type"),
]


def test_damaged_rows_come_back_as_such_and_stay_and_the_others_are_whole(sqlite):
    async def body(store, _first):
        for n in range(len(DAMAGES)):
            await commit(store, schedule(f"bad{n}"), schedule(f"good{n}"), fired(f"bad{n}"), fired(f"good{n}"))
        for n, (text, _) in enumerate(DAMAGES):
            execute(sqlite.path, text, f"bad{n}")
        found = await stored(store)
        assert len(found) == 2 * len(DAMAGES)
        for n, (_, reason) in enumerate(DAMAGES):
            assert found[f"good{n}"] == RecurringLoaded(schedule(f"good{n}"), fired(f"good{n}"))
            assert type(found[f"bad{n}"]) is RecurringDamaged
            assert reason in found[f"bad{n}"].reason
        assert await stored(store) == found
        await commit(store, gone("bad0"), schedule("bad1"), fired("bad1", 5))
        again = await stored(store)
        assert "bad0" not in again and again["bad1"] == RecurringLoaded(schedule("bad1"), fired("bad1", 5))

    sqlite.with_store(body)


def test_a_damaged_name_spoils_no_other_schedule(sqlite):
    async def body(store, _first):
        await commit(store, *(schedule(name) for name in ("a", "b", "c")))
        execute(sqlite.path, "UPDATE cronoq_trio_recurring SET name = CAST(x'62ff' AS TEXT) WHERE name = 'b'")
        found = await stored(store)
        assert sorted(found) == ["a", "b\N{REPLACEMENT CHARACTER}", "c"]
        assert found["a"] == RecurringLoaded(schedule("a"), None)

    sqlite.with_store(body)


def test_a_fire_does_not_write_the_template_again(sqlite):
    """A template may have megabytes, and every fire is a transaction."""
    payload = b"x" * (4 << 20)

    async def body(store, first):
        await commit(store, schedule("large", template=spec("k", payload)))
        execute(sqlite.path, "PRAGMA wal_checkpoint(TRUNCATE)")
        for n in range(10):
            await commit(store, fired("large", WALL + n, -1, first + n))
        return (sqlite.path.parent / f"{sqlite.path.name}-wal").stat().st_size

    assert sqlite.with_store(body) < 200_000


def test_when_done_is_called_the_files_hold_the_batch(sqlite, tmp_path):
    """A copy of file and log, taken inside `done`, is what a power cut at that instant leaves."""
    copies = []

    async def body(store, first):
        async def write(*records):
            copied = threading.Event()

            def done(error):
                assert error is None
                path = tmp_path / f"copy{len(copies)}.db"
                for ending in ("", "-wal"):
                    shutil.copy(f"{sqlite.path}{ending}", f"{path}{ending}")
                copies.append(path)
                copied.set()

            store.begin_commit(batch(*records), done)
            await to_thread.run_sync(copied.wait)

        await write(schedule("a"), schedule("b"))
        await write(inserted(first), fired("a", WALL, WALL, first))
        await write(schedule("a", "0 8 * * *"), fired("a", WALL + 1))
        await write(gone("a"), finished(first))
        await write(schedule("a"))
        return first

    first = sqlite.with_store(body)
    b = {"b": RecurringLoaded(schedule("b"), None)}
    images = [
        b | {"a": RecurringLoaded(schedule("a"), None)},
        b | {"a": RecurringLoaded(schedule("a"), fired("a", WALL, WALL, first))},
        b | {"a": RecurringLoaded(schedule("a", "0 8 * * *"), fired("a", WALL + 1))},
        b,
        b | {"a": RecurringLoaded(schedule("a"), None)},
    ]
    for path, image in zip(copies, images, strict=True):
        sqlite.path = path
        found = []

        async def later(store, _first, found=found):
            found.append(await stored(store))

        sqlite.with_store(later)
        assert found == [image]


def test_a_batch_that_does_not_fit_changes_no_schedule(sqlite):
    async def body(store, first):
        await commit(store, schedule("a"), fired("a", 1), schedule("b"))
        connection = store._writer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
        before = await stored(store)
        huge = schedule("huge", template=spec("k", b"x" * 200_000))
        made = batch(gone("b"), schedule("a", "0 8 * * *"), fired("a", 2, -1, first), inserted(first), huge)
        for _ in range(2):
            assert isinstance(await attempt(store, made), StoreUnavailable)
            assert await loaded(store) == list(before.values())
        connection.execute("PRAGMA max_page_count = 1000000")
        assert await attempt(store, made) is None
        assert (await stored(store)) == {
            "a": RecurringLoaded(schedule("a", "0 8 * * *"), fired("a", 2, -1, first)),
            "huge": RecurringLoaded(huge, None),
        }

    sqlite.with_store(body)


def test_a_file_that_lacks_a_table_of_schedules_is_damaged(sqlite):
    sqlite.with_store(lambda store, _first: commit(store, schedule("a")))
    execute(sqlite.path, "DROP TABLE cronoq_trio_fired")
    with pytest.raises(Exception, match="it lacks the table cronoq_trio_fired"):
        sqlite.with_store(lambda store, _first: loaded(store))


def test_no_row_is_left_of_schedules_that_were_deleted(harness):
    async def body():
        store = harness.make()
        await store.open()
        await store.claim(UNIX)
        for n in range(3):
            await commit(store, schedule(f"s{n}"), fired(f"s{n}"))
            await commit(store, gone(f"s{n}"))
        if harness.kind == "memory":
            assert (store._schedules, store._fired) == ({}, {})
        else:
            for table in ("recurring", "fired"):
                assert execute(harness.path, f"SELECT count(*) FROM cronoq_trio_{table}") == [(0,)]
        await store.close()

    harness.run(body)
