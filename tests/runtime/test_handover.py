"""Handing results from threads to the loop, with an eventfd and with a socket pair."""

import os
import threading
from collections.abc import Iterator

import pytest
import trio

from cronoq._runtime.handover import Handover


@pytest.fixture(params=["eventfd", "socket pair"])
def handover(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handover[int]]:
    if request.param == "socket pair":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this platform has no eventfd")
    handover: Handover[int] = Handover()
    yield handover
    handover.close()


async def test_items_of_many_threads_arrive_whole_and_in_order(handover: Handover[int]) -> None:
    def put(start: int) -> None:
        for number in range(start, start + 1_000):
            handover.put(number)

    threads = [threading.Thread(target=put, args=(start,)) for start in (0, 10_000, 20_000)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    with trio.fail_after(30):
        while len(taken) < 3_000:
            taken += await handover.take()
    for start in (0, 10_000, 20_000):
        own = [number for number in taken if start <= number < start + 1_000]
        assert own == list(range(start, start + 1_000))


async def test_a_cancelled_take_loses_nothing(handover: Handover[int]) -> None:
    with trio.move_on_after(0):
        await handover.take()
    handover.put(1)
    handover.put(2)
    assert await handover.take() == [1, 2]


async def test_more_wake_ups_than_the_pipe_holds(handover: Handover[int]) -> None:
    for number in range(100_000):
        handover.put(number)
    assert len(await handover.take()) == 100_000


def test_closing_twice_is_fine(handover: Handover[int]) -> None:
    handover.close()
