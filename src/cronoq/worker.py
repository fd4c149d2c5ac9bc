"""Programs that run tasks; the same under Trio and asyncio.

async def handle(lease: Lease) -> str:
    return lease.text().upper()

async with Worker("localhost:7070", "default", handle, slots=10):
    await sleep_forever()
"""

from cronoq._client.worker import Worker
from cronoq._client.worker_handlers import current_lease
from cronoq._client.worker_lease import CancelSignal, Lease
from cronoq.errors import CancelTask, ClientError, Permanent, Reject, Retryable

__all__ = [
    "CancelSignal",
    "CancelTask",
    "ClientError",
    "Lease",
    "Permanent",
    "Reject",
    "Retryable",
    "Worker",
    "current_lease",
]
