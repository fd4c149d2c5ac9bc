"""How long a call may take, and which calls are tried again."""

from typing import Any

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import (
    Client,
    ClientError,
    RetryPolicy,
    task,
)
from tests.client.conftest import Run
from tests.client.foreign import DONE, DOWN, FULL, INFO, ForeignServer, Refusal, each

QUICK = RetryPolicy(max_attempts=3, initial_backoff=0.001)


# --- time and retries


def test_each_call_has_a_limit_and_waiting_has_none(run: Run, foreign: ForeignServer) -> None:
    """What the server is told of the deadline, in `grpc-timeout`, is what the client keeps."""

    async def calls(client: Client) -> None:
        limits: list[float | None] = []
        original = client._channel.unary_with_metadata

        async def spy(method: Any, request: Any, *, timeout: float | None = None) -> Any:
            limits.append(None if timeout is None else round(timeout))
            return await original(method, request, timeout=timeout)

        client._channel.unary_with_metadata = spy  # type: ignore[method-assign, assignment]
        foreign.reset(Get=INFO, Submit=pb.SubmitResponse(id=7, result=DONE), Wait=DONE, Cancel=pb.CancelResponse())
        await client.get(1)
        await client.get(1, timeout=4)
        await client.submit()
        await client.submit(call_timeout=3)
        await client.submit(wait=True)
        await client.submit(wait=True, wait_timeout=10)
        await client.submit(wait=True, wait_timeout=10, call_timeout=8)
        await client.submit(wait=True, key="k")
        await client.wait(1)
        await client.wait(1, 20)
        await client.wait(1, 20, call_timeout=2)
        assert limits == [30, 4, 30, 3, None, 15, 8, 30, None, 25, 2]

    each(run, foreign, calls)


def test_the_limit_of_all_calls_can_be_set(run: Run, foreign: ForeignServer) -> None:
    assert Client("localhost:1").timeout == 30.0 and Client("localhost:1").retry is None
    assert Client("localhost:1", timeout=None).timeout is None
    for wrong, error in ((True, TypeError), ("1", TypeError), (-1, ValueError)):
        with pytest.raises(error):
            Client("localhost:1", timeout=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RetryPolicy"):
        Client("localhost:1", retry=3)  # type: ignore[arg-type]


CALLS: dict[str, tuple[Any, bool]] = {
    "get": (lambda client: client.get(1), True),
    "wait": (lambda client: client.wait(1), True),
    "cancel": (lambda client: client.cancel(1), True),
    "submit with key": (lambda client: client.submit(key="k"), True),
    "submit without": (lambda client: client.submit(), False),
    "batch with keys": (lambda client: client.submit_batch([task(key="a"), task(key="b")]), True),
    "batch without": (lambda client: client.submit_batch([task(key="a"), task()]), False),
}
ANSWERS = {
    "Get": INFO,
    "Wait": DONE,
    "Cancel": pb.CancelResponse(),
    "Submit": pb.SubmitResponse(id=1),
    "SubmitBatch": pb.SubmitBatchResponse(),
}


@pytest.mark.parametrize(("call", "safe"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("refusal", [DOWN, FULL], ids=["down", "full"])
def test_what_is_tried_again(run: Run, foreign: ForeignServer, call: Any, safe: bool, refusal: Refusal) -> None:
    """A full queue took nothing, so everything may be tried again; a server that went away may have taken it."""
    foreign.reset(**{name: [refusal, refusal, answer] for name, answer in ANSWERS.items()})
    again = safe or refusal is FULL

    async def calls(client: Client) -> None:
        if again:
            await call(client)
        else:
            with pytest.raises(ClientError):
                await call(client)

    each(run, foreign, calls, retry=QUICK)
    assert len(foreign.asked) == (3 if again else 1)


def test_what_is_not_tried_again(run: Run, foreign: ForeignServer) -> None:
    large = Refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "message of 9 bytes is above the limit of 8 (limits.max_message_bytes)"
    )
    foreign.reset(Get=[DOWN] * 9, Cancel=large, ListTasks=Refusal(grpc.StatusCode.INTERNAL))

    async def calls(client: Client) -> None:
        for call in (client.get(1), client.cancel(1), client.list_tasks()):
            with pytest.raises(ClientError):
                await call

    each(run, foreign, calls, retry=QUICK)
    assert [name for name, _ in foreign.asked] == ["Get"] * 3 + ["Cancel", "ListTasks"]
    foreign.reset(Get=DOWN)
    each(run, foreign, lambda client: _fails(client.get(1)))
    assert len(foreign.asked) == 1, "without retry nothing is"


async def _fails(call: Any) -> None:
    with pytest.raises(ClientError):
        await call


def test_no_attempt_begins_after_the_limit_of_the_call(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Get=[DOWN] * 9)
    slow = RetryPolicy(max_attempts=9, initial_backoff=3_600, max_backoff=3_600, jitter=False)
    each(run, foreign, lambda client: _fails(client.get(1, timeout=5)), retry=slow)
    assert len(foreign.asked) == 1


def test_pauses_grow_to_their_bound_and_are_drawn(run: Run, foreign: ForeignServer, monkeypatch: Any) -> None:
    foreign.reset(Get=[DOWN] * 5 + [INFO])
    bounds: list[float] = []

    def draw(low: float, high: float) -> float:
        assert low == 0
        bounds.append(high)
        return 0.0

    monkeypatch.setattr("random.uniform", draw)
    policy = RetryPolicy(max_attempts=9, initial_backoff=1, multiplier=3, max_backoff=10)
    each(run, foreign, lambda client: client.get(1), retry=policy)
    assert bounds == [1, 3, 9, 10, 10]


def test_a_server_that_is_not_there_yet_is_waited_for(run: Run) -> None:
    async def main() -> None:
        async with Client("localhost:1", retry=QUICK) as client:
            with pytest.raises(ClientError, match="connection refused"):
                await client.submit()

    run(main)
