"""An engine and the naive model under the same events, beside a store that lags behind and survives crashes.

After every step both must have said the same, in the same order, and look alike; the rows written so far must be what
the model says they are; whatever was acknowledged must be kept; no occurrence is made twice. The first difference
raises `Divergence`, whose message is a transcript: one line per event, then what was expected and what was found.

What is done to a world is a list of *deeds*, plain values. So a run can be written down, played again (`play`) and cut
down to what matters (`shrink.py`).
"""

from collections.abc import Iterable, Sequence

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import (
    Answer,
    EngineStep,
    OnceDurable,
    RecurringAdded,
    RecurringGone,
    TaskEnded,
)
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import (
    Record,
    RecurringDeleted,
    RecurringFired,
    RecurringStored,
    TaskInserted,
)
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.lockstep import checks, model_recovery, model_view
from cronoq_sansio.sim.lockstep.model import Model, Said
from cronoq_sansio.sim.lockstep.occurrences import Occurrences
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.sim.lockstep.transcript import deed_line
from cronoq_sansio.values import value

SHOWN = 60  #: deeds that a transcript shows
FULL_SCAN = 50  #: steps between two scans of every invariant
MAX_TIMERS = 1_000  #: wake-ups while time passes; more means that timers never come to rest


@value
class Happened:
    """These events reach the engine in one step."""

    events: tuple[ev.Event, ...]
    now: int


@value
class Committed:
    """The store has written everything up to now, and what waited for that is told."""


@value
class Crashed:
    """The process dies; what was not committed is lost. Another one takes over later."""

    now: int
    """When it takes over."""
    wall_offset: int
    settings: Settings
    """Those of the successor."""


GONE = RecurringGone(True)

Deed = Happened | Committed | Crashed


class Divergence(AssertionError):
    """Engine and model differ, or a promise was broken. The message is the transcript."""

    def __init__(self, what: str, transcript: str) -> None:
        super().__init__(f"{what}\n{transcript}")
        self.what = what
        """In one line, without ids and times."""


class World:
    """Engine, model and store."""

    def __init__(self, settings: Settings, *, now: int = 1_000_000 * SECOND, seed: int = 0) -> None:
        self.settings = self.first_settings = settings
        self.seed = self.first_seed = seed
        self.start = now
        self.now = now
        self.engine = Engine.fresh(settings, now=now, seed=seed)
        self.model = Model(settings, now=now, seed=seed)
        self.store = NaiveStore()
        self.deeds: list[Deed] = []
        self.lines: list[str] = []
        self.steps = 0
        self.uncommitted: list[Record] = []
        self.untold: list[OnceDurable] = []
        self.rows = NaiveStore()
        """What the store will say once everything is committed."""
        self.written: dict[int | str, int] = {}
        """Of each task and schedule, the last step of this term that wrote it."""
        self.latest_wall = now
        """The latest time that the wall clock of this term has shown."""
        self.promised: list[int] = []
        """Tasks that a caller knows of."""
        self.occurrences = Occurrences()
        self.asked: dict[object, str] = {}
        """Of each request about a schedule, its name."""
        self.ends: dict[int, int] = {}
        """Ends that somebody was told of."""

    def do(self, deed: Deed) -> list[Said]:
        """Do this, compare, and return what the engine said."""
        self.deeds.append(deed)
        self.lines.append(deed_line(deed, self.start))
        try:
            if isinstance(deed, Happened):
                return self._handle(deed)
            if isinstance(deed, Committed):
                self._commit()
                return []
            return self._crash(deed)
        except Divergence:
            raise
        except Exception as error:  # an invariant that is broken, or a plain fault
            raise self._divergence(f"the engine fails: {type(error).__name__}", [str(error)]) from error

    def handle(self, *events: ev.Event) -> list[Said]:
        """One step now."""
        return self.do(Happened(events, self.now))

    def wait(self, nanoseconds: int) -> None:
        """Let time pass, with every timer when it is due."""
        end = self.now + nanoseconds
        for _ in range(MAX_TIMERS):
            due = self.engine.next_timeout()
            if due is None or due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            self.handle(ev.TimerFired())
        raise self._divergence("timers never come to rest", [])

    def crash(self, down: int = 0, offset: int | None = None, settings: Settings | None = None) -> list[Said]:
        """Die now, and take over `down` nanoseconds later."""
        self.now += down
        wall_offset = self.model.wall_offset if offset is None else offset
        return self.do(Crashed(self.now, wall_offset, settings or self.settings))

    def play(self, deeds: Iterable[Deed]) -> None:
        """Do all this."""
        for deed in deeds:
            self.now = max(self.now, getattr(deed, "now", 0))
            self.do(deed)

    # --- a step

    def _handle(self, deed: Happened) -> list[Said]:
        self.asked |= {
            event.request: event.spec.name if isinstance(event, ev.RecurringPut) else event.name
            for event in deed.events
            if isinstance(event, (ev.RecurringPut, ev.RecurringRemoved))
        }
        offsets = [event.offset for event in deed.events if isinstance(event, ev.WallClockMoved)]
        latest = max(deed.now, self.model.now) + max([self.model.wall_offset, *offsets])  # it may go back in this step
        self.latest_wall = max(self.latest_wall, latest)
        expected = self.model.handle(deed.events, deed.now)
        step = self.engine.handle(deed.events, deed.now)
        found = self._take(step, expected)
        dispatched = not self.model.held and [type(event) for event in deed.events] != [ev.LeasesReleased]
        if dispatched and (idle := checks.idle(self.model)):
            raise self._divergence("a task waits although it could start", idle)
        fired = type(deed.events[-1]) is ev.TimerFired if deed.events else False
        due, expected_due = self.engine.next_timeout(), self.model.due()
        idle_again = expected_due is None or expected_due > self.engine.now
        if fired and idle_again and due is not None and due <= self.engine.now:
            raise self._divergence("a timer fired and is due again at once", [])
        return found

    def _take(self, step: EngineStep, expected: Sequence[Said]) -> list[Said]:
        found = checks.said_by(step)
        self.lines += [f"        {' '.join(map(str, said))}" for said in found]
        if not checks.agree(expected, found):
            raise self._divergence("the engine says something else than the model", _sides(expected, found))
        self._compare_views()
        self.steps += 1
        self.engine.check_invariants(step)
        if self.steps % FULL_SCAN == 0:
            self.engine.check_invariants(None)
            shown = model_view.snapshot(self.model), checks.snapshot_of(self.engine)
            self._compare("the engine shows something else than the model", *shown)
        if wrong := checks.too_early(step, self.latest_wall):
            raise self._divergence("something starts before its time", wrong)
        if wrong := checks.held_in_vain(self.engine):
            raise self._divergence("a slot is held that is not there", wrong)
        if wrong := self.occurrences.written(step.writes, self.rows):
            raise self._divergence("an occurrence was made twice", wrong)
        self.rows.write(step.writes)
        self.uncommitted += step.writes
        self.untold += step.once_durable
        if wrong := checks.stored_otherwise(self.model, self.rows):
            raise self._divergence("what is written is not what the model says", wrong)
        if wrong := self._too_early(step):
            raise self._divergence("something would be told before it is durable", wrong)
        return found

    def _compare_views(self) -> None:
        found = checks.view_of(self.engine, self.model)
        self._compare("the engine looks different from the model", self.model.view(), found)
        wakes, due = self.engine.next_timeout(), self.model.due()
        if due is not None and (wakes is None or wakes > max(due, self.engine.now)):
            raise self._divergence("the engine would sleep too long", [f"expected at most {due}", f"found {wakes}"])

    def _compare(self, what: str, expected: dict[str, object], found: dict[str, object]) -> None:
        wrong = [
            line
            for name in expected
            if expected[name] != found[name]
            for line in (f"{name}:", *_parts(expected[name], found[name]))
        ]
        if wrong:
            raise self._divergence(what, wrong)

    def _too_early(self, step: EngineStep) -> list[str]:
        """Whoever shows a task waits for the last step that wrote it; a new task or an end waits for this one."""
        fresh = {record.task_id for record in step.writes if isinstance(record, TaskInserted)}
        found = []
        for action in step.once_durable:
            shown: list[int | str] = [*checks.shown_by(action)]
            if isinstance(action, Answer) and isinstance(action.outcome, (RecurringAdded, RecurringGone)):
                shown = [self.asked[action.request]]
            for name in shown:
                changes = action.outcome if isinstance(action, Answer) else None
                new = name in fresh or isinstance(action, TaskEnded) or changes in (RecurringAdded(), GONE)
                newest = step.number if new else self.written.get(name, 0)
                if not newest <= action.after <= step.number:
                    found.append(f"{action} waits for step {action.after}, what it shows was written by {newest}")
        self.written.update((written_by(record), step.number) for record in step.writes)
        return found

    # --- durability

    def _commit(self) -> None:
        self.store.write(self.uncommitted)
        self.occurrences.committed(self.uncommitted)
        self.uncommitted.clear()
        for action in self.untold:
            if isinstance(action, TaskEnded):
                self._told_end(action.task.id, action.task.status)
            elif isinstance(action, Answer):
                self.promised += checks.shown_by(action)
                if isinstance(action.outcome, (RecurringAdded, RecurringGone)):
                    self.occurrences.told(self.asked[action.request], there=action.outcome == RecurringAdded())
        self.untold.clear()

    def _told_end(self, task_id: int, status: int) -> None:
        if self.ends.setdefault(task_id, status) != status:
            raise self._divergence("an end was not final", [f"task {task_id}: {self.ends[task_id]}, then {status}"])

    def _crash(self, deed: Crashed) -> list[Said]:
        self.uncommitted.clear()
        self.untold.clear()
        self.seed += 1
        self.settings = deed.settings
        old = self.model
        model = Model(
            deed.settings,
            now=deed.now,
            wall_offset=deed.wall_offset,
            seed=self.seed,
            first_task_id=self.engine.tasks.next_id + 100,
            first_lease_id=self.engine.leases.next_id + 100,
        )
        model.notes = old.notes
        oldest = deed.now + deed.wall_offset - deed.settings.limits.key_retention
        rows = self.store.rows(oldest)
        model_recovery.recover(model, rows)
        self.engine = Engine.recover(
            deed.settings,
            now=deed.now,
            wall_offset=deed.wall_offset,
            seed=self.seed,
            first_task_id=model.next_task,
            first_lease_id=model.next_lease,
        )
        self.model = model
        for start in range(0, len(rows), 3):
            self.engine.load(rows[start : start + 3])
        while self.engine.settle(deed.now):
            pass
        self.rows = self.store.copy()
        self.occurrences.crashed(self.rows)
        self.written.clear()
        self.latest_wall = deed.now + deed.wall_offset
        found = self._take(self.engine.begin(deed.now), model.said)
        self.engine.check_invariants(None)
        self._keep_promises()
        return found

    def _keep_promises(self) -> None:
        for task_id in self.promised:
            if task_id not in self.rows.inserted:
                raise self._divergence("an acknowledged task is lost", [f"task {task_id}"])
        for name in self.occurrences.promised:
            if name not in self.rows.schedules:
                raise self._divergence("an acknowledged schedule is lost", [f"schedule {name}"])
        for task_id, status in self.ends.items():
            row = self.rows.finished(task_id)
            if row is None or row.status != status:
                raise self._divergence("an end that was told is lost", [f"task {task_id} ended as {status}"])

    def _divergence(self, what: str, details: Sequence[str]) -> Divergence:
        cut = [f"… {len(self.lines) - SHOWN} lines before"] if len(self.lines) > SHOWN else []
        return Divergence(what, "\n".join([*cut, *self.lines[-SHOWN:], "", *details]))


def written_by(record: Record) -> int | str:
    """Which row it is of: the id of a task, or the name of a schedule."""
    if isinstance(record, RecurringStored):
        return record.spec.name
    return record.name if isinstance(record, (RecurringFired, RecurringDeleted)) else record.task_id


def _parts(expected: object, found: object) -> list[str]:
    """What differs; of mappings only the entries that do."""
    if isinstance(expected, dict) and isinstance(found, dict):
        differ = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        expected = {key: expected[key] for key in differ if key in expected}
        found = {key: found[key] for key in differ if key in found}
    return [f"  expected {expected}", f"  found    {found}"]


def _sides(expected: Sequence[Said], found: Sequence[Said]) -> list[str]:
    return [
        "expected:",
        *(f"  {' '.join(map(str, said))}" for said in expected),
        "found:",
        *(f"  {' '.join(map(str, said))}" for said in found),
    ]
