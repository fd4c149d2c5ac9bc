"""What a term asks its store for: which finished tasks come back, and which are deleted."""

from collections.abc import AsyncIterator

import trio
from trio.testing import MockClock

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.limits import PRUNE_INTERVAL
from tests.runtime.house import SETTINGS, DurableStore, House, wall


class Noting(DurableStore):
    """Notes what it is asked for; has two portions to prune whenever it is asked anew."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded_since: list[int] = []
        self.pruned_before: list[int] = []

    def load(self, finished_since: int) -> AsyncIterator[list[LoadedRecord]]:
        self.loaded_since.append(finished_since)
        return super().load(finished_since)

    async def prune(self, before: int) -> int:
        self.pruned_before.append(before)
        return 0 if len(self.pruned_before) % 3 == 0 else 1_000


async def test_finished_tasks_come_back_for_as_long_as_their_keys_are_remembered(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = Noting()
    began = wall()
    await House(nursery, store).open()
    nursery.cancel_scope.cancel()
    assert store.loaded_since == [began - SETTINGS.limits.key_retention]


async def test_what_is_older_than_keep_finished_is_pruned_in_portions_at_once_and_every_hour(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = Noting()
    began = wall()
    await House(nursery, store).open()
    await trio.sleep(1)
    keep = SETTINGS.store.keep_finished
    assert store.pruned_before == [began - keep] * 3, "until a portion is empty"
    await trio.sleep(PRUNE_INTERVAL / SECOND + 1)
    nursery.cancel_scope.cancel()
    assert len(store.pruned_before) == 6
    assert all(0 <= at - began + keep - PRUNE_INTERVAL <= SECOND for at in store.pruned_before[3:])
