"""What is due ahead of a start, against a sorted list, while the lead of the pool changes."""

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.ahead import Ahead, Leads

NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "cancel", "pop"]), st.integers(0, 40), st.integers(0, 10), NAMES, st.integers(0, 9)
        ),
        max_size=60,
    )
)
def test_against_a_sorted_list(operations):
    """Entries come back by due time, then by name, whatever the lead is by then."""
    ahead: Ahead[int] = Ahead()
    entries = {}
    for number, (operation, when, margin, name, lead) in enumerate(operations):
        due = {key: (start - max(much, lead), order) for key, (_, start, much, order) in entries.items()}
        if operation == "add":
            entries[number] = (ahead.add(when, margin, number, name), when, margin, name)
        elif operation == "cancel" and entries:
            victim = sorted(entries)[when % len(entries)]
            ahead.cancel(entries[victim][0])
            ahead.cancel(entries.pop(victim)[0])
        elif operation == "pop":
            found = ahead.pop_due(when, lead)
            if not due or min(due.values())[0] > when:
                assert found is None
            else:
                assert found is not None and due[found] == min(due.values())
                del entries[found]
        assert ahead.count == len(entries)
        first = ahead.first(lead)
        dues = [(start - max(much, lead), order) for _, start, much, order in entries.values()]
        assert (first[:2] if first is not None else None) == min(dues, default=None)


def test_entries_that_are_over_do_not_pile_up():
    ahead: Ahead[str] = Ahead()
    ahead.add(10, 0, "stays")
    for start in range(5_000):
        ahead.cancel(ahead.add(1_000 + start, 0, "goes"))
    assert len(ahead._by_start) + len(ahead._by_margin) <= 2 * Ahead.MIN_GARBAGE


class Slow:
    """A pool, as far as this is concerned."""

    def __init__(self, lead):
        self.now = lead

    def lead(self):
        return self.now


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), NAMES, st.integers(0, 2)), max_size=30), st.data())
def test_the_entries_of_all_pools_come_in_one_order(starts, data):
    pools = [Slow(2), Slow(5), Slow(0)]
    leads: Leads[int] = Leads()
    for number, (start, margin, name, index) in enumerate(starts):
        leads.add(pools[index], start, margin, number, name)
    for pool in pools:
        pool.now = data.draw(st.integers(0, 9))
        leads.look(pool)
    due = sorted(
        (start - max(margin, pools[index].now), name, number)
        for number, (start, margin, name, index) in enumerate(starts)
    )
    assert leads.first() == (due[0][:2] if due else None)
    keys = {number: (when, name) for when, name, number in due}
    found = []
    while (number := leads.pop_due(100)) is not None:
        found.append(keys[number])
    assert found == sorted(keys.values()) and len(leads) == 0 and leads.next() is None


def test_a_pool_without_entries_is_left_alone():
    leads: Leads[str] = Leads()
    pool = Slow(3)
    leads.look(pool)
    leads.cancel(pool, leads.add(pool, 10, 1, "x"))
    leads.look(pool)
    assert leads.next() is None
