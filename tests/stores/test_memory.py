"""What only the memory store does: it forgets what no later term of the process needs."""

import anyio
import pytest

from cronoq._stores.memory import LEASES_PER_TERM, MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.ids import MEMORY_SHIFT
from tests.stores.support import (
    UNIX,
    WALL,
    EdgeResolved,
    attempt,
    batch,
    commit,
    edge,
    ended,
    finished,
    inserted,
    loaded,
    waiting,
)


def run(body, **options):
    async def term():
        store = MemoryStore(**{"key_retention": 10 * SECOND, "key_retention_max": 100, **options})
        await store.open()
        claim = await store.claim(UNIX)
        await body(store, claim)
        await store.close()

    anyio.run(term, backend="trio")


def test_ends_older_than_key_retention_are_forgotten_when_others_come():
    async def body(store, claim):
        first = claim.first_task_id
        await commit(store, *(inserted(first + n) for n in range(5)))
        for n in range(5):
            await commit(store, finished(first + n, end=WALL + n * 4 * SECOND))
        assert [record.task_id - first for record in ended(await loaded(store))] == [2, 3, 4]
        assert len(store._finished) == 3

    run(body)


def test_nothing_is_left_of_a_task_that_was_forgotten():
    async def body(store, claim):
        first = claim.first_task_id
        for n in range(50):
            await commit(store, inserted(first + n, f"key-{n}"))
            await commit(store, finished(first + n, end=WALL))
        assert (store._inserted, store._changed, store._keys, len(store._finished)) == ({}, {}, {}, 2)

    run(body, key_retention_max=2)


@pytest.mark.parametrize("most", [0, 2])
def test_a_parent_is_kept_as_long_as_a_live_task_names_it_and_then_nothing_is_left(most):
    async def body(store, claim):
        first = claim.first_task_id
        await commit(store, *(inserted(first + n, f"k{n}") for n in range(3)))
        await commit(store, waiting(first + 3, edge(first), edge(first, condition=2), edge(first + 1)))
        await commit(store, waiting(first + 4, edge(first), edge(key="k5")), waiting(first + 6, edge(first + 4)))
        await commit(store, inserted(first + 5, "k5"), EdgeResolved(first + 4, "k5", first + 5))
        for n in (0, 1, 2, 5):
            await commit(store, finished(first + n, end=WALL + n))
        kept = [(0, 1, 5), (3, 0, 5), (4, 4), (6,)]
        assert {r.task_id - first for r in ended(await loaded(store, WALL * 2))} == {0, 1, 5}
        for over, *left in kept[1:]:
            await commit(store, finished(first + over, end=WALL + 100 * SECOND + over))
            assert {r.task_id - first for r in ended(await loaded(store, WALL * 2))} == set(left)
        assert (store._inserted, store._resolved, store._named, store._parents) == ({}, {}, {}, {})
        assert len(store._finished) == most

    run(body, key_retention_max=most)


def test_writing_again_keeps_parents_that_key_retention_forgets():
    async def body(store, claim):
        first = claim.first_task_id
        made = batch(inserted(first), waiting(first + 1, edge(first)), finished(first), inserted(first + 2))
        made.add(2, [finished(first + 2, end=WALL + 100 * SECOND)])
        for _ in range(3):
            assert await attempt(store, made) is None
            assert [r.task_id for r in ended(await loaded(store, WALL + 1))] == [first, first + 2]
        await commit(store, finished(first + 1, end=WALL + 200 * SECOND))
        assert (store._named, store._parents) == ({}, {})

    run(body)


def test_done_is_called_before_begin_commit_returns():
    async def body(store, claim):
        calls = []
        store.begin_commit(batch(inserted(claim.first_task_id)), calls.append)
        assert calls == [None]

    run(body)


def test_first_ids_come_from_the_clock():
    async def body(store, claim):
        assert claim.first_task_id == claim.first_lease_id == UNIX << MEMORY_SHIFT | 1
        again = await store.claim(UNIX)
        assert again.first_lease_id == claim.first_lease_id + LEASES_PER_TERM
        late = await store.claim(UNIX + 1_000_000)
        assert late.first_lease_id == late.first_task_id == (UNIX + 1_000_000) << MEMORY_SHIFT | 1

    run(body)
