"""How the part of a `TaskSpec` that has no column of its own is stored: one msgpack map per task.

Field names are short because they stand in every row; a field at its default is left out. A reader ignores fields it
does not know and takes the default for those that are missing, so that fields may be added without a migration. `v` is
raised only when an old reader would misunderstand the row:

1. what a task is;
2. also when and where it may run: whoever leaves these fields out would run it at a wrong time or place.

A row has the lowest format that says everything. Dependencies are rows of their own, and of a task only their number
stands here, so that a lost one is noticed; a task that waits for nothing any more has none.
"""

from sys import intern

import msgspec

from cronoq._stores.base import scheduling_of
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.spec import RetryOverride, Scheduling, TaskSpec

PLAIN = 1
SCHEDULED = 2


class _Retry(msgspec.Struct, omit_defaults=True, gc=False):
    """`RetryOverride`; durations in nanoseconds."""

    a: int | None = None
    i: int | None = None
    m: float | None = None
    b: int | None = None
    j: bool | None = None


class _Spec(msgspec.Struct, omit_defaults=True, gc=False):
    """Payload, content type, timeout (nanoseconds), retry override, tags, size (bytes).

    Format 2: deadline (wall time), duration hint (nanoseconds), resources, labels, number of edges.
    """

    v: int
    p: bytes = b""
    c: str = ""
    t: int | None = None
    r: _Retry | None = None
    g: tuple[tuple[str, str], ...] = ()
    s: int = 0
    d: int | None = None
    h: int | None = None
    u: tuple[tuple[str, int], ...] = ()
    l: tuple[tuple[str, str], ...] = ()  # noqa: E741
    e: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Spec).decode


class UndecodableSpec(Exception):
    """The stored bytes are not a specification that this version can read. The text says why."""


def encode_spec(spec: TaskSpec, edges: int = 0) -> bytes:
    """The bytes for the column `spec` of a task that has so many edges. Its deadline is absolute."""
    retry = spec.retry
    stored = _Spec(
        PLAIN,
        spec.payload,
        spec.content_type,
        spec.timeout,
        None
        if retry is None
        else _Retry(retry.max_attempts, retry.initial_backoff, retry.multiplier, retry.max_backoff, retry.jitter),
        spec.tags,
        spec.size,
    )
    asked = spec.scheduling
    if asked is not None:
        assert asked.deadline_in is None
        stored.d, stored.h, stored.u, stored.l = asked.deadline, asked.duration_hint, asked.resources, asked.labels
        if asked.resources or asked.labels or asked.deadline is not None or asked.duration_hint is not None:
            stored.v = SCHEDULED
    if edges:
        stored.e = edges
        stored.v = SCHEDULED
    return _encode(stored)


def decode_spec(
    stored: bytes, pool: str, kind: str, key: str, priority: int, tenant: str = "", edges: tuple[Edge, ...] = ()
) -> TaskSpec:
    """Rebuild the specification from its columns, its stored bytes and its edges. Raises `UndecodableSpec`."""
    try:
        row = _decode(stored)
    except msgspec.MsgspecError as error:
        raise UndecodableSpec(f"the stored specification cannot be decoded: {error}") from None
    if not PLAIN <= row.v <= SCHEDULED:
        raise UndecodableSpec(
            f"the stored specification has format {row.v}; this version reads formats {PLAIN} and {SCHEDULED}"
        )
    if row.e != len(edges):
        raise UndecodableSpec(f"the stored row is damaged: it had {row.e} dependencies, and {len(edges)} are there")
    retry = row.r
    return TaskSpec(
        row.p,
        row.c,
        kind,
        pool,
        priority,
        key,
        row.t,
        None if retry is None else RetryOverride(retry.a, retry.i, retry.m, retry.b, retry.j),
        row.g,
        row.s,
        _scheduling(row, tenant, edges) if tenant or row.v == SCHEDULED else None,
    )


def _scheduling(row: _Spec, tenant: str, edges: tuple[Edge, ...]) -> Scheduling | None:
    """What the task asks of the scheduler. Names are few and tasks are many: each is kept once."""
    resources = tuple((intern(name), units) for name, units in row.u)
    labels = tuple((intern(name), intern(text)) for name, text in row.l)
    return scheduling_of(Scheduling(row.d, None, row.h, (), resources, labels, intern(tenant)), edges)
