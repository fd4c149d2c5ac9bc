"""What only the memory store does: it forgets what no later term of the process needs."""

import anyio

from cronoq._stores.memory import LEASES_PER_TERM, MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.ids import MEMORY_SHIFT
from tests.stores.support import UNIX, WALL, batch, commit, ended, finished, inserted, loaded


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
