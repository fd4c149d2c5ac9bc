"""Every key of a scenario, as a table: the checker walks it, and the reference is printed from it."""

from cronoq_sansio.clock import seconds
from cronoq_sansio.limits import MAX_SCENARIO_RATE, MAX_WORKER_STREAMS
from cronoq_sansio.settings_keys import (
    MAX_COUNT,
    MAX_SECONDS,
    MAX_TASK_SECONDS,
    MAX_UINT32,
    MIN_RATIO,
    Key,
    Kind,
    Table,
)
from cronoq_sansio.settings_recurring import RECURRING_RETRY
from cronoq_sansio.sim.scenario.words import (
    DEFAULT_START,
    ArrivalSettings,
    Course,
    Duration,
    Rate,
    Runs,
    WorkerGroup,
)
from cronoq_sansio.spec import DEFAULT_TOLERANCE

MIN_STEP = 1e-6  #: seconds between regular arrivals: a million per second, as much as `limits.MAX_SCENARIO_RATE`
MAX_CV = 100  #: with more, one task in a million has all the work
START_RULE = 'a time by RFC 3339 with its offset, from 1970 to 2199, like "2026-03-29T00:00:00+02:00"'


def _text(name: str, meaning: str, rule: str, default: str = "", *, required: bool = False) -> Key:
    return Key(
        name,
        name,
        Kind.TEXT,
        meaning,
        required=required,
        default_text=default,
        allowed_text=rule,
        own_rule=True,
    )


def _seconds(
    name: str, field: str, meaning: str, default: str = "", *, least: float = 0, most: float = MAX_SECONDS
) -> Key:
    return Key(name, field, Kind.SECONDS, meaning, least, most, default_text=default)


COURSE = Table(
    "",
    Course,
    "What stands at the top of the file, before the first table.",
    (
        _text(
            "config",
            "The configuration that is tried; a relative path counts from the folder of the scenario.",
            "the path of a configuration file, not empty",
            "none: the built-in configuration, with one pool `default`",
        ),
        Key(
            "duration_s",
            "duration",
            Kind.SECONDS,
            "How long the run lasts, in virtual time.",
            0.001,
            MAX_SECONDS,
            required=True,
        ),
        _seconds(
            "warmup_s",
            "warmup",
            "Tasks that arrive so early are run, and not counted: the queues are filled by then. Utilizations, queues"
            " and targets count from here as well. Less than `duration_s`.",
        ),
        Key(
            "seed",
            "seed",
            Kind.INTEGER,
            "Whatever is drawn at random comes from it. With the same seed the same tasks arrive at the same times and"
            " run as long, whatever the configuration is.",
            0,
            MAX_COUNT,
        ),
        _text(
            "start",
            "The date and time at which the run begins. It matters for cron expressions and their time zones alone.",
            START_RULE,
            f'`"{DEFAULT_START}"`',
        ),
        Key("arrivals", "arrivals", Kind.TABLES, "See `[[arrivals]]` below.", default_text="none"),
        Key("workers", "workers", Kind.TABLES, "See `[[workers]]` below.", default_text="none"),
        Key("recurring", "recurring", Kind.TABLES, "See `[[recurring]]` below.", default_text="none"),
    ),
)

DURATION = Table(
    "arrivals.duration",
    Duration,
    "How long an attempt runs. It is drawn when the task arrives; for a retry, when that starts.",
    (
        Key(
            "distribution",
            "distribution",
            Kind.TEXT,
            "`fixed`: always `mean_s`. `exponential`: with this mean. `uniform`: from `min_s` to `max_s`. `lognormal`:"
            " mostly short, some very long, with `mean_s` and `cv`.",
            words=("fixed", "exponential", "uniform", "lognormal"),
            default_text="`fixed`",
        ),
        _seconds("mean_s", "mean", "The mean.", "required with all but `uniform`, refused with that"),
        Key(
            "cv",
            "cv",
            Kind.NUMBER,
            "The standard deviation as a multiple of the mean: with 1 as much spread as `exponential`.",
            MIN_RATIO,
            MAX_CV,
            default_text="required with `lognormal`, refused else",
        ),
        _seconds("min_s", "minimum", "The least.", "required with `uniform`, refused else"),
        _seconds("max_s", "maximum", "The most; at least `min_s`.", "required with `uniform`, refused else"),
    ),
)

RATES = Table(
    "arrivals.rates",
    Rate,
    "A rate that changes over the run. Each entry holds until the next one; before the first nothing arrives.",
    (
        Key(
            "from_s",
            "start",
            Kind.SECONDS,
            "When it begins; later than the entry before.",
            0,
            MAX_SECONDS,
            required=True,
        ),
        Key(
            "rate_per_s",
            "rate",
            Kind.NUMBER,
            "Arrivals per second from then on.",
            0,
            MAX_SCENARIO_RATE,
            required=True,
        ),
    ),
    repeated=True,
)

RETRY = Table(
    "arrivals.retry",
    RECURRING_RETRY.target,
    "How attempts are repeated. What is not set here is as the pool says.",
    RECURRING_RETRY.keys,
)

_WHEN = (
    Key(
        "rate_per_s",
        "rate",
        Kind.NUMBER,
        "Arrivals per second, at random and independent of each other. Exactly one of `rate_per_s`, `every_s` and"
        " `rates`.",
        MIN_RATIO,
        MAX_SCENARIO_RATE,
        default_text="none",
    ),
    _seconds(
        "every_s",
        "every",
        "Regular arrivals: the first at `from_s`, then one after each such time.",
        "none",
        least=MIN_STEP,
    ),
    Key(
        "rates",
        "rates",
        Kind.TABLES,
        "Random arrivals at rates that change; see `[[arrivals.rates]]`.",
        default_text="none",
    ),
    Key("burst", "burst", Kind.INTEGER, "How many tasks come at each arrival.", 1, 1_000_000),
    _seconds("from_s", "start", "No arrival before."),
    _seconds("until_s", "end", "No arrival from here on; later than `from_s`.", "the end of the run"),
)

_RUN = (
    Key("duration", "duration", Kind.TABLE, "See `[arrivals.duration]` below.", required=True),
    Key(
        "failure_rate",
        "failure_rate",
        Kind.NUMBER,
        "Share of the attempts that fail; the retry policy says what then.",
        0,
        1,
    ),
    _seconds("timeout_s", "timeout", "The longest attempt.", "none", most=MAX_TASK_SECONDS),
    Key("retry", "retry", Kind.TABLE, "See `[arrivals.retry]` below.", default_text="the pool's"),
)

_ASKED = (
    _text("pool", "Where they wait.", "the name of a pool of the configuration", "`default`"),
    _text("kind", "By kind the server learns run times.", "at most `limits.max_kind_len` bytes", "`default`"),
    Key(
        "priority",
        "priority",
        Kind.TEXT,
        "Their class.",
        words=("critical", "high", "normal", "low"),
        default_text="`normal`",
    ),
    _text("tenant", "Whose share of the pool they take.", "at most `limits.max_key_len` bytes", "none"),
    _seconds(
        "deadline_in_s",
        "deadline_in",
        "By when each should have ended, after its arrival.",
        "none",
        most=MAX_TASK_SECONDS,
    ),
    _seconds(
        "start_in_s", "start_in", "Gives each a fixed start so long after its arrival.", "none", most=MAX_TASK_SECONDS
    ),
    _seconds(
        "tolerance_s",
        "tolerance",
        "How late a fixed start may be. Only with `start_in_s`, as the next.",
        f"{seconds(DEFAULT_TOLERANCE):g}",
        most=MAX_TASK_SECONDS,
    ),
    Key(
        "on_miss",
        "on_miss",
        Kind.TEXT,
        "What happens to a task that missed its fixed start.",
        words=("run_late", "skip", "fail"),
        default_text="`run_late`",
    ),
    _seconds(
        "duration_hint_s",
        "duration_hint",
        "What the callers say of the run time; it need not be true.",
        "none: what the server has learned, else the pool's `default_duration_s`",
        most=MAX_TASK_SECONDS,
    ),
    Key(
        "labels",
        "labels",
        Kind.TEXTS,
        "What a worker must carry; some `[[workers]]` of the pool do.",
        default_text="none",
    ),
    Key(
        "resources",
        "resources",
        Kind.INTEGERS,
        "Units of `[[resources]]` that each asks for.",
        1,
        MAX_COUNT,
        default_text="none",
    ),
    Key(
        "payload_bytes",
        "payload_bytes",
        Kind.INTEGER,
        "Size of each payload; counts against the bounds of the configuration.",
        0,
        MAX_UINT32,
    ),
)

ARRIVALS = Table(
    "arrivals",
    ArrivalSettings,
    "Tasks that are alike, and when callers submit them. A task that is refused is not submitted again.",
    (
        _text("name", "What the report calls them; unique.", "1 to 256 bytes without NUL characters", required=True),
        *_WHEN,
        *_RUN,
        *_ASKED,
    ),
    repeated=True,
)

WORKERS = Table(
    "workers",
    WorkerGroup,
    "Workers that are alike.",
    (
        _text("name", "What messages call them.", "at most 64 characters", "none"),
        _text("pool", "Whose tasks they run.", "the name of a pool of the configuration", "`default`"),
        Key("count", "count", Kind.INTEGER, "How many; with `follow` the most.", 1, MAX_WORKER_STREAMS),
        Key(
            "slots",
            "slots",
            Kind.INTEGER,
            "Slots of each; at most what the configuration grants one worker.",
            1,
            MAX_UINT32,
        ),
        Key("labels", "labels", Kind.TEXTS, "What each carries.", default_text="none"),
        _seconds("from_s", "start", "When they join."),
        _seconds(
            "until_s", "end", "When they finish what they run and leave; later than `from_s`.", "the end of the run"
        ),
        Key(
            "follow",
            "follow",
            Kind.BOOLEAN,
            "There are as many of them as the pool's autoscaler asks for, less the slots of other workers, up to"
            " `count`. At most one such table per pool.",
        ),
        _seconds(
            "follow_every_s",
            "look",
            "How often whoever starts them looks at the target. Only with `follow`, as the next.",
            least=0.1,
        ),
        _seconds("follow_delay_s", "delay", "From that decision until a new worker has joined."),
        _seconds(
            "crash_every_s",
            "crash",
            "Mean time between two crashes of one worker, at random; what it runs is lost.",
            "never",
            least=0.001,
        ),
        _seconds(
            "crash_noticed_s",
            "noticed",
            "After so long the server learns of it: 0 when the connection breaks at once. Until then it may give work"
            " to the dead. Only with `crash_every_s`, as the next.",
        ),
        _seconds("restart_s", "restart", "How long after a crash the worker joins again.", least=0.001),
    ),
    repeated=True,
)

RUNS = Table(
    "recurring",
    Runs,
    "How the tasks of a schedule of the configuration run. One that is not named runs for its `duration_hint_s`, or"
    " else for its pool's `default_duration_s`.",
    (
        _text("name", "The schedule.", "the name of a `[[recurring]]` of the configuration", required=True),
        Key("duration", "duration", Kind.TABLE, "As `[arrivals.duration]`.", required=True),
        Key("failure_rate", "failure_rate", Kind.NUMBER, "Share of the attempts that fail.", 0, 1),
    ),
    repeated=True,
)

RUNS_DURATION = Table("recurring.duration", Duration, DURATION.meaning, DURATION.keys)

TABLES = (COURSE, ARRIVALS, DURATION, RATES, RETRY, WORKERS, RUNS)
"""In the order of the reference."""
INNER_TABLES = {table.name: table for table in (DURATION, RETRY, RUNS_DURATION)}
ARRAYS = {table.name: table for table in (ARRIVALS, WORKERS, RUNS, RATES)}
NEEDS = {
    "fixed": ("mean_s",),
    "exponential": ("mean_s",),
    "uniform": ("min_s", "max_s"),
    "lognormal": ("mean_s", "cv"),
}
"""What a distribution needs."""
