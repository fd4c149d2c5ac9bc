"""Every key of a configuration file, as a table: the checker walks it, and the reference is printed from it.

Defaults stand in the value classes of `settings` alone. Keys, defaults and ranges are those of server.md section 1;
keys that only this product has are marked `ours`.
"""

from enum import Enum
from typing import Any

from cronoq_sansio.settings import LimitSettings, OutputSettings, PoolSettings, ServerSettings, StoreSettings
from cronoq_sansio.spec import RetryPolicy
from cronoq_sansio.values import value


class Kind(Enum):
    """What a key holds. The value is the word of the documentation."""

    BOOLEAN = "true or false"
    INTEGER = "integer"
    NUMBER = "number"
    SECONDS = "seconds"
    TEXT = "text"
    ADDRESS = "address"
    RETRY = "table"


MAX_SECONDS = 31_536_000  #: 365 days (server.md section 1)
MAX_COUNT = 1_000_000_000_000  #: a trillion entries: as good as no bound on any machine
MAX_BYTES = 1 << 50  #: a pebibyte: the same
MAX_UINT32 = (1 << 32) - 1  #: slots travel as uint32, a gRPC length prefix and an HTTP/2 setting have 32 bits


@value
class Key:
    """One key. Ranges are in the unit of the file: seconds, bytes, counts."""

    name: str
    field: str
    """Attribute of the value class."""
    kind: Kind
    meaning: str
    """A sentence for the reference."""
    minimum: float | None = None
    maximum: float | None = None
    words: tuple[str, ...] = ()
    """The only allowed values of a TEXT."""
    required: bool = False
    default_text: str = ""
    """What the reference says where the default is not a constant."""
    default_key: str = ""
    """A key of `[limits]` whose value is the default."""
    allowed_text: str = ""
    """The rule in words, where neither range nor words say it."""
    ours: bool = False


@value
class Table:
    """One table of the file and the value class that it fills."""

    name: str
    """As in the file; `pools` is an array of tables."""
    target: type[Any]
    meaning: str
    keys: tuple[Key, ...]
    unbuilt: tuple[str, ...] = ()
    """Keys of the specification that this version refuses with that sentence."""


NAME_RULE = "1 to 64 characters of A-Z a-z 0-9 _ . : -"
NAME_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"
PATH_RULE = "the path of a file, not empty, not beginning with `:` or `file:`"
ADDRESS_RULE = 'an IP address and a port, like "127.0.0.1:7070" or "[::1]:7070"; port 0 lets the system choose'

SERVER = Table(
    "server",
    ServerSettings,
    "Where the server listens and how it stops.",
    (
        Key(
            "grpc_addr",
            "grpc_addr",
            Kind.ADDRESS,
            "Where gRPC clients and workers connect. Beyond loopback only with `insecure_no_auth`.",
            allowed_text=ADDRESS_RULE,
        ),
        Key(
            "http_addr",
            "http_addr",
            Kind.ADDRESS,
            "Accepted so that a file made for a later version works; the HTTP/JSON API is not built in this version.",
            allowed_text=ADDRESS_RULE,
            default_text="none",
        ),
        Key(
            "insecure_no_auth",
            "insecure_no_auth",
            Kind.BOOLEAN,
            "Allow addresses beyond loopback although nobody has to authenticate.",
        ),
        Key(
            "shutdown_grace_s",
            "shutdown_grace",
            Kind.SECONDS,
            "How long running attempts may go on after SIGTERM or SIGINT; less when none runs.",
            0,
            MAX_SECONDS,
        ),
    ),
    unbuilt=("metrics_addr", "shard", "insecure_peer_http", "tls", "grpc_web", "peer_tls"),
)

STORE = Table(
    "store",
    StoreSettings,
    "Where tasks are kept. A file without this table keeps them in memory.",
    (
        Key(
            "kind",
            "kind",
            Kind.TEXT,
            "`memory` forgets everything when the process ends; `sqlite` keeps tasks in a file.",
            words=("memory", "sqlite"),
            required=True,
        ),
        Key(
            "path",
            "path",
            Kind.TEXT,
            "The database file; its folder must exist. Required for, and only for, the kind `sqlite`.",
            allowed_text=PATH_RULE,
            default_text="none",
        ),
        Key(
            "keep_finished_s",
            "keep_finished",
            Kind.SECONDS,
            "How long finished tasks stay in the file. Only for the kind `sqlite`.",
            60,
            MAX_SECONDS,
        ),
    ),
    unbuilt=("url", "url_env", "schema"),
)

LIMITS = Table(
    "limits",
    LimitSettings,
    "Bounds on what callers may ask for. Sizes and lengths are bytes.",
    (
        Key(
            "max_tasks_per_batch",
            "max_tasks_per_batch",
            Kind.INTEGER,
            "Tasks of one batch; also pools of a listing, and ids and keys of a watch.",
            1,
            MAX_UINT32,
        ),
        Key("max_pending_total", "max_pending_total", Kind.INTEGER, "Tasks that wait, over all pools.", 1, MAX_COUNT),
        Key("max_pending_per_pool", "max_pending_per_pool", Kind.INTEGER, "Tasks that wait in a pool.", 1, MAX_COUNT),
        Key(
            "max_message_bytes",
            "max_message_bytes",
            Kind.INTEGER,
            "One gRPC message. A task and an output must be 1,024 bytes smaller.",
            4_096,
            MAX_UINT32,
        ),
        Key(
            "max_payload_bytes",
            "max_payload_bytes",
            Kind.INTEGER,
            "All live tasks together, as encoded; beyond, submissions are refused as `overloaded`.",
            4_096,
            MAX_BYTES,
            default_text="half of the machine's memory",
            ours=True,
        ),
        Key("max_key_len", "max_key_len", Kind.INTEGER, "A task's key.", 1, MAX_UINT32),
        Key("max_kind_len", "max_kind_len", Kind.INTEGER, "A task's kind.", 1, MAX_UINT32),
        Key("max_tags", "max_tags", Kind.INTEGER, "Tags of a task; also labels of a worker.", 0, MAX_UINT32),
        Key("max_tag_len", "max_tag_len", Kind.INTEGER, "One tag's or label's name or value.", 1, MAX_UINT32),
        Key("max_list", "max_list", Kind.INTEGER, "Tasks of one page of a listing.", 1, 100_000),
        Key(
            "max_wait_s",
            "max_wait",
            Kind.SECONDS,
            "The longest wait for a result; longer ones are cut.",
            0,
            MAX_SECONDS,
        ),
        Key(
            "request_timeout_s",
            "request_timeout",
            Kind.SECONDS,
            "The longest call, apart from its wait.",
            0.1,
            MAX_SECONDS,
        ),
        Key(
            "max_concurrent_requests",
            "max_concurrent_requests",
            Kind.INTEGER,
            "Calls in progress that are not waits, over all connections; beyond, calls are refused as `unavailable`.",
            1,
            MAX_UINT32,
        ),
        Key(
            "max_concurrent_streams",
            "max_concurrent_streams",
            Kind.INTEGER,
            "Open calls of one connection.",
            1,
            MAX_UINT32,
        ),
        Key("max_slots_per_worker", "max_slots_per_worker", Kind.INTEGER, "Slots of one worker.", 1, MAX_UINT32),
        Key(
            "keepalive_interval_s",
            "keepalive_interval",
            Kind.SECONDS,
            "How often a connection is pinged.",
            0.1,
            MAX_SECONDS,
        ),
        Key(
            "keepalive_timeout_s",
            "keepalive_timeout",
            Kind.SECONDS,
            "How long a ping may stay unanswered before the connection is closed.",
            0.1,
            MAX_SECONDS,
        ),
        Key(
            "key_retention_s",
            "key_retention",
            Kind.SECONDS,
            "How long a finished task's key still answers submissions with that task.",
            0,
            MAX_SECONDS,
        ),
        Key(
            "key_retention_max",
            "key_retention_max",
            Kind.INTEGER,
            "How many finished tasks are remembered for that; the oldest are dropped first.",
            0,
            MAX_COUNT,
        ),
    ),
    unbuilt=("max_http_body_bytes", "max_deps", "max_resources"),
)

OUTPUTS = Table(
    "outputs",
    OutputSettings,
    "What of finished tasks is kept in memory, so that it is answered without asking the store.",
    (
        Key("cache_entries", "cache_entries", Kind.INTEGER, "Outputs that are kept; 0 = none.", 0, MAX_COUNT),
        Key(
            "cache_bytes",
            "cache_bytes",
            Kind.INTEGER,
            "Their size together; 0 only when `cache_entries` is 0.",
            0,
            MAX_BYTES,
        ),
        Key(
            "info_entries",
            "info_entries",
            Kind.INTEGER,
            "Descriptions of tasks that are kept; 0 = none.",
            0,
            MAX_COUNT,
        ),
    ),
)

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
            "Bounds the slots of one worker; not those of all workers together.",
            1,
            MAX_UINT32,
        ),
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
            "overflow",
            "overflow",
            Kind.TEXT,
            "What happens to a submission when `max_pending` is reached: `reject` refuses it as `overloaded`.",
            words=("reject",),
            default_text="`reject`",
        ),
        Key("retry", "retry", Kind.RETRY, "See `[pools.retry]` below.", default_text="that table's defaults"),
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
    unbuilt=(
        "min",
        "autoscale",
        "scaler",
        "default_duration_s",
        "reservable_fraction",
        "await_unknown_dependencies_s",
        "target_utilization",
        "drain_time_s",
        "cooldown_s",
        "cost_per_worker_second",
        "fair_share",
        "tenant_weights",
    ),
)

TABLES = (SERVER, STORE, LIMITS, OUTPUTS, POOLS)
UNBUILT_TABLES = ("auth", "resources", "shards")
UNBUILT_WORDS = {
    "store.kind": ("postgres",),
    "pools.overflow": ("wait", "shed_lowest", "shed_oldest"),
}
