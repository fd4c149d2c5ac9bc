"""The timer heap against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.timers import TimerHeap


@given(st.lists(st.tuples(st.sampled_from(["add", "cancel", "pop"]), st.integers(0, 20)), max_size=200))
def test_against_a_sorted_list(operations):
    heap: TimerHeap[int] = TimerHeap()
    naive, handles = [], {}
    for number, (operation, value) in enumerate(operations):
        if operation == "add":
            handles[number] = heap.add(value, number)
            naive.append((value, number))
        elif operation == "cancel" and handles:
            victim = sorted(handles)[value % len(handles)]
            heap.cancel(handles[victim])
            heap.cancel(handles.pop(victim))
            naive = [entry for entry in naive if entry[1] != victim]
        elif operation == "pop":
            due = [entry for entry in sorted(naive) if entry[0] <= value]
            assert heap.pop_due(value) == (due[0][1] if due else None)
            if due:
                naive.remove(due[0])
                del handles[due[0][1]]
        assert len(heap) == len(naive)
        assert heap.next() == (min(naive)[0] if naive else None)


def test_cancelled_entries_do_not_pile_up():
    heap: TimerHeap[str] = TimerHeap()
    heap.add(1_000_000, "stays")
    for when in range(10_000):
        heap.cancel(heap.add(2_000_000 + when, "goes"))
    assert len(heap.heap) <= 2 * TimerHeap.MIN_GARBAGE + 2
    assert heap.next() == 1_000_000


def test_a_timer_that_fired_can_be_cancelled_in_vain():
    heap: TimerHeap[str] = TimerHeap()
    timer = heap.add(1, "x")
    assert heap.pop_due(1) == "x"
    heap.cancel(timer)
    assert len(heap) == 0


def test_of_timers_due_at_once_the_order_says_which_comes_first():
    heap: TimerHeap[int] = TimerHeap()
    for number, order in enumerate(("b", "a", "b", "")):
        heap.add(1, number, order)
    heap.add(0, 4, "z")
    assert heap.first() == (0, "z")
    assert [heap.pop_due(1) for _ in range(5)] == [4, 3, 1, 0, 2] and heap.first() is None


def test_what_is_left_of_cancelled_timers_can_be_dropped():
    heap: TimerHeap[str] = TimerHeap()
    for when in range(3):
        heap.cancel(heap.add(when, "goes"))
    heap.clear()
    heap.add(7, "stays")
    assert len(heap) == len(heap.heap) == 1 and heap.next() == 7
