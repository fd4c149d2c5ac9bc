"""Taking in new tasks, one or a batch: the specification checks in the order of engine.md section 3.

1. A key that exists makes the submission a duplicate of the task that has it; nothing else is looked at.
2. The pool exists, `max_attempts` is at least 1.
3. The bounds (`overload.py`).

Invariant: a batch is all or nothing. Every check of every member comes before the first member is admitted; the
rejection names the index of the member that failed, in its message and in `cronoq-batch-index`. Members whose keys
exist already are duplicates and are not inserted; two members that define the same new key contradict each other.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.engine import lifecycle, overload, retry
from cronoq_sansio.engine.actions import Answer, BatchOutcome, Submitted
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.task import Task
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.spec import RetryPolicy, TaskSpec

if TYPE_CHECKING:
    from cronoq_sansio.engine.engine import Engine


def submit(engine, spec, request, *, may_wait=False):
    duplicate = _duplicate(engine, spec) if spec.key else None
    if duplicate is not None:
        return Answer(request, *duplicate)
    checked = _check(engine, spec, None)
    if type(checked) is Rejection:
        return Answer(request, checked, 0)
    return Answer(request, _admit(engine, spec, *checked), engine.number)


def submit_batch(engine: "Engine", specs: tuple[TaskSpec, ...]) -> tuple[BatchOutcome | Rejection, int]:
    """Take in all tasks or none; the outcome, and the newest step that it shows."""
    known: dict[int, tuple[Submitted, int]] = {}
    fresh: dict[int, tuple[Pool, RetryPolicy]] = {}
    defined: dict[str, int] = {}
    ahead = overload.Ahead()
    for index, spec in enumerate(specs):
        duplicate = _duplicate(engine, spec) if spec.key else None
        if duplicate is not None:
            known[index] = duplicate
            continue
        checked = _twice(spec, defined) or _check(engine, spec, ahead)
        if isinstance(checked, Rejection):
            return _of_member(checked, index), 0
        fresh[index] = checked
        if spec.key:
            defined[spec.key] = index
        ahead.count(spec)
    after = max([engine.number if fresh else 0, *(stored for _, stored in known.values())])
    members = [
        known[index][0] if index in known else _admit(engine, spec, *fresh[index]) for index, spec in enumerate(specs)
    ]
    return BatchOutcome(tuple(members)), after


def _duplicate(engine: "Engine", spec: TaskSpec) -> tuple[Submitted, int] | None:
    known = engine.tasks.by_key(spec.key, engine.now)
    if known is None:
        return None
    task_id = known.id if isinstance(known, Task) else known.task_id
    return Submitted(task_id, True), known.stored


def _twice(spec: TaskSpec, defined: dict[str, int]) -> Rejection | None:
    first = defined.get(spec.key) if spec.key else None
    if first is None:
        return None
    return Rejection(Code.DUPLICATE_KEY_IN_BATCH, f"key {spec.key!r} is defined by task[{first}] already")


def _check(engine: "Engine", spec: TaskSpec, ahead: overload.Ahead | None) -> Rejection | tuple[Pool, RetryPolicy]:
    """Why the task is not taken in; or its pool and its policy."""
    pool = engine.pools.get(spec.pool)
    if pool is None:
        return Rejection(Code.UNKNOWN_POOL, f"unknown pool {spec.pool!r}")
    policy = retry.resolve(spec.retry, pool.settings.retry)
    if policy.max_attempts < 1:
        return Rejection(Code.INVALID, "retry.max_attempts must be at least 1")
    return overload.refusal(spec, pool, engine.tasks, engine.limits, ahead) or (pool, policy)


def _admit(engine: "Engine", spec: TaskSpec, pool: Pool, policy: RetryPolicy) -> Submitted:
    task = Task(engine.tasks.issue(), spec, pool, policy, engine.now, engine.wall())
    lifecycle.admit(engine, task)
    return Submitted(task.id, False)


def _of_member(rejection: Rejection, index: int) -> Rejection:
    details = (*rejection.details, ("cronoq-batch-index", str(index)))
    return Rejection(rejection.code, f"task[{index}]: {rejection.message}", details)
