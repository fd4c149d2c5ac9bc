"""Recurring schedules of `cronoq.v1`: `AddRecurring`, `RemoveRecurring` and `ListRecurring` of `Admin`.

A template is a `TaskSpec` like any other, except that its occurrences have a start of their own: it names no time but
`deadline_in_s`, which counts from there, no dependencies, and a tolerance without a start. Its faults are named as
those of a Submit are, with `template.` in front. What a cron expression or a zone means is the engine's to say.
"""

from dataclasses import replace

from cronoq_sansio.checks import check_key_prefix, check_text, duration, invalid
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_CRON, MAX_SCHEDULE_NAME, MAX_TIME_ZONE
from cronoq_sansio.service.messages import Message
from cronoq_sansio.service.messages_recurring import (
    AddRecurring,
    ListRecurring,
    RecurringAddedReply,
    RecurringListReply,
    RecurringRemovedReply,
    RemoveRecurring,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import DEFAULT_TOLERANCE, MissPolicy, Overlap, RecurringSpec, Scheduling, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_counts import parse
from cronoq_sansio.wire.protobuf_spec import decode_spec

_FOREIGN_TIMES = ("deadline_unix_ns", "start_in_s", "start_unix_ns")
_LAST_OVERLAP = int(max(Overlap))


# --- requests


def decode_add_recurring(data: bytes, limits: LimitSettings) -> AddRecurring | Rejection:
    """`Admin.AddRecurring`. Without a template every occurrence is an empty task for the pool `default`."""
    message = parse(pb.RecurringRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    fault = (
        _check_name(message.name)
        or check_text("cron", message.cron, MAX_CRON)
        or check_text("tz", message.tz, MAX_TIME_ZONE)
    )
    if fault is not None:
        return fault
    overlap = message.overlap
    if not 0 <= overlap <= _LAST_OVERLAP:
        return invalid(f"overlap: {overlap} is not a number of the enumeration Overlap")
    template = _template(message.template, len(data), limits)
    if isinstance(template, Rejection):
        return _of_template(template)
    return AddRecurring(RecurringSpec(message.name, message.cron, message.tz, template, overlap or int(Overlap.SKIP)))


def decode_remove_recurring(data: bytes, limits: LimitSettings) -> RemoveRecurring | Rejection:
    """`Admin.RemoveRecurring`."""
    message = parse(pb.RemoveRecurringRequest, data, limits)
    if isinstance(message, Rejection):
        return message
    return _check_name(message.name) or RemoveRecurring(message.name)


def decode_list_recurring(data: bytes, limits: LimitSettings) -> ListRecurring | Rejection:
    """`Admin.ListRecurring`."""
    fault = parse(pb.Empty, data, limits)
    return fault if isinstance(fault, Rejection) else ListRecurring()


def _check_name(name: str) -> Rejection | None:
    return check_text("name", name, MAX_SCHEDULE_NAME) if name else invalid("name: must be set")


def _template(task: pb.TaskSpec, received: int, limits: LimitSettings) -> TaskSpec | Rejection:
    """The task of every occurrence. Takes `tolerance_s` out of `task`."""
    for field in _FOREIGN_TIMES:
        if task.HasField(field):
            return invalid(f"{field}: a template has no time of its own, each occurrence starts when `cron` says")
    if task.deps:
        return invalid("deps: a template has no dependencies; `overlap` says whether a run waits for the one before")
    fault = check_key_prefix("key", task.key, limits.max_key_len)
    if fault is not None:
        return fault
    tolerance = DEFAULT_TOLERANCE
    if task.HasField("tolerance_s"):
        parsed = duration("tolerance_s", task.tolerance_s)
        if isinstance(parsed, Rejection):
            return parsed
        tolerance = parsed
        task.ClearField("tolerance_s")
    spec = decode_spec(task, received, limits)
    on_miss = task.on_miss or int(MissPolicy.RUN_LATE)
    if isinstance(spec, Rejection) or (tolerance, on_miss) == (DEFAULT_TOLERANCE, MissPolicy.RUN_LATE):
        return spec
    return replace(spec, scheduling=replace(spec.scheduling or Scheduling(), tolerance=tolerance, on_miss=on_miss))


def _of_template(rejection: Rejection) -> Rejection:
    names_a_field = rejection.code is not Code.TOO_LARGE
    return Rejection(rejection.code, f"template{'.' if names_a_field else ': '}{rejection.message}")


# --- replies


def encode_recurring_added(reply: Message) -> bytes:
    """`Empty`."""
    assert isinstance(reply, RecurringAddedReply)
    return pb.Empty().SerializeToString()


def encode_recurring_removed(reply: Message) -> bytes:
    """`RemoveRecurringResponse`."""
    assert isinstance(reply, RecurringRemovedReply)
    return pb.RemoveRecurringResponse(removed=reply.removed).SerializeToString()


class _LastList:
    """The list that was encoded last. Calls that come together share theirs, and it may be long."""

    __slots__ = ("encoded", "reply")

    def __init__(self) -> None:
        self.reply: RecurringListReply | None = None
        self.encoded = b""

    def encode(self, reply: RecurringListReply) -> bytes:
        """The bytes of a reply, which is a value and never changes."""
        if reply is not self.reply:
            response = pb.ListRecurringResponse(schedules=[_info(view) for view in reply.schedules])
            self.reply, self.encoded = reply, response.SerializeToString()
        return self.encoded


_LAST_LIST = _LastList()


def encode_recurring_list(reply: Message) -> bytes:
    """`ListRecurringResponse`."""
    assert isinstance(reply, RecurringListReply)
    return _LAST_LIST.encode(reply)


def _info(view: RecurringView) -> pb.RecurringInfo:
    spec = view.spec
    return pb.RecurringInfo(
        name=spec.name,
        cron=spec.cron,
        tz=spec.tz,
        pool=spec.template.pool,
        kind=spec.template.kind,
        overlap=spec.overlap,  # type: ignore[arg-type]
        next_unix_ns=view.next,
        last_task_id=view.last_task or None,
    )
