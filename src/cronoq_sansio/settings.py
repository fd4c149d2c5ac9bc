"""Settings: what an operator may choose. Durations are nanoseconds here and seconds in the file, sizes are bytes.

The keys, defaults and ranges are those of server.md section 1, as far as they are built.
"""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.spec import (
    DEFAULT_TOLERANCE,
    MissPolicy,
    Overlap,
    Priority,
    RecurringSpec,
    RetryOverride,
    RetryPolicy,
)
from cronoq_sansio.values import value

DEFAULT_RETRY = RetryPolicy(3, 1 * SECOND, 2.0, 60 * SECOND, True)


@value
class TlsSettings:
    """Table `[server.tls]`: paths of PEM files."""

    cert: str
    key: str


@value
class ServerSettings:
    """Table `[server]`."""

    grpc_addr: tuple[str, int] = ("127.0.0.1", 7070)
    http_addr: tuple[str, int] | None = ("127.0.0.1", 7071)
    """None = no HTTP listener; a configuration file always has one."""
    insecure_no_auth: bool = False
    shutdown_grace: int = 10 * SECOND
    tls: TlsSettings | None = None
    http2: str = "own"
    """Which HTTP/2 machine gRPC connections have: `own`, or `h2` for diagnosis."""


@value
class StoreSettings:
    """Table `[store]`."""

    kind: str = "memory"
    """`memory` or `sqlite`."""
    path: str = ""
    keep_finished: int = 604_800 * SECOND


@value
class LimitSettings:
    """Table `[limits]`."""

    max_tasks_per_batch: int = 1_000
    """Also bounds the pools of a listing, and ids and keys of a watch."""
    max_pending_total: int = 1_000_000
    max_pending_per_pool: int = 100_000
    max_message_bytes: int = 16_777_216
    max_payload_bytes: int = 8 << 30
    """Encoded specifications of live tasks, in all; the configuration's default is half of the machine's memory."""
    max_key_len: int = 256
    max_kind_len: int = 128
    max_tags: int = 32
    max_tag_len: int = 1_024
    max_list: int = 1_000
    """Tasks of one page."""
    max_wait: int = 300 * SECOND
    request_timeout: int = 30 * SECOND
    max_concurrent_requests: int = 4_096
    max_concurrent_streams: int = 1_024
    max_connections: int = 10_000
    """Of the gRPC listener, in all."""
    max_connections_per_peer: int = 5_000
    """From one address; 0 = addresses are not told apart."""
    max_slots_per_worker: int = 1_024
    keepalive_interval: int = 20 * SECOND
    keepalive_timeout: int = 20 * SECOND
    key_retention: int = 3_600 * SECOND
    key_retention_max: int = 1_000_000
    max_deps: int = 256
    max_resources: int = 16


@value
class OutputSettings:
    """Table `[outputs]`: what of finished tasks is kept in memory."""

    cache_entries: int = 10_000
    cache_bytes: int = 67_108_864
    info_entries: int = 100_000


@value
class ClassBounds:
    """Table `[pools.max_pending_by_class]`: tasks that may wait; None = only the pool's bound."""

    critical: int | None = None
    high: int | None = None
    normal: int | None = None
    low: int | None = None


@value
class ClassAims:
    """Table `[pools.slo_s]`: within how long tasks are to be worked off; None = no such aim."""

    critical: int | None = None
    high: int | None = None
    normal: int | None = None
    low: int | None = None


@value
class ScalerSettings:
    """Table `[pools.scaler]`: who acts on the target of the autoscaler."""

    kind: str = "external"
    """`external`: whoever reads the snapshot."""


@value
class PoolSettings:
    """One table of `[[pools]]`."""

    name: str = "default"
    max: int = 10
    """Bounds the target of the autoscaler, the reservations of fixed starts, and the slots of one worker; the slots of
    all workers together are not bounded by it."""
    min: int = 0
    """The least that the autoscaler asks for; ≤ `max`."""
    autoscale: bool = True
    """Publish a target for the number of slots."""
    target_utilization: float = 0.75
    """Share of its slots that the autoscaler wants busy, in (0, 1]."""
    drain_time: int = 30 * SECOND
    """In how long it wants a backlog worked off; ≥ 1 ms."""
    cooldown: int = 30 * SECOND
    """Least time between two steps down."""
    slo: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    """Within how long tasks of a class are to be worked off, critical first; None = the class has no such aim."""
    cost_per_worker_second: float = 0.0
    """What a slot costs, in any currency."""
    reservable_fraction: float = 0.5
    """Share of `max` that fixed starts may reserve at a time, in (0, 1]; at least one slot."""
    lease_ttl: int = 30 * SECOND
    max_pending: int = 100_000
    retry: RetryPolicy = DEFAULT_RETRY
    max_slots_per_worker: int = 1_024
    overflow: str = "reject"
    """What happens when a bound would be passed: `wait`, `reject`, `shed_lowest`, `shed_oldest`."""
    max_pending_by_class: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    """Bounds of single classes, critical first; None = only the pool's bound."""
    default_duration: int = 1 * SECOND
    """Estimated run time while nothing was learned."""
    await_unknown_dependencies: int | None = None
    """How long a task waits for a key that nobody has; None = it is refused."""
    fair_share: bool = False
    """Share between tenants; `tenant_weights` implies it."""
    tenant_weights: tuple[tuple[str, float], ...] = ()
    """Sorted by tenant; others weigh 1."""
    scaler: ScalerSettings = ScalerSettings()


@value
class ResourceSettings:
    """One table of `[[resources]]`: a semaphore or a token bucket, shared over all pools."""

    name: str
    kind: str
    """`semaphore` or `token_bucket`."""
    permits: int = 0
    """Of a semaphore, ≥ 1."""
    rate: float = 0.0
    """Of a token bucket: tokens per second, finite and > 0."""
    burst: int = 0
    """Of a token bucket: its capacity, ≥ 1."""

    @property
    def capacity(self) -> int:
        """The most units that a task can ever have."""
        return self.permits if self.kind == "semaphore" else self.burst


@value
class ScheduleSettings:
    """One table of `[[recurring]]` as it stands in the file; `settings_templates` makes a `RecurringSpec` of it."""

    name: str
    cron: str
    tz: str = ""
    """Empty = UTC."""
    overlap: str = Overlap.SKIP.name.lower()
    gap: str = "shift"
    fold: str = "first"
    pool: str = ""
    """Empty = `default`, as for the kind."""
    kind: str = ""
    priority: str = Priority.NORMAL.name.lower()
    payload: str | None = None
    """At most one of the three; None of them = empty."""
    payload_json: str | None = None
    payload_b64: str | None = None
    content_type: str | None = None
    """None = that of the form in which the payload stands."""
    key: str = ""
    tenant: str = ""
    timeout: int | None = None
    deadline_in: int | None = None
    duration_hint: int | None = None
    tolerance: int = DEFAULT_TOLERANCE
    on_miss: str = MissPolicy.RUN_LATE.name.lower()
    tags: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    retry: RetryOverride | None = None


@value
class TokenSettings:
    """One table of `[[auth.tokens]]`."""

    role: str
    """`client`, `worker`, `metrics` or `admin`."""
    digest: bytes
    """SHA-256 of the token; the token itself is kept nowhere."""
    short: bool = False
    """So few characters that an operator should hear of it."""


@value
class AuthSettings:
    """Table `[auth]`. Without tokens every caller is an admin."""

    tokens: tuple[TokenSettings, ...] = ()


@value
class Settings:
    """The whole configuration, checked."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    limits: LimitSettings = LimitSettings()
    outputs: OutputSettings = OutputSettings()
    pools: tuple[PoolSettings, ...] = (PoolSettings(),)
    resources: tuple[ResourceSettings, ...] = ()
    recurring: tuple[RecurringSpec, ...] = ()
    """Schedules of the file, each with `configured`; they win over stored ones of the same name."""
    auth: AuthSettings = AuthSettings()
