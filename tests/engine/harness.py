"""An engine with everything around it that a test does not want to spell out: time, releases, and checks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import (
    Abort,
    Answer,
    BatchOutcome,
    Dispatch,
    EngineStep,
    OccurrenceDropped,
    Submitted,
    TaskEnded,
    TaskMoved,
)
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.task import Lease
from cronoq_sansio.errors import Rejection
from cronoq_sansio.settings import LimitSettings, PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import (
    DEFAULT_TOLERANCE,
    Condition,
    Dependency,
    MissPolicy,
    Priority,
    RetryOverride,
    RetryPolicy,
    Scheduling,
    TaskSpec,
    TaskStatus,
)

START = 1_000_000 * SECOND

#: No jitter, so that a test knows when a retry is due: 1 s, 2 s, 4 s …
STEADY = RetryPolicy(3, 1 * SECOND, 2.0, 60 * SECOND, False)


def spec(
    key: str = "",
    *,
    pool: str = "default",
    priority: int = Priority.NORMAL,
    timeout: int | None = None,
    retry: RetryOverride | None = None,
    size: int = 10,
    kind: str = "kind",
    deadline: int | None = None,
    deadline_in: int | None = None,
    duration_hint: int | None = None,
    deps: Iterable[int | str | Dependency] = (),
    resources: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    tenant: str = "",
    start: int | None = None,
    start_in: int | None = None,
    tolerance: int = DEFAULT_TOLERANCE,
    on_miss: MissPolicy = MissPolicy.RUN_LATE,
) -> TaskSpec:
    """A task for the tests. `deps` that are ids or keys ask for success; see `dep` for the others."""
    scheduling = Scheduling(
        deadline,
        deadline_in,
        duration_hint,
        tuple(item if isinstance(item, Dependency) else dep(item) for item in deps),
        tuple(sorted((resources or {}).items())),
        tuple(sorted((labels or {}).items())),
        tenant,
        start,
        start_in,
        tolerance,
        int(on_miss),
    )
    plain = scheduling == Scheduling()
    return TaskSpec(
        b"payload", "text/plain", kind, pool, priority, key, timeout, retry, (), size, None if plain else scheduling
    )


def dep(ref: int | str, condition: Condition = Condition.ON_SUCCESS) -> Dependency:
    """A dependency on a task by id or key."""
    return Dependency(ref, int(condition))


def attempts(number: int) -> RetryOverride:
    """As many attempts as `number`, the pool's backoff."""
    return RetryOverride(number, None, None, None, None)


def pool(name: str = "default", **changes: Any) -> PoolSettings:
    """A pool whose backoff has no jitter."""
    return PoolSettings(**{"name": name, "retry": STEADY, **changes})


class Rig:
    """Drives an engine; after every step all invariants are checked. Dispatched leases are released at once."""

    def __init__(
        self,
        *pools: PoolSettings,
        limits: LimitSettings | None = None,
        resources: tuple[ResourceSettings, ...] = (),
        release: bool = True,
        seed: int = 0,
        now: int = START,
    ) -> None:
        settings = Settings(limits=limits or LimitSettings(), pools=pools or (pool(),), resources=resources)
        self.settings = settings
        self.adopt(Engine.fresh(settings, now=now, seed=seed, first_task_id=1, first_lease_id=101))
        self.release = release

    def adopt(self, engine: Engine) -> None:
        """Drive this engine from now on."""
        self.engine = engine
        self.now = engine.now
        self.leases: list[Lease] = []
        self.ended: dict[int, TaskEnded] = {}
        self.aborts: list[Abort] = []
        self.drops: list[OccurrenceDropped] = []
        self.moves: list[TaskMoved] = []
        self.answers: list[Any] = []

    def handle(self, *events: ev.Event) -> EngineStep:
        """One step, checked."""
        step = self.engine.handle(events, self.now)
        self.engine.check_invariants(step)
        self.engine.check_invariants(None)
        self.take(step)
        return step

    def take(self, step: EngineStep) -> None:
        """Sort the actions of a step."""
        for told in step.at_once:
            if type(told) is Abort:
                self.aborts.append(told)
            else:
                assert type(told) is OccurrenceDropped
                self.drops.append(told)
        fresh = []
        for action in step.once_durable:
            if type(action) is Dispatch:
                fresh.append(action.lease)
            elif type(action) is TaskEnded:
                self.ended[action.task.id] = action
            elif type(action) is TaskMoved:
                self.moves.append(action)
            else:
                assert type(action) is Answer
                self.answers.append(action.outcome)
        self.leases += fresh
        if fresh and self.release:
            self.handle(ev.LeasesReleased(tuple(lease.id for lease in fresh)))

    def submit(self, *specs: TaskSpec) -> list[int]:
        """Submit in one step; the ids."""
        before = len(self.answers)
        self.handle(*(ev.TaskSubmitted(None, item) for item in specs))
        outcomes = self.answers[before:]
        assert all(type(outcome) is Submitted for outcome in outcomes), outcomes
        return [outcome.task_id for outcome in outcomes]

    def refused(self, item: TaskSpec) -> Rejection:
        """Submit one task that must be refused."""
        self.handle(ev.TaskSubmitted(None, item))
        assert type(self.answers[-1]) is Rejection, self.answers[-1]
        return self.answers[-1]

    def batch(self, *specs: TaskSpec) -> list[int]:
        """Submit a batch that must be taken; the ids of its members."""
        self.handle(ev.BatchSubmitted(None, specs))
        outcome = self.answers[-1]
        assert type(outcome) is BatchOutcome, outcome
        return [member.task_id for member in outcome.members]

    def batch_refused(self, *specs: TaskSpec) -> Rejection:
        """Submit a batch that must be refused, and is refused without a trace."""
        before = {**self.engine.statistics(), "step": 0, "next": self.engine.tasks.next_id}
        step = self.handle(ev.BatchSubmitted(None, specs))
        assert type(self.answers[-1]) is Rejection, self.answers[-1]
        assert not step.writes and len(step.once_durable) == 1
        assert {**self.engine.statistics(), "step": 0, "next": self.engine.tasks.next_id} == before
        return self.answers[-1]

    def slots(self, capacity: int, labels: ev.Labels = (), name: str = "default") -> None:
        """Offer slots."""
        self.handle(ev.GroupCapacitySet(name, labels, capacity))

    def advance(self, nanoseconds: int) -> None:
        """Let time pass, firing every timer when it is due."""
        end = self.now + nanoseconds
        for _ in range(10_000):
            due = self.engine.next_timeout()
            if due is None or due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            self.handle(ev.TimerFired())
        raise AssertionError("timers never come to rest")

    def lease(self, task_id: int) -> Lease:
        """The live lease of a task."""
        lease = self.engine.tasks.live[task_id].lease
        assert lease is not None
        return lease

    def status(self, task_id: int) -> str:
        """Name of a task's status, live or finished."""
        known = self.engine.find(task_id)
        assert known is not None
        return TaskStatus(known.status).name

    def order(self) -> list[int]:
        """Ids of the tasks in the order of their dispatch."""
        return [lease.task.id for lease in self.leases]

    def complete(self, task_id: int, output: bytes = b"out") -> None:
        """The worker finished."""
        self.handle(ev.AttemptSucceeded(self.lease(task_id).id, output, ""))

    def fail(self, task_id: int, *, permanent: bool = False, retry_after: int = 0, message: str = "boom") -> None:
        """The worker failed."""
        self.handle(ev.AttemptFailed(self.lease(task_id).id, message, permanent, retry_after))


def total(rig: Rig, name: str) -> int:
    """One count of the totals."""
    return rig.engine.snapshot(rig.now).totals[name]


def writes_of(steps: Sequence[EngineStep]) -> list[Any]:
    """Every record, in order."""
    return [record for step in steps for record in step.writes]
