"""The Python API for programs that hand in tasks, and for workers; the same under Trio and asyncio.

async with Client("localhost:7070") as client:
    submitted = await client.submit({"to": "you"}, kind="email.send", wait=True)
    print(submitted.result.json())
"""

import logging

import cronoq_sansio.wire.pb as pb  # noqa: F401 - for users who look into specs made by `task`
from cronoq._client.client import Client
from cronoq._client.dependencies import Dep
from cronoq._client.dialing import PemPaths
from cronoq._client.results import (
    Event,
    PoolSnapshot,
    RecurringInfo,
    Result,
    Snapshot,
    Submitted,
    TaskInfo,
    TaskPage,
    Totals,
    WorkerGroup,
    WorkerInfo,
)
from cronoq._client.specs import RetryPolicy, task
from cronoq._client.watching import Watch
from cronoq._client.worker import Worker
from cronoq._client.worker_lease import Lease
from cronoq.errors import CancelTask, ClientError, Reject
from cronoq_sansio.limits import PROTOCOL_VERSION

__all__ = [
    "PROTOCOL_VERSION",
    "CancelTask",
    "Client",
    "ClientError",
    "Dep",
    "Event",
    "Lease",
    "PemPaths",
    "PoolSnapshot",
    "RecurringInfo",
    "Reject",
    "Result",
    "RetryPolicy",
    "Snapshot",
    "Submitted",
    "TaskInfo",
    "TaskPage",
    "Totals",
    "Watch",
    "Worker",
    "WorkerGroup",
    "WorkerInfo",
    "task",
]

log = logging.getLogger("cronoq.client")
