"""How the part of a `TaskSpec` that has no column of its own is stored: one msgpack map per task or template.

Field names are short because they stand in every row; a field at its default is left out. A reader ignores fields it
does not know and takes the default for those that are missing, so that fields may be added without a migration. `v` is
raised only when an old reader would misunderstand the row:

1. what a task is;
2. also when and where it may run: whoever leaves these fields out would run it at a wrong time or place;
3. also when it must start, and, in the template of a schedule, by when it should have ended after its start.

A row has the lowest format that says everything. Dependencies are rows of their own, and of a task only their number
stands here, so that a lost one is noticed; a task that waits for nothing any more has none. A task's times are
absolute; the template of a schedule has one relative time, its deadline, and no edges.
"""

from sys import intern
from typing import Annotated, TypeVar

import msgspec

from cronoq._stores.base import scheduling_of
from cronoq_sansio.engine.records import Edge
from cronoq_sansio.spec import RetryOverride, Scheduling, TaskSpec

PLAIN = 1
SCHEDULED = 2
TIMED = 3

TOLERANCE = 1_000_000_000
ON_MISS = 1
"""What a row means that does not name them; never to be changed, whatever the defaults of a submission are."""


class _Retry(msgspec.Struct, omit_defaults=True, gc=False):
    """`RetryOverride`; durations in nanoseconds."""

    a: int | None = None
    i: int | None = None
    m: float | None = None
    b: int | None = None
    j: bool | None = None


class _Plain(msgspec.Struct, omit_defaults=True, gc=False):
    """Payload, content type, timeout (nanoseconds), retry override, tags, size (bytes): all that format 1 has."""

    v: int
    p: bytes = b""
    c: str = ""
    t: int | None = None
    r: _Retry | None = None
    g: tuple[tuple[str, str], ...] = ()
    s: int = 0


class _Spec(_Plain, omit_defaults=True, gc=False):
    """What a row may have.

    Format 2: deadline (wall time), duration hint (nanoseconds), resources, labels, number of edges.
    Format 3: start (wall time), tolerance (nanoseconds), `MissPolicy`, deadline from the start on (nanoseconds).
    """

    d: int | None = None
    h: int | None = None
    u: tuple[tuple[str, int], ...] = ()
    l: tuple[tuple[str, str], ...] = ()  # noqa: E741
    e: int = 0
    b: int | None = None
    o: Annotated[int, msgspec.Meta(ge=0)] = TOLERANCE
    m: Annotated[int, msgspec.Meta(ge=1, le=3)] = ON_MISS
    f: int | None = None


P = TypeVar("P", bound=_Plain)

_encode = msgspec.msgpack.Encoder().encode
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder(_Spec).decode


class UndecodableSpec(Exception):
    """The stored bytes are not a specification that this version can read. The text says why."""


def encode_spec(spec: TaskSpec, edges: int = 0) -> bytearray:
    """The bytes for the column `spec` of a task that has so many edges. Its times are absolute.

    A `bytearray`, because that is what sqlite3 binds fastest (sqlite_rows.py).
    """
    asked = spec.scheduling
    encoded = bytearray()
    if asked is None and not edges:
        _encode_into(_plain(_Plain, spec), encoded)
    else:
        assert asked is None or asked.deadline_in is None
        _encode_into(_stored(spec, asked, edges), encoded)
    return encoded


def encode_template(template: TaskSpec) -> bytes:
    """The bytes for the template of a schedule: its deadline counts from the start, and it has no other time."""
    asked = template.scheduling
    assert asked is None or (asked.deadline is None and asked.start is None and not asked.dependencies)
    return _encode(_stored(template, asked, 0))


def _plain(form: type[P], spec: TaskSpec) -> P:
    """What format 1 has, in the form for that alone or in the one for all."""
    retry = spec.retry
    return form(
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


def _stored(spec: TaskSpec, asked: Scheduling | None, edges: int) -> _Spec:
    stored = _plain(_Spec, spec)
    if edges:
        stored.e = edges
        stored.v = SCHEDULED
    if asked is not None:
        assert asked.start_in is None
        stored.d, stored.h, stored.u, stored.l = asked.deadline, asked.duration_hint, asked.resources, asked.labels
        if asked.resources or asked.labels or asked.deadline is not None or asked.duration_hint is not None:
            stored.v = SCHEDULED
        stored.b, stored.f, stored.m = asked.start, asked.deadline_in, int(asked.on_miss)
        if asked.tolerance != TOLERANCE:  # msgspec knows a default by its identity, and this is no small number
            stored.o = asked.tolerance
        if (stored.b, stored.f, stored.m, stored.o) != (None, None, ON_MISS, TOLERANCE):
            stored.v = TIMED
    return stored


def decode_spec(
    stored: bytes, pool: str, kind: str, key: str, priority: int, tenant: str = "", edges: tuple[Edge, ...] = ()
) -> TaskSpec:
    """Rebuild the specification from its columns, its stored bytes and its edges. Raises `UndecodableSpec`."""
    row = _decoded(stored)
    if row.f is not None:
        raise UndecodableSpec("the stored row is damaged: the deadline of a task counts from its start")
    if row.e != len(edges):
        raise UndecodableSpec(f"the stored row is damaged: it had {row.e} dependencies, and {len(edges)} are there")
    return _spec(row, pool, kind, key, priority, tenant, edges)


def decode_template(stored: bytes, pool: str, kind: str, key: str, priority: int, tenant: str) -> TaskSpec:
    """Rebuild the template of a schedule from its columns and its stored bytes. Raises `UndecodableSpec`."""
    row = _decoded(stored)
    if row.e or row.d is not None or row.b is not None:
        raise UndecodableSpec("the stored row is damaged: a template has dependencies, or times of its own")
    return _spec(row, pool, kind, key, priority, tenant, ())


def _decoded(stored: bytes) -> _Spec:
    try:
        row = _decode(stored)
    except msgspec.MsgspecError as error:
        raise UndecodableSpec(f"the stored specification cannot be decoded: {error}") from None
    if not PLAIN <= row.v <= TIMED:
        raise UndecodableSpec(
            f"the stored specification has format {row.v}; this version reads formats {PLAIN} to {TIMED}"
        )
    return row


def _spec(row: _Spec, pool: str, kind: str, key: str, priority: int, tenant: str, edges: tuple[Edge, ...]) -> TaskSpec:
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
        _scheduling(row, tenant, edges) if tenant or row.v > PLAIN else None,
    )


def _scheduling(row: _Spec, tenant: str, edges: tuple[Edge, ...]) -> Scheduling | None:
    """What the task asks of the scheduler. Names are few and tasks are many: each is kept once."""
    resources = tuple((intern(name), units) for name, units in row.u)
    labels = tuple((intern(name), intern(text)) for name, text in row.l)
    asked = Scheduling(row.d, row.f, row.h, (), resources, labels, intern(tenant), row.b, None, row.o, row.m)
    return scheduling_of(asked, edges)
