"""Foreign clients: grpcio's own channels and the stubs that users get, and what tests say with them again and again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.server import HANG

Status = grpc.StatusCode

LARGE = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))


class Client:
    """One channel of grpcio's synchronous API."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.tasks = stubs.TasksStub(channel)
        self.admin = stubs.AdminStub(channel)

    def submit(self, wait: bool = False, wait_timeout: float | None = None, **task: Any) -> pb.SubmitResponse:
        return self.tasks.Submit(submission(wait, wait_timeout, **task), timeout=HANG)

    def get(self, ref: int | str) -> pb.TaskInfo:
        return self.tasks.Get(pb.GetRequest(task=reference(ref)), timeout=HANG)

    def wait(self, ref: int | str, timeout: float | None = None) -> pb.TaskResult:
        return self.tasks.Wait(pb.WaitRequest(task=reference(ref), timeout_s=timeout), timeout=HANG)

    def cancel(self, ref: int | str) -> bool:
        return self.tasks.Cancel(pb.CancelRequest(task=reference(ref)), timeout=HANG).cancelled

    def snapshot(self) -> pb.SnapshotResponse:
        return self.admin.Snapshot(pb.Empty(), timeout=HANG)

    def status(self, ref: int | str) -> str:
        """The word of the task's status, in lower case."""
        return word(self.get(ref).status)


@contextmanager
def connect(address: str, **options: Any) -> Iterator[Client]:
    """A client on a connection of its own, which its first call opens."""
    with grpc.insecure_channel(
        address, options=[*LARGE, ("grpc.use_local_subchannel_pool", 1), *options.items()]
    ) as ch:
        yield Client(ch)


def reference(ref: int | str) -> pb.TaskRef:
    return pb.TaskRef(id=ref) if isinstance(ref, int) else pb.TaskRef(key=ref)


def submission(wait: bool = False, wait_timeout: float | None = None, **task: Any) -> pb.SubmitRequest:
    return pb.SubmitRequest(task=pb.TaskSpec(**task), wait=wait, wait_timeout_s=wait_timeout)


def retry(attempts: int, backoff: float = 0.01) -> pb.RetryPolicy:
    """`attempts` in all, each soon after the last."""
    return pb.RetryPolicy(max_attempts=attempts, initial_backoff_s=backoff, multiplier=1, max_backoff_s=backoff)


def word(status: int) -> str:
    return pb.TaskStatus.Name(status).removeprefix("TASK_STATUS_").lower()


@contextmanager
def refused(code: grpc.StatusCode, *words: str) -> Iterator["pytest.ExceptionInfo[grpc.RpcError]"]:
    """The call in the block must fail with that status and a message that holds all the words."""
    with pytest.raises(grpc.RpcError) as caught:
        yield caught
    found = (caught.value.code(), caught.value.details())
    assert found[0] is code, f"{code} was expected, found {found}"
    for text in words:
        assert text in found[1], f"{text!r} is missing in {found}"


def wait_until(condition: Callable[[], Any], what: str, bound: float = HANG) -> Any:
    """The first true value of the condition, asked again and again; a failure naming `what` when it takes too long."""
    deadline = time.monotonic() + bound
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"after {bound} s still not: {what}"
        time.sleep(0.01)
