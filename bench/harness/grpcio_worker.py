"""The yardstick of the worker: one with the same handlers and the same outcomes, written on grpcio's asyncio API.

It is written as lean as a worker can be that keeps the protocol: a task per lease, a timer of the event loop per lease
for its heartbeats, one queue that feeds the requests. Reconnecting, draining and redirects are left out; they cost
nothing while tasks run.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq.errors import CancelTask, Permanent, Reject, Retryable
from cronoq.worker import Lease

PROTOCOL_VERSION = 3
HEADROOM = 1024
"""Bytes that a message needs beside the output."""
PRIORITIES = {1: "critical", 2: "high", 3: "normal", 4: "low"}


class GrpcioWorker:
    """Serves one stream until it is told to stop."""

    def __init__(self, target: str, pool: str, handler: Callable[[Lease], Awaitable[object]], slots: int) -> None:
        self._target, self._pool, self._handler, self._slots = target, pool, handler, slots
        self._queue: asyncio.Queue[pb.WorkerMessage | None] = asyncio.Queue()
        self._held: dict[int, asyncio.Task[None]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._lease_ttl: float | None = None
        self._max_message = 0

    async def run(self, stop: Awaitable[object]) -> None:
        """Serve until `stop` is done; what was reported by then reaches the server."""
        async with grpc.aio.insecure_channel(self._target) as channel:
            work = channel.stream_stream(
                "/cronoq.v1.Workers/Work",
                request_serializer=pb.WorkerMessage.SerializeToString,
                response_deserializer=pb.ServerMessage.FromString,
            )
            stopping = asyncio.ensure_future(self._stop(stop))
            async for message in work(self._requests()):
                self._take(message)
            await stopping

    async def _stop(self, stop: Awaitable[object]) -> None:
        await stop
        while self._held:
            await asyncio.wait(self._held.values())
        self._queue.put_nowait(None)

    async def _requests(self) -> AsyncIterator[pb.WorkerMessage]:
        register = pb.Register(pool=self._pool, slots=self._slots, protocol_version=PROTOCOL_VERSION)
        yield pb.WorkerMessage(register=register)
        while (message := await self._queue.get()) is not None:
            yield message

    def _take(self, message: pb.ServerMessage) -> None:
        which = message.WhichOneof("msg")
        if which == "lease":
            self._lease(message.lease)
        elif which == "abort":
            task = self._held.pop(message.abort.lease, None)
            if task is not None:
                self._release(message.abort.lease)
                task.cancel()
        elif which == "registered":
            registered = message.registered
            self._lease_ttl = registered.lease_ttl_s if registered.HasField("lease_ttl_s") else None
            self._slots = registered.slots or self._slots
            self._max_message = registered.max_message_bytes

    def _lease(self, offer: pb.Lease) -> None:
        number = offer.lease
        if len(self._held) >= self._slots:
            self._queue.put_nowait(pb.WorkerMessage(nack=pb.Nack(lease=number, reason="worker has no free slot")))
            return
        ttl = offer.lease_ttl_s if offer.HasField("lease_ttl_s") else self._lease_ttl
        lease = Lease(
            number,
            offer.task_id,
            offer.attempt,
            offer.payload,
            offer.content_type,
            offer.kind,
            offer.key,
            dict(offer.tags),
            offer.timeout_s if offer.HasField("timeout_s") else None,
            offer.deadline_unix_ns / 1e9 if offer.HasField("deadline_unix_ns") else None,
            offer.pool or self._pool,
            PRIORITIES.get(offer.priority),
            ttl,
        )
        if ttl is not None:
            self._arm(number, max(ttl / 3, 0.01))
        self._held[number] = asyncio.create_task(self._handle(lease))

    def _arm(self, number: int, period: float) -> None:
        self._timers[number] = asyncio.get_running_loop().call_later(period, self._beat, number, period)

    def _beat(self, number: int, period: float) -> None:
        self._queue.put_nowait(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=number)))
        self._arm(number, period)

    def _release(self, number: int) -> None:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()

    async def _handle(self, lease: Lease) -> None:
        try:
            report = self._complete(lease.id, await self._handler(lease))
        except asyncio.CancelledError:
            lease.cancelled.set()
            raise
        except Exception as error:
            report = judge(lease.id, error)
        if self._held.pop(lease.id, None) is not None:
            self._release(lease.id)
            self._queue.put_nowait(report)

    def _complete(self, number: int, result: object) -> pb.WorkerMessage:
        try:
            output, content_type = encode(result)
        except (TypeError, ValueError) as error:
            raise Permanent(f"the handler returned what is not bytes, str or JSON: {error}") from None
        if self._max_message and len(output) + HEADROOM > self._max_message:
            raise Permanent("the output does not fit below the message limit")
        return pb.WorkerMessage(complete=pb.Complete(lease=number, output=output, content_type=content_type))


def encode(result: object) -> tuple[bytes, str]:
    """An output and its content type."""
    if result is None:
        return b"", ""
    if isinstance(result, bytes):
        return result, "application/octet-stream"
    if isinstance(result, str):
        return result.encode(), "text/plain; charset=utf-8"
    return json.dumps(result, allow_nan=False).encode(), "application/json"


def judge(number: int, error: Exception) -> pb.WorkerMessage:
    """The message that an exception of a handler stands for."""
    if isinstance(error, Reject):
        return pb.WorkerMessage(nack=pb.Nack(lease=number, reason=str(error)))
    if isinstance(error, CancelTask):
        return pb.WorkerMessage(cancelled=pb.Cancelled(lease=number))
    if isinstance(error, Permanent):
        return pb.WorkerMessage(fail=pb.Fail(lease=number, message=str(error), permanent=True))
    fail = pb.Fail(lease=number, message=f"{type(error).__name__}: {error}")
    if isinstance(error, Retryable) and error.retry_after is not None:
        fail.retry_after_s = error.retry_after
    return pb.WorkerMessage(fail=fail)
