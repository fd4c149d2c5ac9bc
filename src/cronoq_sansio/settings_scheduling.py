"""The keys of pools and resources: what the scheduler works with.

`settings_table` has all others, and the rules that hold for this file too.
"""

from cronoq_sansio.settings import ClassAims, ClassBounds, PoolSettings, ResourceSettings, ScalerSettings
from cronoq_sansio.settings_keys import (
    MAX_COUNT,
    MAX_RATIO,
    MAX_SECONDS,
    MAX_UINT32,
    MIN_RATIO,
    NAME_RULE,
    Key,
    Kind,
    Table,
)
from cronoq_sansio.spec import RetryPolicy

RETRY = Table(
    "pools.retry",
    RetryPolicy,
    "How attempts of the pool's tasks are repeated, where a task does not say it.",
    (
        Key("max_attempts", "max_attempts", Kind.INTEGER, "Attempts in all.", 1, MAX_UINT32, required=True),
        Key("initial_backoff_s", "initial_backoff", Kind.SECONDS, "Delay before the second attempt.", 0, MAX_SECONDS),
        Key("multiplier", "multiplier", Kind.NUMBER, "Factor from one delay to the next.", 1, 1_000),
        Key("max_backoff_s", "max_backoff", Kind.SECONDS, "The longest delay.", 0, MAX_SECONDS),
        Key("jitter", "jitter", Kind.BOOLEAN, "Draw each delay at random between 0 and the computed one."),
    ),
)


def _bound(name: str) -> Key:
    meaning = f"Tasks of class `{name}` that wait in this pool; 0 = the pool takes none of that class."
    return Key(name, name, Kind.INTEGER, meaning, 0, MAX_COUNT, default_text="only the pool's bound")


CLASSES = Table(
    "pools.max_pending_by_class",
    ClassBounds,
    "How many tasks of each class may wait in the pool, within its `max_pending`.",
    (_bound("critical"), _bound("high"), _bound("normal"), _bound("low")),
)


def _aim(name: str) -> Key:
    meaning = f"Within how long tasks of class `{name}` and above are to be worked off."
    return Key(name, name, Kind.SECONDS, meaning, 0.001, MAX_SECONDS, default_text="no such aim")


SLO = Table(
    "pools.slo_s",
    ClassAims,
    "Aims of single classes for the autoscaler: it wants at least so many slots that what waits now, in this class and"
    " above, is worked off in this time.",
    (_aim("critical"), _aim("high"), _aim("normal"), _aim("low")),
)

SCALER = Table(
    "pools.scaler",
    ScalerSettings,
    "Who is told the target of the autoscaler.",
    (
        Key(
            "kind",
            "kind",
            Kind.TEXT,
            "`external`: nobody is called; whoever starts workers reads `desired` in the snapshot.",
            words=("external",),
            default_text="`external`",
        ),
    ),
    unbuilt=("url", "token_env"),
)

_AUTOSCALING = (
    Key(
        "autoscale",
        "autoscale",
        Kind.BOOLEAN,
        "Work out each second how many slots the pool should have, and show it as `desired`. With `false` the keys"
        " `min`, `target_utilization`, `drain_time_s`, `cooldown_s` and `slo_s` do nothing.",
    ),
    Key("scaler", "scaler", Kind.TABLE, "See `[pools.scaler]` below.", default_text="that table's defaults"),
    Key(
        "target_utilization",
        "target_utilization",
        Kind.NUMBER,
        "Share of the slots that steady work is to keep busy; the rest is room for bursts.",
        MIN_RATIO,
        1,
    ),
    Key("drain_time_s", "drain_time", Kind.SECONDS, "In how long a backlog is worked off.", 0.001, MAX_SECONDS),
    Key("cooldown_s", "cooldown", Kind.SECONDS, "Least time between two steps down.", 0, MAX_SECONDS),
    Key(
        "slo_s",
        "slo",
        Kind.TABLE,
        "Aims of single classes; see `[pools.slo_s]` below.",
        default_text="no aims by class",
        ours=True,
    ),
    Key(
        "cost_per_worker_second",
        "cost_per_worker_second",
        Kind.NUMBER,
        "What a slot costs, in any currency; the snapshot shows the cost of all that were offered.",
        0,
        MAX_COUNT,
    ),
)

POOLS = Table(
    "pools",
    PoolSettings,
    "Queues of tasks, each with its own workers. Without this table there is one, `default`.",
    (
        Key(
            "name", "name", Kind.TEXT, "What tasks and workers call it; unique.", required=True, allowed_text=NAME_RULE
        ),
        Key(
            "max",
            "max",
            Kind.INTEGER,
            "Bounds the autoscaler's target, what fixed starts may reserve, and the slots of one worker; not those of"
            " all workers together.",
            1,
            MAX_UINT32,
        ),
        Key("min", "min", Kind.INTEGER, "The least that the autoscaler asks for; at most `max`.", 0, MAX_UINT32),
        Key(
            "lease_ttl_s", "lease_ttl", Kind.SECONDS, "How long a worker may go without a heartbeat.", 0.1, MAX_SECONDS
        ),
        Key(
            "max_pending",
            "max_pending",
            Kind.INTEGER,
            "Tasks that wait in this pool.",
            1,
            MAX_COUNT,
            default_key="max_pending_per_pool",
        ),
        Key(
            "max_pending_by_class",
            "max_pending_by_class",
            Kind.TABLE,
            "Bounds of single classes, beside `max_pending`; see `[pools.max_pending_by_class]` below.",
            default_text="no bounds by class",
            ours=True,
        ),
        Key(
            "overflow",
            "overflow",
            Kind.TEXT,
            "What happens to a submission that would pass a bound of tasks that wait. `reject`: it is refused with"
            " `RESOURCE_EXHAUSTED`. `wait`: so is a caller over the network, at once; one within the process"
            " waits its turn. `shed_lowest`: the ready task that came last in the lowest class below its own ends as"
            " `shed` to make room, `shed_oldest`: the ready `low` task that came first does; without such a task it is"
            " refused. A batch sheds nothing and does not wait: it is refused.",
            words=("reject", "wait", "shed_lowest", "shed_oldest"),
            default_text="`reject`",
        ),
        Key(
            "default_duration_s",
            "default_duration",
            Kind.SECONDS,
            "How long an attempt is taken to run while nothing is known: no `duration_hint_s`, nothing learned. It says"
            " how long before its deadline a task becomes urgent, and how long a fixed start reserves a slot.",
            0,
            MAX_SECONDS,
        ),
        Key(
            "await_unknown_dependencies_s",
            "await_unknown_dependencies",
            Kind.SECONDS,
            "How long a task waits for a key that it depends on and that no task has; then it ends as `skipped`.",
            0,
            MAX_SECONDS,
            default_text="none: such a task is refused as `unknown_dependency`",
        ),
        Key(
            "fair_share",
            "fair_share",
            Kind.BOOLEAN,
            "Share the slots equally between tenants, within each class, over tasks without a deadline.",
        ),
        Key(
            "tenant_weights",
            "tenant_weights",
            Kind.NUMBERS,
            "Share by weights: a tenant with 3 gets three times what one with 1 gets. Implies `fair_share`; a name is"
            " a task's `tenant`, at most `limits.max_key_len` bytes; tenants that are not named weigh 1.",
            MIN_RATIO,
            MAX_RATIO,
            default_text="all weigh 1",
        ),
        Key(
            "reservable_fraction",
            "reservable_fraction",
            Kind.NUMBER,
            "Share of `max` that fixed starts may reserve at a time, rounded down, but at least one slot; beyond, a"
            " fixed start is refused as `reservation_conflict`. The same share of the slots that workers offer may be"
            " held ahead of such starts.",
            MIN_RATIO,
            1,
        ),
        *_AUTOSCALING,
        Key("retry", "retry", Kind.TABLE, "See `[pools.retry]` below.", default_text="that table's defaults"),
        Key(
            "max_slots_per_worker",
            "max_slots_per_worker",
            Kind.INTEGER,
            "Slots of one worker of this pool.",
            1,
            MAX_UINT32,
            default_key="max_slots_per_worker",
        ),
    ),
    repeated=True,
)

RESOURCES = Table(
    "resources",
    ResourceSettings,
    "What tasks of all pools share, in whole units that a task asks for by name. A task runs only when it gets all that"
    " it asks for; while it waits for them, others go on.",
    (
        Key("name", "name", Kind.TEXT, "What tasks call it; unique.", required=True, allowed_text=NAME_RULE),
        Key(
            "kind",
            "kind",
            Kind.TEXT,
            "Of a `semaphore` an attempt holds its units while it runs; from a `token_bucket` it takes them for good"
            " when it starts.",
            words=("semaphore", "token_bucket"),
            required=True,
        ),
        Key(
            "permits",
            "permits",
            Kind.INTEGER,
            "Units that may be held at a time.",
            1,
            MAX_COUNT,
            kind_of_table="semaphore",
        ),
        Key(
            "rate",
            "rate",
            Kind.NUMBER,
            "Units that come back per second.",
            MIN_RATIO,
            MAX_COUNT,
            kind_of_table="token_bucket",
        ),
        Key(
            "burst",
            "burst",
            Kind.INTEGER,
            "The most units that gather; so many are there at the start.",
            1,
            MAX_COUNT,
            kind_of_table="token_bucket",
        ),
    ),
    unbuilt=("shard",),
    repeated=True,
)
