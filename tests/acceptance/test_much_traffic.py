"""A foreign client with much to do on one connection: more calls at once than streams, and many calls after another."""

import sys
from pathlib import Path

import anyio
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client as OurClient
from cronoq.client import Submitted
from tests.acceptance.clients import Status, connect, reference, submission
from tests.acceptance.server import HANG, Server
from tests.acceptance.workers import serving

STORES = ["memory"]
SERVER = {"limits": "max_concurrent_streams = 100"}
ROUNDS, CALLS = 20, 1_000
GROWTH = 3 << 20
"""Bytes that the process may grow by over three quarters of the calls: 200 for each would be as many."""


def resident(server: Server) -> int:
    """Bytes of memory that the server's process has."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no VmRSS")


def test_500_parallel_calls_over_a_limit_of_100(server: Server) -> None:
    """All of them wait for their tasks, which a worker on another connection runs."""
    with connect(server.address) as client, connect(server.address) as other:
        calls = [client.tasks.Submit.future(submission(True, key=f"k{number}"), timeout=HANG) for number in range(500)]
        with serving(other.channel):
            answers = [call.result() for call in calls]
    assert len({answer.id for answer in answers}) == 500
    assert {answer.result.status for answer in answers} == {pb.TASK_STATUS_SUCCEEDED}


def test_500_parallel_calls_of_our_client_over_a_limit_of_100(server: Server) -> None:
    answers: list[Submitted] = []

    async def submit(client: OurClient, number: int) -> None:
        answers.append(await client.submit(b"", key=f"ours{number}", wait=True))

    async def main() -> None:
        with anyio.fail_after(HANG):
            async with OurClient(server.address) as client, anyio.create_task_group() as tasks:
                for number in range(500):
                    tasks.start_soon(submit, client, number)

    with connect(server.address) as other, serving(other.channel):
        anyio.run(main, backend="trio")
    assert len({answer.id for answer in answers}) == 500
    assert all(answer.result is not None and answer.result.ok for answer in answers)


@pytest.mark.skipif(sys.platform != "linux", reason="memory of another process is read from /proc")
def test_20_000_calls_on_one_connection_leave_nothing(server: Server) -> None:
    sizes = []
    with connect(server.address) as client:
        for _ in range(ROUNDS):
            calls = [
                client.tasks.Get.future(pb.GetRequest(task=reference(1 << 40)), timeout=HANG) for _ in range(CALLS)
            ]
            assert {call.code() for call in calls} == {Status.NOT_FOUND}
            sizes.append(resident(server))
    assert sizes[-1] - sizes[ROUNDS // 4] < GROWTH, sizes
