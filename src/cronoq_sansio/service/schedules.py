"""`AddRecurring`, `RemoveRecurring` and `ListRecurring`: what callers ask of the engine's schedules.

Both changes are answered by the engine and told once they are durable. A listing shows what every call before it made
and waits until that is durable too, so that no crash takes back what somebody was shown.

Whatever is wrong with a schedule that is being added is INVALID_ARGUMENT, also what a Submit would call unknown
(server.md section 3): the caller named no task or pool to be looked up, it described tasks that can never run.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cronoq_sansio.engine.actions import Answer, RecurringAdded, RecurringGone
from cronoq_sansio.engine.events import RecurringPut, RecurringRemoved
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.service.messages import Call, Request
from cronoq_sansio.service.messages_recurring import (
    AddRecurring,
    RecurringAddedReply,
    RecurringListReply,
    RecurringRemovedReply,
    RemoveRecurring,
)
from cronoq_sansio.service.turn import Turn
from cronoq_sansio.service.waits import LISTED
from cronoq_sansio.settings import Settings

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

ENTRY_BYTES = 64  #: what an entry of the list takes beside its texts, at most: tags, lengths, numbers
FAULTS_OF_A_TEMPLATE = (Code.UNKNOWN_POOL, Code.UNKNOWN_RESOURCE, Code.RESOURCE_EXCEEDS_CAPACITY)


class ScheduleCall:
    """What the call of this kind waits for: its engine's answer, or the store."""

    __slots__ = ("adds",)

    UNSTORED = (
        "the time ran out before the change of the schedule was stored and its outcome is unknown: call again, "
        "a second time does no harm"
    )

    def __init__(self, *, adds: bool) -> None:
        self.adds = adds


class Schedules:
    """The calls about recurring schedules."""

    def __init__(self, engine: "Engine", settings: Settings, turn: Turn, drive: Callable[[], None]) -> None:
        self._engine = engine
        self._turn = turn
        self._drive = drive
        self._max_bytes = settings.limits.max_message_bytes - MESSAGE_HEADROOM
        self._listed: tuple[int, int, RecurringListReply | Rejection] = (0, 0, RecurringListReply(()))
        """Step of the engine and time of the last list, and that: calls that come together share it."""

    def add(self, call: Call, request: Request) -> None:
        """`AddRecurring`."""
        assert type(request) is AddRecurring
        call.wait = ScheduleCall(adds=True)
        self._turn.events.append(RecurringPut(call, request.spec))

    def remove(self, call: Call, request: Request) -> None:
        """`RemoveRecurring`."""
        assert type(request) is RemoveRecurring
        call.wait = ScheduleCall(adds=False)
        self._turn.events.append(RecurringRemoved(call, request.name))

    def answered(self, call: Call, asked: ScheduleCall, answer: Answer) -> None:
        """The engine answered one of the two."""
        outcome = answer.outcome
        if type(outcome) is RecurringAdded:
            self._turn.reply(call, RecurringAddedReply(), answer.after)
        elif type(outcome) is RecurringGone:
            self._turn.reply(call, RecurringRemovedReply(outcome.removed), answer.after)
        else:
            assert type(outcome) is Rejection
            if asked.adds and outcome.code in FAULTS_OF_A_TEMPLATE:
                outcome = Rejection(Code.INVALID, outcome.message, outcome.details)
            self._turn.reject(call, outcome, answer.after)

    def list(self, call: Call, _request: Request) -> None:
        """`ListRecurring`: all of them, for they are few; refused when they do not fit one message."""
        self._drive()
        number, now, listed = self._listed
        if (number, now) != (self._engine.number, self._turn.now):
            listed = self._list()
            self._listed = self._engine.number, self._turn.now, listed
        if isinstance(listed, Rejection):
            self._turn.reject(call, listed)
        else:
            call.wait = LISTED
            self._turn.reply(call, listed, self._engine.written)

    def _list(self) -> RecurringListReply | Rejection:
        schedules = tuple(self._engine.list_recurring())
        size = sum(map(_size, schedules))
        if size <= self._max_bytes:
            return RecurringListReply(schedules)
        text = f"{len(schedules)} schedules take about {size} bytes, a message at most {self._max_bytes}"
        return Rejection(Code.TOO_LARGE, f"{text} (limits.max_message_bytes)")


def _size(view: RecurringView) -> int:
    spec = view.spec
    texts = (spec.name, spec.cron, spec.tz, spec.template.pool, spec.template.kind)
    return ENTRY_BYTES + sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
