"""Random lives of schedules: whatever is replaced, removed, run, lost or crashes, no fire makes two tasks.

The only exception is one that its caller asks for: after its task has ended, a schedule that is put anew, or whose
times are changed, counts from the time of the clock, which may have gone back.
"""

from dataclasses import replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.records import RecurringFired, TaskInserted
from cronoq_sansio.engine.recurring import DROPS
from cronoq_sansio.settings import LimitSettings, Settings
from cronoq_sansio.spec import MissPolicy, Overlap
from tests.engine.harness import Rig, pool
from tests.engine.naive_store import NaiveStore
from tests.engine.schedules import MINUTE, at, schedule

BEFORE_A_FOLD = at("2027-10-31T00:58:00")
NAMES = st.sampled_from(["a", "b"])
SCHEDULES = st.builds(
    schedule,
    NAMES,
    st.sampled_from(["*/20 * * * * *", "* * * * *", "*/2 1-2 * * *", "30 59 * * * *"]),
    tz=st.sampled_from(["", "Europe/London"]),
    overlap=st.sampled_from(list(Overlap)),
    fold=st.sampled_from(["first", "last", "both"]),
    key=st.sampled_from(["", "k"]),
    pool=st.sampled_from(["default", "small"]),
    tolerance=st.sampled_from([0, SECOND, 90 * SECOND]),
    on_miss=st.sampled_from([int(policy) for policy in MissPolicy]),
    duration_hint=st.sampled_from([0, 10 * SECOND]),
)
POOLS = (
    pool(max=40, lease_ttl=100 * MINUTE, default_duration=SECOND),
    pool("small", max=2, max_pending=3, lease_ttl=100 * MINUTE, default_duration=30 * SECOND),
)


class Schedules(RuleBasedStateMachine):
    """An engine, what it has written, and the fires that became tasks."""

    def __init__(self):
        super().__init__()
        self.store = NaiveStore()
        self.rig = Rig(*POOLS, now=BEFORE_A_FOLD)
        self.listen()
        self.made: dict[tuple[str, int], int] = {}
        """The last task of each fire."""
        self.excused: dict[str, int] = {}
        """Of each name: tasks up to this id may have been made a second time, if they had ended."""
        self.rig.slots(3)
        self.rig.slots(1, name="small")

    def listen(self):
        take = self.rig.take

        def write_and_take(step):
            self.look(step.writes)
            self.store.write(step.writes)
            take(step)

        self.rig.take = write_and_take

    def look(self, writes):
        """Every task that is made is the first one of its fire; and how far a schedule has come never goes back."""
        for record in writes:
            if type(record) is TaskInserted:
                name, start = record.spec.tags[0][1], record.spec.scheduling.start
                before = self.made.get((name, start))
                if before is not None:
                    assert before <= self.excused.get(name, 0), f"{name} made {before} and {record.task_id} at {start}"
                    assert self.store.finished(before) is not None, f"{before} is still live"
                self.made[name, start] = record.task_id
            elif type(record) is RecurringFired and record.local >= 0:
                stored = self.store.fired.get(record.name)
                assert stored is None or stored.local < 0 or record.through >= stored.through

    def excuse(self, name):
        self.excused[name] = max(self.store.inserted, default=0)

    @rule(one=SCHEDULES)
    def put(self, one):
        known = self.store.schedules.get(one.name)
        times = (one.cron, one.tz, one.gap, one.fold)
        if known is None or times != (known.spec.cron, known.spec.tz, known.spec.gap, known.spec.fold):
            self.excuse(one.name)
        self.rig.handle(ev.RecurringPut(None, one))

    @rule(name=NAMES, overlap=st.sampled_from(list(Overlap)))
    def change(self, name, overlap):
        """The times stay, so nothing is counted anew."""
        known = self.store.schedules.get(name)
        if known is not None:
            self.rig.handle(ev.RecurringPut(None, replace(known.spec, overlap=int(overlap))))

    @rule(name=NAMES)
    def remove(self, name):
        self.rig.handle(ev.RecurringRemoved(None, name))

    @rule(name=NAMES)
    def put_again(self, name):
        known = self.store.schedules.get(name)
        if known is not None:
            self.excuse(name)
            self.rig.handle(ev.RecurringRemoved(None, name), ev.RecurringPut(None, known.spec))

    @rule(seconds=st.integers(0, 100))
    def wait(self, seconds):
        self.rig.advance(seconds * SECOND)

    @rule(seconds=st.integers(0, 600))
    def sleep(self, seconds):
        """No timer fires meanwhile."""
        self.rig.now += seconds * SECOND
        self.rig.handle(ev.TimerFired())

    @rule(seconds=st.integers(-200, 400))
    def step_clock(self, seconds):
        self.rig.handle(ev.WallClockMoved(self.rig.engine.wall_offset + seconds * SECOND))

    @rule(index=st.integers(0, 3), how=st.sampled_from(["complete", "fail", "cancel"]))
    def end(self, index, how):
        leases = sorted(self.rig.engine.leases.live)
        if leases:
            task = self.rig.engine.leases.live[leases[index % len(leases)]].task.id
            if how == "cancel":
                self.rig.handle(ev.TaskCancelled(None, task))
            else:
                getattr(self.rig, how)(task)

    @rule(most=st.sampled_from([1, 100]))
    def cancel(self, most):
        live = sorted(self.rig.engine.tasks.live)[:most]
        self.rig.handle(*(ev.TaskCancelled(None, task) for task in live))

    @rule(held=st.booleans())
    def hold(self, held):
        self.rig.handle(ev.DispatchHeld(held))

    @rule(seconds=st.integers(0, 300))
    def crash(self, seconds):
        offset = self.rig.engine.wall_offset
        views = [(view.spec, view.last_task) for view in self.rig.engine.list_recurring()]
        engine = self.store.recover(
            Settings(limits=LimitSettings(), pools=POOLS), self.rig.now + seconds * SECOND, wall_offset=offset
        )
        self.rig.adopt(engine)
        engine.check_invariants(None)
        assert [(view.spec, view.last_task) for view in engine.list_recurring()] == views
        self.rig.slots(3)
        self.rig.slots(1, name="small")

    @invariant()
    def what_is_said_agrees(self):
        engine = self.rig.engine
        snapshot = engine.snapshot(self.rig.now)
        assert snapshot.schedules == len(self.store.schedules) == len(engine.list_recurring())
        assert [reason for reason, _ in snapshot.occurrences_dropped] == sorted(DROPS)
        for view in engine.list_recurring():
            fired = self.store.fired.get(view.spec.name)
            assert view.last_task == (fired.last_task if fired is not None else 0)


Schedules.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSchedules = Schedules.TestCase
