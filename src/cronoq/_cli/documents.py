"""The JSON form of what calls return (server.md sections 2 and 12).

Ids and nanoseconds are decimal strings, because many readers of JSON keep 53 bits of a number; what is not known is
left out.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronoq.client import Event, PoolSnapshot, RecurringInfo, Result, Snapshot, Submitted, TaskInfo, WorkerInfo

Document = dict[str, Any]


def info_document(info: "TaskInfo") -> Document:
    """One task, without its output."""
    made: Document = {
        "id": str(info.id),
        "status": info.status,
        "pool": info.pool,
        "attempt": info.attempt,
        "output_available": info.output_available,
    }
    for name in ("key", "kind", "tenant", "message", "priority", "max_attempts"):
        if getattr(info, name):
            made[name] = getattr(info, name)
    for name in ("created", "started", "finished"):
        nanoseconds = getattr(info, f"{name}_at_ns")
        if nanoseconds is not None:
            made[f"{name}_unix_ns"] = str(nanoseconds)
    return with_shards(made, info.unavailable_shards)


def result_document(result: "Result") -> Document:
    """How a task ended: with `output` when it is JSON, else `output_text` when it is text, else `output_b64`."""
    made: Document = {"id": str(result.id), "status": result.status, "output_available": result.output_available}
    if result.message:
        made["message"] = result.message
    if result.output is not None:
        made.update(_output(result.output))
    return with_shards(made, result.unavailable_shards)


def _output(output: bytes) -> Document:
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return {"output_b64": base64.b64encode(output).decode("ascii")}
    try:
        return {"output": json.loads(text, parse_constant=_not_json)}
    except (ValueError, RecursionError):
        return {"output_text": text}


def _not_json(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def submitted_document(submitted: "Submitted", result: "Result | None" = None) -> Document:
    """What became of a submission; with the result if it was waited for."""
    made: Document = {"id": str(submitted.id), "duplicate": submitted.duplicate}
    if result is not None:
        made["result"] = result_document(result)
    return made


def event_document(event: "Event") -> Document:
    """One change of a status."""
    return {
        "id": str(event.id),
        "pool": event.pool,
        "key": event.key,
        "status": event.status,
        "attempt": event.attempt,
        "at_unix_ns": str(event.at_ns),
        "message": event.message,
    }


def worker_document(worker: "WorkerInfo") -> Document:
    """One connected worker."""
    return {
        "id": str(worker.id),
        "name": worker.name,
        "pool": worker.pool,
        "labels": dict(worker.labels),
        "slots": worker.slots,
        "busy": worker.busy,
        "connected_unix_ns": str(worker.connected_at_ns),
    }


def recurring_document(schedule: "RecurringInfo") -> Document:
    """One schedule. Without `tz` its times are UTC, without `next_unix_ns` nothing follows."""
    made: Document = {name: getattr(schedule, name) for name in ("name", "cron", "pool", "kind", "overlap")}
    if schedule.tz:
        made["tz"] = schedule.tz
    if schedule.next_at_ns is not None:
        made["next_unix_ns"] = str(schedule.next_at_ns)
    if schedule.last_task_id is not None:
        made["last_task_id"] = str(schedule.last_task_id)
    return made


def snapshot_document(snapshot: "Snapshot") -> Document:
    """All figures. The names are those of the contract."""
    return {
        "pools": [_pool(pool) for pool in snapshot.pools],
        "live_tasks": snapshot.live_tasks,
        "running": snapshot.running,
        "pending": snapshot.pending,
        "workers_connected": snapshot.workers_connected,
        "unavailable_shards": list(snapshot.unavailable_shards),
        "totals": {field.name: getattr(snapshot.totals, field.name) for field in fields(snapshot.totals)},
    }


def _pool(pool: "PoolSnapshot") -> Document:
    made: Document = {}
    for field in fields(pool):
        value = getattr(pool, field.name)
        if field.name == "groups":
            value = [{"labels": dict(one.labels), "capacity": one.capacity, "busy": one.busy} for one in value]
        elif field.name == "pending_by_class":
            value = list(value)
        name = f"{field.name}_s" if field.name.startswith("wait_") else field.name
        made[name] = value
    made["pending"] = pool.pending
    return made


def with_shards(made: Document, unavailable: Iterable[str]) -> Document:
    """The shards that did not answer, when there are any."""
    if names := list(unavailable):
        made["unavailable_shards"] = names
    return made
