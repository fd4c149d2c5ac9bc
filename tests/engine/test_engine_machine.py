"""Random life under the engine: invariants after every step, crashes at any time, any way to cut events in batches."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine import lifecycle
from cronoq_sansio.engine.actions import BatchOutcome, CancelOutcome, Dispatch, Submitted, TaskMoved
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import Condition, Priority, TaskStatus
from tests.engine.harness import Rig, attempts, dep, pool, spec
from tests.engine.naive_store import NaiveStore

LABELS = ((), (("gpu", "a100"),), (("gpu", "a100"), ("zone", "b")))
KEYS = ("", "", "k1", "k2", "k3")
POOLS = ("a", "b")

deps = st.lists(
    st.builds(dep, st.sampled_from([*KEYS[2:], "k4", *range(1, 9)]), st.sampled_from(list(Condition))), max_size=2
)
specs = st.builds(
    spec,
    st.sampled_from(KEYS),
    pool=st.sampled_from(POOLS),
    priority=st.sampled_from(list(Priority)),
    timeout=st.sampled_from([None, 3 * SECOND]),
    retry=st.sampled_from([None, attempts(1), attempts(2)]),
    deps=st.one_of(st.just([]), deps),
)


class Life(RuleBasedStateMachine):
    """Everything that callers, workers, clocks and crashes do."""

    def __init__(self) -> None:
        super().__init__()
        self.store = NaiveStore()
        self.watching = False
        self.rig = Rig(
            pool("a", lease_ttl=5 * SECOND, max_pending=12),
            pool("b", lease_ttl=9 * SECOND, await_unknown_dependencies=20 * SECOND),
            limits=LimitSettings(key_retention=30 * SECOND, key_retention_max=10, max_pending_total=15),
            release=False,
        )
        self.capacity: dict[tuple[str, ev.Labels], int] = {}
        self.acknowledged: set[int] = set()
        self.final: dict[int, int] = {}
        self.followed: dict[int, int] = {}
        """Last status that was told of each task, since somebody watches."""
        take = self.rig.take

        def write_and_take(step):
            self.store.write(step.writes)
            before = len(self.rig.answers)
            take(step)
            for outcome in self.rig.answers[before:]:
                members = outcome.members if type(outcome) is BatchOutcome else [outcome]
                for member in members:
                    if type(member) is Submitted and not member.duplicate:
                        self.acknowledged.add(member.task_id)
            self.follow_moves(step)

        self.rig.take = write_and_take

    def follow_moves(self, step):
        """Moves follow each other as the table of transitions allows, and are told only to somebody."""
        for action in step.once_durable:
            if type(action) is TaskMoved:
                assert self.rig.engine.watched
                before = self.followed.get(action.task_id)
                if before is not None:
                    assert action.status in lifecycle.MOVES[before], f"{before} -> {action}"
                self.followed[action.task_id] = action.status
                assert action.after <= step.number

    def some_lease(self, index: int, held: bool | None = None) -> int:
        leases = [lease for lease in self.rig.engine.leases.live.values() if held is None or lease.held == held]
        return leases[index % len(leases)].id if leases else 999_999

    @rule(items=st.lists(specs, min_size=1, max_size=4))
    def submit(self, items):
        self.rig.handle(*(ev.TaskSubmitted(None, item) for item in items))

    @rule(items=st.lists(specs, max_size=4))
    def submit_batch(self, items):
        before = self.rig.engine.totals.submitted
        self.rig.handle(ev.BatchSubmitted(None, tuple(items)))
        outcome = self.rig.answers[-1]
        admitted = self.rig.engine.totals.submitted - before
        if type(outcome) is BatchOutcome:
            assert len(outcome.members) == len(items)
            assert sum(not member.duplicate for member in outcome.members) == admitted
        else:
            assert not admitted and outcome.details[0][0] == "cronoq-batch-index"

    @rule(watching=st.booleans())
    def watch(self, watching):
        if watching != self.watching:
            self.followed.clear()
        self.watching = watching
        self.rig.handle(ev.TransitionsWatched(watching))

    @rule(after=st.integers(0, 40), limit=st.integers(1, 5), names=st.lists(st.sampled_from(POOLS), unique=True))
    def list(self, after, limit, names):
        tasks, looked = self.rig.engine.list_live(names, (), after, limit)
        live = sorted(id for id, task in self.rig.engine.tasks.live.items() if task.pool.name in names and id > after)
        assert [task.id for task in tasks] == live[:limit]
        assert looked or len(live) <= limit

    @rule(name=st.sampled_from(POOLS), labels=st.sampled_from(LABELS), capacity=st.integers(0, 4))
    def capacity_set(self, name, labels, capacity):
        self.rig.handle(ev.GroupCapacitySet(name, labels, capacity))

    @rule(index=st.integers(0, 9))
    def release(self, index):
        self.rig.handle(ev.LeasesReleased((self.some_lease(index, held=False),)))

    @rule()
    def release_all(self):
        self.rig.handle(ev.LeasesReleased(tuple(self.rig.engine.leases.live)))

    @rule(index=st.integers(0, 9), labels=st.sampled_from(LABELS), name=st.sampled_from(POOLS))
    def give_back(self, index, labels, name):
        self.rig.handle(ev.GroupCapacitySet(name, labels, 0), ev.DispatchReturned(self.some_lease(index, held=False)))

    @rule(
        index=st.integers(0, 9),
        report=st.sampled_from(
            [
                lambda lease: ev.AttemptSucceeded(lease, b"o", ""),
                lambda lease: ev.AttemptFailed(lease, "e", False, 0),
                lambda lease: ev.AttemptFailed(lease, "e", False, 7 * SECOND),
                lambda lease: ev.AttemptFailed(lease, "e", True, 0),
                lambda lease: ev.AttemptCancelled(lease),
                lambda lease: ev.AttemptNacked(lease, "n", LABELS),
                lambda lease: ev.AttemptNacked(lease, "n", ()),
                lambda lease: ev.LeaseRenewed(lease),
                lambda lease: ev.LeasesLost((lease,), "gone"),
            ]
        ),
    )
    def report(self, index, report):
        self.rig.handle(report(self.some_lease(index)))

    @rule(index=st.integers(0, 30))
    def cancel(self, index):
        live = sorted(self.rig.engine.tasks.live)
        task = live[index % len(live)] if live else 12_345
        self.rig.handle(ev.TaskCancelled(None, task))
        assert self.rig.answers[-1] == CancelOutcome(bool(live))

    @rule(nanoseconds=st.sampled_from([0, 1, SECOND // 2, SECOND, 4 * SECOND, 31 * SECOND]))
    def time_passes(self, nanoseconds):
        self.rig.advance(nanoseconds)

    @rule(held=st.booleans())
    def hold(self, held):
        self.rig.handle(ev.DispatchHeld(held))

    @rule(held=st.booleans())
    def hold_cascades(self, held):
        self.rig.handle(ev.CascadesHeld(held))

    @rule(offset=st.integers(-100 * SECOND, 100 * SECOND))
    def wall_clock_moves(self, offset):
        self.rig.handle(ev.WallClockMoved(offset))

    @rule(lateness=st.integers(SECOND // 2, 60 * SECOND))
    def process_stops(self, lateness):
        self.rig.now += lateness
        self.rig.handle(ev.Stalled(lateness))

    @rule(duration=st.integers(SECOND, 40 * SECOND))
    def commits_stall(self, duration):
        self.rig.handle(ev.CommitsStalled())
        self.rig.now += duration
        self.rig.handle(ev.TimerFired())
        self.rig.handle(ev.CommitsResumed(duration))

    @precondition(lambda self: self.store.inserted)
    @rule()
    def crash(self):
        offset = self.rig.engine.wall_offset
        first_lease = self.rig.engine.leases.next_id
        rig = self.rig
        rig.adopt(self.store.recover(rig.settings, rig.now, wall_offset=offset, first_lease_id=first_lease))
        rig.engine.check_invariants(None)
        self.watching = False
        self.followed.clear()

    @invariant()
    def nothing_acknowledged_is_lost(self):
        for task_id in self.acknowledged:
            assert task_id in self.store.inserted
            state = self.store.states.get(task_id)
            ended = state is not None and TaskStatus(state.status).terminal
            assert ended != (task_id in self.rig.engine.tasks.live), f"task {task_id} is neither live nor ended"

    @invariant()
    def ends_are_final(self):
        for task_id, state in self.store.states.items():
            if TaskStatus(state.status).terminal:
                assert self.final.setdefault(task_id, state.status) == state.status

    @invariant()
    def the_store_equals_memory(self):
        for task_id, task in self.rig.engine.tasks.live.items():
            state = self.store.states.get(task_id)
            stored = (TaskStatus.READY, 0, "") if state is None else (state.status, state.attempt, state.message)
            status = stored[0] if stored[0] in (TaskStatus.RETRYING, TaskStatus.BLOCKED) else task.status
            assert (status, task.attempt, task.message) == stored, "only ends of waiting are not stored"
            assert task.status in (status, TaskStatus.READY)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=40)


scripts = st.lists(
    st.one_of(
        st.builds(ev.TaskSubmitted, st.none(), specs),
        st.builds(ev.BatchSubmitted, st.none(), st.lists(specs, max_size=3).map(tuple)),
        st.builds(ev.TransitionsWatched, st.booleans()),
        st.builds(ev.GroupCapacitySet, st.sampled_from(POOLS), st.sampled_from(LABELS), st.integers(0, 3)),
        st.builds(ev.AttemptSucceeded, st.integers(101, 110), st.just(b""), st.just("")),
        st.builds(ev.AttemptFailed, st.integers(101, 110), st.just("e"), st.booleans(), st.just(0)),
        st.builds(ev.TaskCancelled, st.none(), st.integers(1, 10)),
        st.builds(ev.LeasesReleased, st.tuples(st.integers(101, 110))),
        st.just(ev.TimerFired()),
    ),
    min_size=2,
    max_size=30,
)


def play(script, cuts):
    """The script in batches that end at the cuts; the answers and a summary of the end."""
    rig = Rig(pool("a"), pool("b"), limits=LimitSettings(max_pending_total=8), release=False)
    position = 0
    dispatched: list[int] = []
    for end in [*sorted(cuts), len(script)]:
        step = rig.handle(*script[position:end])
        dispatched += [action.lease.task.id for action in step.once_durable if type(action) is Dispatch]
        position = end
    rig.handle()
    return rig, dispatched


@given(scripts, st.sets(st.integers(1, 29), max_size=6))
def test_the_same_batches_give_the_same_steps(script, cuts):
    one, first = play(script, cuts)
    two, second = play(script, cuts)
    assert first == second and one.answers == two.answers
    assert one.engine.statistics() == two.engine.statistics()


@given(scripts, st.sets(st.integers(1, 29), max_size=6))
def test_every_rule_holds_for_every_cut(script, cuts):
    """Invariants are checked inside; whatever the cut, every event is answered and nothing idles beside free slots."""
    cuts = {cut for cut in cuts if cut < len(script)}
    rig, _ = play(script, cuts)
    asked = sum(isinstance(event, ev.TaskSubmitted | ev.BatchSubmitted | ev.TaskCancelled) for event in script)
    assert len(rig.answers) == asked
    whole, _ = play(script, set())
    assert len(whole.answers) == asked
