"""How the part of a `TaskSpec` that has no column of its own is stored: one msgpack map per task.

Format 1. Field names are short because they stand in every row; a field at its default is left out. A reader ignores
fields it does not know and takes the default for those that are missing, so that fields may be added without a
migration. `v` is raised only when an old reader would misunderstand the row.
"""

import msgspec

from cronoq_sansio.spec import RetryOverride, TaskSpec

FORMAT = 1


class _Retry(msgspec.Struct, omit_defaults=True, gc=False):
    """`RetryOverride`; durations in nanoseconds."""

    a: int | None = None
    i: int | None = None
    m: float | None = None
    b: int | None = None
    j: bool | None = None


class _Spec(msgspec.Struct, omit_defaults=True, gc=False):
    """Payload, content type, timeout (nanoseconds), retry override, tags, size (bytes)."""

    v: int
    p: bytes = b""
    c: str = ""
    t: int | None = None
    r: _Retry | None = None
    g: tuple[tuple[str, str], ...] = ()
    s: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Spec).decode


class UndecodableSpec(Exception):
    """The stored bytes are not a specification that this version can read. The text says why."""


def encode_spec(spec: TaskSpec) -> bytes:
    """The bytes for the column `spec`."""
    retry = spec.retry
    return _encode(
        _Spec(
            FORMAT,
            spec.payload,
            spec.content_type,
            spec.timeout,
            None
            if retry is None
            else _Retry(retry.max_attempts, retry.initial_backoff, retry.multiplier, retry.max_backoff, retry.jitter),
            spec.tags,
            spec.size,
        )
    )


def decode_spec(stored: bytes, pool: str, kind: str, key: str, priority: int) -> TaskSpec:
    """Rebuild the specification from its columns and its stored bytes. Raises `UndecodableSpec`."""
    try:
        row = _decode(stored)
    except msgspec.MsgspecError as error:
        raise UndecodableSpec(f"the stored specification cannot be decoded: {error}") from None
    if row.v != FORMAT:
        raise UndecodableSpec(f"the stored specification has format {row.v}; this version reads format {FORMAT}")
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
    )
