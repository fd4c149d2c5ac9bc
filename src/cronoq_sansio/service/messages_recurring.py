"""The words of the service for recurring schedules; `messages.py` has all the others."""

from cronoq_sansio.engine.actions import OccurrenceDropped
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.spec import RecurringSpec
from cronoq_sansio.values import value

# --- requests


@value
class AddRecurring:
    """`Admin.AddRecurring`: add a schedule, or replace the one of its name."""

    spec: RecurringSpec


@value
class RemoveRecurring:
    """`Admin.RemoveRecurring`: the tasks that the schedule made stay."""

    name: str


@value
class ListRecurring:
    """`Admin.ListRecurring`."""


RecurringRequest = AddRecurring | RemoveRecurring | ListRecurring

# --- replies


@value
class RecurringAddedReply:
    """Answer to `AddRecurring`: it is stored."""


@value
class RecurringRemovedReply:
    """Answer to `RemoveRecurring`; False = there was none of that name."""

    removed: bool


@value
class RecurringListReply:
    """Answer to `ListRecurring`, by name."""

    schedules: tuple[RecurringView, ...]


RecurringReply = RecurringAddedReply | RecurringRemovedReply | RecurringListReply

# --- actions


@value
class LogDrop:
    """Log that fires of a schedule did not happen. At once: it promises nothing to anybody."""

    drop: OccurrenceDropped
    after: int = 0
