"""`TaskSpec` of `cronoq.v1` -> the specification of a task, checked.

One pass. Most tasks ask for nothing beyond pool and class: that is found out once, and nothing is built for them
(`TaskSpec.scheduling` is None). A fault is a `Rejection` that names the field, down to the entry (`deps[3].target`,
`resources['gpu']`), and says what is allowed. What only the engine knows (whether a pool, a resource or a parent
exists, how many units there are) is not asked here.

Invariant: a field of the contract is read or refused, never ignored.
"""

from collections.abc import Sequence

from cronoq_sansio.checks import (
    check_key,
    check_labels,
    check_resources,
    check_tags,
    check_text,
    duration,
    invalid,
    unix_time,
)
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import (
    MAX_CONTENT_TYPE,
    MAX_MULTIPLIER,
    MAX_POOL_NAME,
    MESSAGE_HEADROOM,
)
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import (
    DEFAULT_KIND,
    DEFAULT_POOL,
    DEFAULT_TOLERANCE,
    Condition,
    Dependency,
    MissPolicy,
    Priority,
    RetryOverride,
    Scheduling,
    TaskSpec,
)
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import too_large

_NORMAL = Priority.NORMAL.value
_ON_SUCCESS = int(Condition.ON_SUCCESS)
_LAST_CONDITION = int(max(Condition))
_RUN_LATE = int(MissPolicy.RUN_LATE)
_LAST_POLICY = int(max(MissPolicy))


def decode_spec(task: pb.TaskSpec, received: int, limits: LimitSettings) -> TaskSpec | Rejection:
    """A `TaskSpec`, checked. `received` is an upper bound of its encoded size, known without encoding it again."""
    size, largest = received, limits.max_message_bytes - MESSAGE_HEADROOM
    if size > largest:
        size = task.ByteSize()
        if size > largest:
            return too_large(size, largest)
    tags = task.tags
    pairs = tuple(sorted(tags.items())) if tags else ()
    content_type, kind, pool, key = task.content_type, task.kind, task.pool, task.key
    fault = (
        check_text("content_type", content_type, MAX_CONTENT_TYPE)
        or check_text("kind", kind, limits.max_kind_len)
        or check_text("pool", pool, MAX_POOL_NAME)
        or check_key("key", key, limits.max_key_len)
        or (check_tags(pairs, limits) if pairs else None)
    )
    if fault is not None:
        return fault
    priority = task.priority
    if not 0 <= priority <= 4:
        return invalid(f"priority: {priority} is not a number of the enumeration Priority")
    on_miss = task.on_miss  # means nothing without a start, and asks for nothing then
    if not 0 <= on_miss <= _LAST_POLICY:
        return invalid(f"on_miss: {on_miss} is not a number of the enumeration MissPolicy")
    timeout = duration("timeout_s", task.timeout_s) if task.HasField("timeout_s") else None
    if type(timeout) is Rejection:
        return timeout
    retry = _retry(task.retry) if task.HasField("retry") else None
    if type(retry) is Rejection:
        return retry
    scheduling = None
    if (
        task.tenant
        or task.labels
        or task.resources
        or task.deps
        or task.HasField("deadline_in_s")
        or task.HasField("deadline_unix_ns")
        or task.HasField("duration_hint_s")
        or task.HasField("start_in_s")
        or task.HasField("start_unix_ns")
        or task.HasField("tolerance_s")
    ):
        scheduling = _scheduling(task, limits)
        if type(scheduling) is Rejection:
            return scheduling
    return TaskSpec(
        task.payload,
        content_type,
        kind or DEFAULT_KIND,
        pool or DEFAULT_POOL,
        priority - 1 if priority else _NORMAL,
        key,
        timeout,  # type: ignore[arg-type]
        retry,  # type: ignore[arg-type]
        pairs,
        size,
        scheduling,  # type: ignore[arg-type]
    )


def _retry(retry: pb.RetryPolicy) -> RetryOverride | Rejection:
    """A number that is 0 is unset; `jitter` counts as sent (server.md, "Decided")."""
    multiplier = retry.multiplier
    if not 0 <= multiplier <= MAX_MULTIPLIER:
        return invalid(f"retry.multiplier: {multiplier} is not a number from 0 to {MAX_MULTIPLIER:.0f}")
    initial = duration("retry.initial_backoff_s", retry.initial_backoff_s)
    if isinstance(initial, Rejection):
        return initial
    longest = duration("retry.max_backoff_s", retry.max_backoff_s)
    if isinstance(longest, Rejection):
        return longest
    return RetryOverride(
        retry.max_attempts or None,
        initial if retry.initial_backoff_s else None,
        max(multiplier, 1.0) if multiplier else None,
        longest if retry.max_backoff_s else None,
        retry.jitter,
    )


def _scheduling(task: pb.TaskSpec, limits: LimitSettings) -> Scheduling | Rejection:
    """What a task asks of the scheduler beyond pool and class."""
    deadline_in, deadline, fault = _relative_or_absolute(
        "deadline_in_s",
        task.deadline_in_s if task.HasField("deadline_in_s") else None,
        "deadline_unix_ns",
        task.deadline_unix_ns if task.HasField("deadline_unix_ns") else None,
    )
    if fault is not None:
        return fault
    hint = duration("duration_hint_s", task.duration_hint_s) if task.HasField("duration_hint_s") else None
    if isinstance(hint, Rejection):
        return hint
    start_in, start, fault = _relative_or_absolute(
        "start_in_s",
        task.start_in_s if task.HasField("start_in_s") else None,
        "start_unix_ns",
        task.start_unix_ns if task.HasField("start_unix_ns") else None,
    )
    if fault is not None:
        return fault
    tolerance, on_miss = DEFAULT_TOLERANCE, _RUN_LATE
    if start_in is not None or start is not None:
        on_miss = task.on_miss or _RUN_LATE
    elif task.HasField("tolerance_s"):
        return invalid("tolerance_s: is set without a fixed start; set start_in_s or start_unix_ns too")
    if task.HasField("tolerance_s"):
        parsed = duration("tolerance_s", task.tolerance_s)
        if isinstance(parsed, Rejection):
            return parsed
        tolerance = parsed
    dependencies = _dependencies(task.deps, limits)
    if isinstance(dependencies, Rejection):
        return dependencies
    resources = tuple(sorted(task.resources.items()))
    labels = tuple(sorted(task.labels.items()))
    fault = (
        (check_resources(resources, limits) if resources else None)
        or check_labels(labels, limits)
        or check_text("tenant", task.tenant, limits.max_key_len)
    )
    return fault or Scheduling(
        deadline, deadline_in, hint, dependencies, resources, labels, task.tenant, start, start_in, tolerance, on_miss
    )


def _relative_or_absolute(
    relative: str, after: float | None, absolute: str, at: int | None
) -> tuple[int | None, int | None, Rejection | None]:
    """A time in its two forms, by name and value, of which one may be set: nanoseconds from now, and since 1970.

    What is stored is their sum with the arrival: 100 years from now fit 63 bits until the year 2162.
    """
    if after is not None and at is not None:
        return None, None, invalid(f"{relative} and {absolute}: both are set, at most one of them is allowed")
    parsed = None if after is None else duration(relative, after)
    if isinstance(parsed, Rejection):
        return None, None, parsed
    moment = None if at is None else unix_time(absolute, at)
    if isinstance(moment, Rejection):
        return None, None, moment
    return parsed, moment, None


def _dependencies(deps: Sequence[pb.Dep], limits: LimitSettings) -> tuple[Dependency, ...] | Rejection:
    """In the order of the request, which errors of the engine count by. UNSPECIFIED is on success."""
    if len(deps) > limits.max_deps:
        return invalid(f"deps: {len(deps)} entries, at most {limits.max_deps} are allowed (limits.max_deps)")
    found: list[Dependency] = []
    for index, dep in enumerate(deps):
        condition = dep.cond
        if not 0 <= condition <= _LAST_CONDITION:
            return invalid(f"deps[{index}].cond: {condition} is not a number of the enumeration EdgeCond")
        ref = dep.target
        which = ref.WhichOneof("target")
        target: int | str = ref.id if which == "id" else ref.key
        if which == "id" and not target:
            return invalid(f"deps[{index}].target.id: found 0; allowed is the id of a task, which is at least 1")
        if not target:
            return invalid(f"deps[{index}].target: an id or a key must be set")
        if which == "key":
            fault = check_text(f"deps[{index}].target.key", ref.key, limits.max_key_len)
            if fault is not None:
                return fault
        found.append(Dependency(target, condition or _ON_SUCCESS))
    return tuple(found)
