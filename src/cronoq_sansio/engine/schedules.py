"""One recurring schedule: whether it can be armed, when it fires, and which fires it has missed (engine.md section 11).

Every fire up to `through` has been dealt with. A fire is *missed* when it is longer ago than the tolerance.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cronoq_sansio.clock import utc_text
from cronoq_sansio.engine import admission
from cronoq_sansio.engine.ahead import Entry
from cronoq_sansio.engine.cron import Cron, Fire, compile_cron
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.records import RecurringFired
from cronoq_sansio.engine.timers import Timer
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_COUNTED_FIRES, MAX_HOLD
from cronoq_sansio.spec import MissPolicy, RecurringSpec, Scheduling
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine

NOTHING = Scheduling()


class Schedule:
    """One schedule, armed or not."""

    __slots__ = (
        "added",
        "cron",
        "entry",
        "last_task",
        "local",
        "next",
        "pool",
        "spec",
        "through",
        "timer",
        "unarmed",
    )

    def __init__(self, spec: RecurringSpec, added: int, through: int, local: int, last_task: int) -> None:
        """Not armed yet. See `RecurringStored` and `RecurringFired`."""
        self.spec = spec
        self.added = added
        self.through = through
        self.local = local
        self.last_task = last_task
        self.cron: Cron | None = None
        self.pool: Pool | None = None
        self.next: Fire | None = None
        self.unarmed = "not armed yet"
        """Why it has no next fire; empty while it is armed."""
        self.entry: Entry[Schedule] | None = None
        """Set while it waits for its time."""
        self.timer: Timer[Schedule] | None = None
        """Set while it waits for the start of the occurrence that was made last."""

    def __repr__(self) -> str:
        return f"<Schedule {self.spec.name!r}>"

    def set_out(self, cron: Cron, pool: Pool) -> None:
        """Its next fire is the first one that has not been dealt with.

        The rules of the zone may be others than they were when the last one was: what was dealt with is then the time
        on its clock, so the later of the two counts.
        """
        after = self.through if self.local < 0 else max(self.through, cron.resolve(self.local))
        self.cron, self.pool, self.next, self.unarmed = cron, pool, cron.next(after), ""

    def fired(self) -> RecurringFired:
        """Its progress, as stored."""
        return RecurringFired(self.spec.name, self.through, self.local, self.last_task)

    def tolerance(self) -> int:
        """How late an occurrence may be."""
        return _asked(self.spec).tolerance

    def start_and_margin(self) -> tuple[int, int]:
        """The first moment at which its next occurrence may start, and how long before that it is made, at least."""
        assert self.next is not None
        tolerance = self.tolerance()
        return self.next.at - tolerance, min(tolerance, MAX_HOLD)

    def due(self) -> int:
        """When its next occurrence is made, as far as the start of that says; the lead of the pool may change it."""
        assert self.pool is not None
        start, margin = self.start_and_margin()
        return start - max(margin, self.pool.lead())

    def timing(self) -> tuple[str, str, str, str]:
        """What its fires depend on."""
        return self.spec.cron, self.spec.tz, self.spec.gap, self.spec.fold


@value
class Missed:
    """What is the case once the next fire of a schedule is missed."""

    latest: Fire
    """The latest fire that has come."""
    runs: bool
    """It still does; those before it do not."""
    first: int
    """Wall time of the first fire that is dropped; 0 when none is."""
    last: int
    """Of the last one."""
    count: int
    """How many are dropped; with `more` at least so many."""
    more: bool
    detail: str
    """For people."""


def check(engine: "Engine", spec: RecurringSpec, *, again: bool = False) -> Rejection | tuple[Cron, Pool]:
    """Whether its tasks could run. `again`: what is the case only now and then is no fault."""
    asked = spec.template.scheduling
    if asked is not None:
        for field, found, advice in (
            ("deadline_unix_ns", asked.deadline is not None, "occurrences start at different times; use deadline_in_s"),
            ("start_unix_ns", asked.start is not None, "the cron expression says when an occurrence starts"),
            ("start_in_s", asked.start_in is not None, "the cron expression says when an occurrence starts"),
            ("deps", bool(asked.dependencies), "the overlap policy says what an occurrence waits for"),
        ):
            if found:
                return Rejection(Code.INVALID, f"template.{field}: not allowed; {advice}")
    cron = compile_cron(spec.cron, spec.tz, spec.gap, spec.fold)
    if isinstance(cron, str):
        return Rejection(Code.INVALID, cron)
    fault = admission.template_fault(engine, spec.template)
    if fault is not None and not (again and fault.code is Code.OVERLOADED):
        return fault
    return cron, engine.pools[spec.template.pool]


def in_file(name: str) -> Rejection:
    """Why a caller may not change a configured schedule."""
    text = f"name: schedule {name!r} stands in the configuration file of the server, which alone may change it"
    return Rejection(Code.FAILED_PRECONDITION, text)


def pass_over(schedule: Schedule, wall: int, ahead: Callable[[int], int]) -> Missed:
    """The next fire is missed: look for the latest one that has come, and count those that are dropped.

    `ahead`: id of an occurrence with an earlier start that still has to run, 0 = none. It is late itself, and so the
    one that runs after a time without service.
    """
    first, cron, asked = schedule.next, schedule.cron, _asked(schedule.spec)
    assert first is not None and cron is not None
    latest = cron.latest(first.at - 1, wall)
    assert latest is not None
    runs = latest.at + asked.tolerance >= wall
    policy = MissPolicy(asked.on_miss)
    then = f"none of them runs, on_miss is {policy.name.lower()}"
    if not runs and policy is MissPolicy.RUN_LATE:
        earlier = ahead(latest.at)
        runs = not earlier
        then = f"none of them runs, task {earlier} of an earlier one still has to"
    if runs:
        then = f"the one at {utc_text(latest.at)} runs"
    end = latest.at - runs  # of those that are dropped
    count, last, more = 0, 0, False
    fire: Fire | None = first
    while fire is not None and fire.at <= end:
        if count == MAX_COUNTED_FIRES:
            before = cron.latest(last, end)
            last, more = last if before is None else before.at, True
            break
        count, last = count + 1, fire.at
        fire = cron.next(last)
    detail = f"nobody served at that time, or the clock was set forward; {then}"
    return Missed(latest, runs, first.at if count else 0, last, count, more, detail)


def _asked(spec: RecurringSpec) -> Scheduling:
    return spec.template.scheduling or NOTHING
