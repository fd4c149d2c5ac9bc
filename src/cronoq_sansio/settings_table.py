"""Every key of a configuration file, as a table: the checker walks it, and the reference is printed from it.

Defaults stand in the value classes of `settings` alone. Keys, defaults and ranges are those of server.md section 1;
keys that only this product has are marked `ours`. Pools and resources, what the scheduler works with, are in
`settings_scheduling`, schedules in `settings_recurring`.
"""

from cronoq_sansio.settings import (
    AuthSettings,
    LimitSettings,
    OutputSettings,
    ServerSettings,
    StoreSettings,
    TlsSettings,
    TokenSettings,
)
from cronoq_sansio.settings_keys import (
    ADDRESS_RULE,
    FILE_RULE,
    MAX_BYTES,
    MAX_COUNT,
    MAX_SECONDS,
    MAX_UINT32,
    PATH_RULE,
    TOKEN_RULE,
    VARIABLE_RULE,
    Key,
    Kind,
    Table,
)
from cronoq_sansio.settings_recurring import RECURRING, RECURRING_RETRY
from cronoq_sansio.settings_scheduling import CLASSES, POOLS, RESOURCES, RETRY, SCALER, SLO

TLS = Table(
    "server.tls",
    TlsSettings,
    "With this table both listeners speak TLS (1.2 or newer) and nothing else.",
    (
        Key(
            "cert",
            "cert",
            Kind.TEXT,
            "The server's certificate, followed by the intermediate ones.",
            required=True,
            allowed_text=FILE_RULE,
        ),
        Key("key", "key", Kind.TEXT, "Its private key, not encrypted.", required=True, allowed_text=FILE_RULE),
    ),
    unbuilt=("client_ca",),
)

SERVER = Table(
    "server",
    ServerSettings,
    "Where the server listens and how it stops.",
    (
        Key(
            "grpc_addr",
            "grpc_addr",
            Kind.ADDRESS,
            "Where gRPC clients and workers connect. Beyond loopback only with `[[auth.tokens]]`.",
            allowed_text=ADDRESS_RULE,
        ),
        Key(
            "http_addr",
            "http_addr",
            Kind.ADDRESS,
            "Where health is asked for: `/healthz` and `/readyz`. The HTTP/JSON API is not built in this version.",
            allowed_text=ADDRESS_RULE,
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
        Key("tls", "tls", Kind.TABLE, "See `[server.tls]` below.", default_text="none: cleartext"),
        Key(
            "http2",
            "http2",
            Kind.TEXT,
            "Which HTTP/2 machine gRPC connections have. `h2`, a library, is there to tell whose fault something is: it"
            " is slower and does not count floods.",
            words=("own", "h2"),
            default_text="`own`",
            ours=True,
        ),
    ),
    unbuilt=("metrics_addr", "shard", "insecure_peer_http", "grpc_web", "peer_tls"),
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
            "All live tasks together, as encoded; beyond, submissions are refused with `RESOURCE_EXHAUSTED`.",
            4_096,
            MAX_BYTES,
            default_text="half of the machine's memory",
            ours=True,
        ),
        Key(
            "max_key_len",
            "max_key_len",
            Kind.INTEGER,
            "A task's key; also a key that a task depends on, and a tenant.",
            1,
            MAX_UINT32,
        ),
        Key("max_kind_len", "max_kind_len", Kind.INTEGER, "A task's kind.", 1, MAX_UINT32),
        Key("max_tags", "max_tags", Kind.INTEGER, "Tags of a task; also labels of a task or a worker.", 0, MAX_UINT32),
        Key("max_tag_len", "max_tag_len", Kind.INTEGER, "One tag's or label's name or value.", 1, MAX_UINT32),
        Key("max_deps", "max_deps", Kind.INTEGER, "Dependencies of a task; 0 = none.", 0, MAX_UINT32),
        Key("max_resources", "max_resources", Kind.INTEGER, "Resources that a task asks for.", 0, MAX_UINT32),
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
        Key(
            "max_connections",
            "max_connections",
            Kind.INTEGER,
            "gRPC connections in all. Beyond, the oldest that never had a call admitted makes room; when there is none"
            " the newcomer is refused. Each takes an open file.",
            1,
            MAX_UINT32,
            ours=True,
        ),
        Key(
            "max_connections_per_peer",
            "max_connections_per_peer",
            Kind.INTEGER,
            "The same from one address, of IPv6 one network of 64 bits. 0 = addresses are not told apart, and nobody is"
            " kept out for a while: for a server behind a proxy that hides the addresses of its clients.",
            0,
            MAX_UINT32,
            ours=True,
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
    unbuilt=("max_http_body_bytes",),
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

TOKENS = Table(
    "auth.tokens",
    TokenSettings,
    "Who may call. With at least one of these every call needs `authorization: Bearer TOKEN` in its metadata; without,"
    " every caller is an admin. Memory holds hashes of the tokens only.",
    (
        Key(
            "token",
            "digest",
            Kind.TEXT,
            "The token itself; 32 random characters or more. Exactly one of `token` and `token_env`.",
            allowed_text=TOKEN_RULE,
            own_rule=True,
            default_text="none",
            secret=True,
        ),
        Key(
            "token_env",
            "digest",
            Kind.TEXT,
            "Where the token is, so that it need not stand in the file.",
            allowed_text=VARIABLE_RULE,
            default_text="none",
            secret=True,
        ),
        Key(
            "role",
            "role",
            Kind.TEXT,
            "What it opens: `client` tasks, `worker` the worker stream, `metrics` snapshots and lists, `admin` all.",
            words=("client", "worker", "metrics", "admin"),
            required=True,
            secret=True,
        ),
    ),
    unbuilt=("pools", "labels", "tenant"),
    repeated=True,
)

AUTH = Table(
    "auth",
    AuthSettings,
    "Credentials of the callers.",
    (Key("tokens", "tokens", Kind.TABLES, "See `[[auth.tokens]]` below.", default_text="none", secret=True),),
    unbuilt=("certs",),
)

TABLES = (SERVER, STORE, LIMITS, OUTPUTS, POOLS, RESOURCES, RECURRING, AUTH)
INNER_TABLES = (TLS, RETRY, SCALER, CLASSES, SLO, RECURRING_RETRY, TOKENS)
UNBUILT_TABLES = ("shards",)
UNBUILT_WORDS = {"store.kind": ("postgres",), "pools.scaler.kind": ("webhook",)}
