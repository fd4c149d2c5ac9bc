"""The keys of schedules that stand in the configuration file, each with the task that it makes.

Ranges and lengths are those of a task on the wire. `settings_table` has all other tables, and the rules that hold for
this file too; `settings_templates` reads what stands here.
"""

from cronoq_sansio.clock import seconds
from cronoq_sansio.limits import MAX_CONTENT_TYPE, MAX_CRON, MAX_SCHEDULE_NAME, MAX_TIME_ZONE
from cronoq_sansio.settings import ScheduleSettings
from cronoq_sansio.settings_keys import MAX_COUNT, MAX_TASK_SECONDS, MAX_UINT32, Key, Kind, Table
from cronoq_sansio.spec import DEFAULT_TOLERANCE, RetryOverride

_POOLS = "the pool's"


def _text(name: str, meaning: str, rule: str, default: str = "none", *, required: bool = False) -> Key:
    return Key(
        name,
        name,
        Kind.TEXT,
        meaning,
        required=required,
        default_text="" if required else default,
        allowed_text=rule,
        own_rule=True,
    )


def _word(name: str, field: str, meaning: str, *words: str) -> Key:
    """The default is in the value class, so the words may stand in their natural order."""
    default = getattr(ScheduleSettings("", ""), field)
    return Key(name, field, Kind.TEXT, meaning, words=words, default_text=f"`{default}`")


def _seconds(name: str, meaning: str, default: str) -> Key:
    return Key(name, name.removesuffix("_s"), Kind.SECONDS, meaning, 0, MAX_TASK_SECONDS, default_text=default)


RECURRING_RETRY = Table(
    "recurring.retry",
    RetryOverride,
    "How attempts of the schedule's tasks are repeated. What is not set here is as the pool says.",
    (
        Key("max_attempts", "max_attempts", Kind.INTEGER, "Attempts in all.", 1, MAX_UINT32, default_text=_POOLS),
        _seconds("initial_backoff_s", "Delay before the second attempt.", _POOLS),
        Key(
            "multiplier", "multiplier", Kind.NUMBER, "Factor from one delay to the next.", 1, 1_000, default_text=_POOLS
        ),
        _seconds("max_backoff_s", "The longest delay.", _POOLS),
        Key(
            "jitter",
            "jitter",
            Kind.BOOLEAN,
            "Draw each delay at random between 0 and the computed one.",
            default_text=_POOLS,
        ),
    ),
)

_SCHEDULE = (
    _text(
        "name",
        "What listings and logs call it; unique, also among the schedules that callers add.",
        f"1 to {MAX_SCHEDULE_NAME} bytes without NUL characters",
        required=True,
    ),
    _text(
        "cron",
        "When: minute, hour, day of the month, month, day of the week; with six fields the first is the second. One"
        " that never fires is refused.",
        f"a cron expression of five or six fields, at most {MAX_CRON} bytes",
        required=True,
    ),
    _text(
        "tz",
        "On whose clock. The zones are those of the tzdata package, whatever the host has.",
        f'an IANA time zone of at most {MAX_TIME_ZONE} bytes, like "Europe/Helsinki"',
        "UTC",
    ),
    _word(
        "overlap",
        "overlap",
        "What happens while the run before is still going. `skip`: the new task ends as `skipped`. `allow`: both run."
        " `queue`: it waits for the end of the other. `queue_on_success`: it waits, and runs only if that one"
        " succeeded.",
        "skip",
        "allow",
        "queue",
        "queue_on_success",
    ),
    _word(
        "dst_gap",
        "gap",
        "What becomes of a time that day-light saving leaves out: `shift` moves it to the first instant after the gap,"
        " `skip` leaves it out.",
        "shift",
        "skip",
    ),
    _word(
        "dst_fold",
        "fold",
        "Which pass of a time that comes twice counts. Where the hour is `*`, has a step, or names all 24, both passes"
        " always do.",
        "first",
        "last",
        "both",
    ),
)

_TASK = (
    _text("pool", "Whose workers run it.", "the name of a pool", "`default`"),
    _text("kind", "What the worker is to do.", "at most `limits.max_kind_len` bytes", "`default`"),
    _word("priority", "priority", "Its class.", "critical", "high", "normal", "low"),
    _text("payload", "What the worker gets, as text. At most one of `payload`, `payload_json`, `payload_b64`.", "text"),
    _text("payload_json", "The same as JSON, sent as it stands here.", "a JSON document, written as text"),
    _text("payload_b64", "The same as bytes.", "standard base64 with padding"),
    _text(
        "content_type",
        "What kind of payload that is.",
        f"at most {MAX_CONTENT_TYPE} bytes",
        "`text/plain; charset=utf-8` with `payload`, `application/json` with `payload_json`,"
        " `application/octet-stream` with `payload_b64`, else none",
    ),
    _text(
        "key",
        "What the keys of its tasks begin with; behind it stands their start, `@2027-03-14T07:00:00Z`.",
        "at most `limits.max_key_len` bytes less 21",
        "none: its tasks have no keys",
    ),
    _text("tenant", "Whose share of the pool it takes.", "at most `limits.max_key_len` bytes"),
    _seconds("timeout_s", "The longest attempt.", "none"),
    _seconds("deadline_in_s", "By when it should have ended, after its start.", "none"),
    _seconds(
        "duration_hint_s",
        "How long it will run; for so long, and the tolerance before and after, each start reserves a slot.",
        "what the server has learned, else the pool's `default_duration_s`",
    ),
    Key(
        "tolerance_s",
        "tolerance",
        Kind.SECONDS,
        "How late it may start; later, it has missed its start.",
        0,
        MAX_TASK_SECONDS,
        default_text=f"{seconds(DEFAULT_TOLERANCE):g}",
    ),
    _word(
        "on_miss",
        "on_miss",
        "What happens to one that missed its start. `run_late`: it runs before all other work; after a time without a"
        " server one late run stands for all that were missed. `skip`: it ends as `missed`. `fail`: it ends as"
        " `failed`. With the last two nothing that was missed without a server is made up for.",
        "run_late",
        "skip",
        "fail",
    ),
    Key(
        "tags",
        "tags",
        Kind.TEXTS,
        "Travel to the worker. At most `limits.max_tags`, names and values of at most `limits.max_tag_len` bytes; names"
        " that begin with `cronoq.` are reserved.",
        default_text="none",
    ),
    Key(
        "labels",
        "labels",
        Kind.TEXTS,
        "What a worker must carry to get it. Bounds as of tags; a name is not empty.",
        default_text="none",
    ),
    Key(
        "resources",
        "resources",
        Kind.INTEGERS,
        "Units that an attempt holds or takes of `[[resources]]`, by name; at most `limits.max_resources` names.",
        1,
        MAX_COUNT,
        default_text="none",
    ),
    Key("retry", "retry", Kind.TABLE, "See `[recurring.retry]` below.", default_text=_POOLS),
)

RECURRING = Table(
    "recurring",
    ScheduleSettings,
    "Schedules that belong to this file: a task at every time that a cron expression names. Each wins over one of its"
    " name that a caller added, and no caller may change it; what is taken out of the file is gone with the next start,"
    " while its tasks stay. An extension of this server.",
    _SCHEDULE + _TASK,
    repeated=True,
)
