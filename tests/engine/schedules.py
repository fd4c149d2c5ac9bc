"""Recurring schedules for the tests, and what is asked of an engine that has some."""

from datetime import UTC, datetime
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import RecurringAdded
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.errors import Rejection
from cronoq_sansio.spec import Overlap, RecurringSpec
from tests.engine.harness import Rig, spec

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND


def at(text: str) -> int:
    """A wall time such as `2027-03-10T09:00:00`, in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NINE = at("2027-03-10T09:00:00")


def schedule(
    name: str = "s",
    cron: str = "0 10 * * *",
    *,
    tz: str = "",
    overlap: Overlap = Overlap.SKIP,
    gap: str = "shift",
    fold: str = "first",
    configured: bool = False,
    **template: Any,
) -> RecurringSpec:
    """Every day at ten unless `cron` says otherwise; `template` as for `spec`."""
    return RecurringSpec(name, cron, tz, spec(**template), int(overlap), gap, fold, configured)


def put(rig: Rig, *schedules: RecurringSpec) -> None:
    """Add or replace these, which must be taken."""
    for one in schedules:
        rig.handle(ev.RecurringPut(None, one))
        assert rig.answers[-1] == RecurringAdded(), rig.answers[-1]


def put_refused(rig: Rig, one: RecurringSpec) -> Rejection:
    """Add a schedule that must be refused without a trace."""
    before = {**rig.engine.statistics(), "step": 0}
    step = rig.handle(ev.RecurringPut(None, one))
    assert type(rig.answers[-1]) is Rejection, rig.answers[-1]
    assert not step.writes and {**rig.engine.statistics(), "step": 0} == before
    return rig.answers[-1]


def remove(rig: Rig, name: str = "s") -> Any:
    """The outcome of a removal."""
    rig.handle(ev.RecurringRemoved(None, name))
    return rig.answers[-1]


def view(rig: Rig, name: str = "s") -> RecurringView:
    """What is shown of a schedule."""
    return next(one for one in rig.engine.list_recurring() if one.spec.name == name)


def to(rig: Rig, moment: int) -> None:
    """Let time pass until that wall time."""
    rig.advance(moment - rig.engine.wall_offset - rig.now)


def live(rig: Rig, name: str = "s") -> list[tuple[int, int]]:
    """Start and id of each live occurrence, by start."""
    found = []
    for task in rig.engine.tasks.live.values():
        if ("cronoq.recurring", name) in task.spec.tags:
            assert task.spec.scheduling is not None and task.spec.scheduling.start is not None
            found.append((task.spec.scheduling.start, task.id))
    return sorted(found)


def drops(rig: Rig) -> list[tuple[str, int, int, int, bool]]:
    """Reason, first, last, count and more of what was dropped."""
    return [(drop.reason, drop.first, drop.last, drop.count, drop.more) for drop in rig.drops]
