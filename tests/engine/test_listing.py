"""Live tasks by id, a page at a time, against sorting everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import listing
from cronoq_sansio.engine.listing import LiveIds
from cronoq_sansio.limits import MAX_LANE_GARBAGE
from cronoq_sansio.spec import TaskStatus
from tests.engine.harness import Rig, pool, spec
from tests.engine.naive_store import NaiveStore

POOLS = ("a", "b", "c")
READY, RUNNING, RETRYING = int(TaskStatus.READY), int(TaskStatus.RUNNING), int(TaskStatus.RETRYING)


def busy_rig(homes, ends, slots=0, fails=0):
    """Tasks in `homes`; the ones at the indexes `ends` are cancelled; pool a runs some, of which some fail."""
    rig = Rig(*(pool(name) for name in POOLS))
    ids = rig.submit(*(spec(pool=home) for home in homes)) if homes else []
    if slots:
        rig.slots(slots, name="a")
    for lease in rig.leases[:fails]:
        rig.handle(ev.GroupCapacitySet("a", (), 0), ev.AttemptFailed(lease.id, "e", False, 50 * SECOND))
    for index in sorted(ends):
        if index < len(ids):
            rig.handle(ev.TaskCancelled(None, ids[index]))
    return rig


def expected(rig, pools, statuses, after):
    return [
        task_id
        for task_id, task in sorted(rig.engine.tasks.live.items())
        if task.pool.name in pools and (not statuses or task.status in statuses) and task_id > after
    ]


@given(
    st.lists(st.sampled_from(POOLS), max_size=60),
    st.sets(st.integers(0, 59)),
    st.integers(0, 5),
    st.integers(0, 3),
    st.lists(st.sampled_from(POOLS), unique=True, max_size=3),
    st.sampled_from([(), (READY,), (RUNNING, RETRYING), (RETRYING,)]),
    st.integers(0, 65),
    st.integers(1, 20),
    st.sampled_from([3, 7, 10_000]),
)
def test_pages_are_what_sorting_everything_gives(homes, ends, slots, fails, pools, statuses, after, limit, scan):
    rig = busy_rig(homes, ends, slots, fails)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "MAX_LIST_SCAN", scan)
        found = []
        position, pages = after, 0
        while True:
            tasks, looked = rig.engine.list_live(pools, statuses, position, limit)
            assert len(tasks) <= limit
            found += [task.id for task in tasks]
            if not looked:
                break
            assert looked > position, "a page that does not advance"
            assert not tasks or tasks[-1].id <= looked
            position = looked
            pages += 1
            assert pages <= len(homes) + 1
    assert found == expected(rig, pools, statuses, after)


def test_a_page_looks_at_a_bounded_number_of_tasks(monkeypatch):
    monkeypatch.setattr(listing, "MAX_LIST_SCAN", 5)
    rig = busy_rig("a" * 12, ())
    tasks, looked = rig.engine.list_live(["a"], (RUNNING,), 0, 3)
    assert (tasks, looked) == ([], 5)
    tasks, looked = rig.engine.list_live(["a"], (), looked, 100)
    assert ([task.id for task in tasks], looked) == ([6, 7, 8, 9, 10], 10)
    tasks, looked = rig.engine.list_live(["a"], (), looked, 100)
    assert ([task.id for task in tasks], looked) == ([11, 12], 0)


def test_no_pool_no_task():
    assert busy_rig("abc", ()).engine.list_live([], (), 0, 10) == ([], 0)


def test_ended_ids_do_not_pile_up():
    """However many tasks come and go beside one that stays, its pool's list stays small."""
    live = {1: None}
    ids = LiveIds(live)
    ids.add(1)
    for task_id in range(2, 5_000):
        live[task_id] = None
        ids.add(task_id)
        del live[task_id]
        assert len(ids) <= 2 * (MAX_LANE_GARBAGE + 2)
    assert next(ids.after(0)) == 1


def test_a_page_after_many_ends_does_not_look_at_what_ended(monkeypatch):
    """Thousands that ended lie before the one that lives; the list is cleaned first, once."""
    monkeypatch.setattr(listing, "MAX_LIST_SCAN", 200)
    rig = busy_rig("", ())
    ids = rig.submit(*(spec(pool="a") for _ in range(3_000)))
    for task_id in ids[:-1]:
        rig.engine.handle([ev.TaskCancelled(None, task_id)], rig.now)
    tasks, looked = rig.engine.list_live(["a"], (), 0, 10)
    assert ([task.id for task in tasks], looked) == ([ids[-1]], 0)
    assert len(rig.engine.pools["a"].ids) == 1


def test_tasks_that_were_recovered_are_listed_too():
    rig, store = Rig(*(pool(name) for name in POOLS)), NaiveStore()
    store.write(rig.handle(*(ev.TaskSubmitted(None, spec(pool=home)) for home in "abcabc")).writes)
    store.write(rig.handle(ev.TaskCancelled(None, 2)).writes)
    engine = store.recover(rig.settings, rig.now)
    tasks, looked = engine.list_live(["c", "a", "b"], (), 1, 10)
    assert ([task.id for task in tasks], looked) == ([3, 4, 5, 6], 0)
