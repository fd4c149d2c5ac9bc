"""Call metadata as gRPC puts it into HTTP/2 headers (gRPC over HTTP/2, "Requests" and "Responses")."""

import base64
import binascii
import re
from collections.abc import Iterable
from functools import lru_cache

from cronoq_sansio.clock import MAX_CLIENT_DURATION, MICROSECOND, MILLISECOND, SECOND
from cronoq_sansio.limits import MAX_GRPC_TIMEOUT_DIGITS

Headers = list[tuple[bytes, bytes]]
#: What a server sent, for people who call it: names, and values as text or (`-bin`) bytes.
Metadata = tuple[tuple[str, str | bytes], ...]

#: "TimeoutUnit": hour, minute, second, milli-, micro-, nanosecond.
TIMEOUT_UNITS = {
    b"H": 3_600 * SECOND,
    b"M": 60 * SECOND,
    b"S": SECOND,
    b"m": MILLISECOND,
    b"u": MICROSECOND,
    b"n": 1,
}
_TIMEOUT = re.compile(rb"([0-9]{1,%d})([HMSmun])" % MAX_GRPC_TIMEOUT_DIGITS)
_CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?[ \t]*(;.*)?", re.IGNORECASE | re.DOTALL)
_PRINTABLE = re.compile(r"[ -~]*")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_NAME = re.compile(r"[a-z0-9_.-]+")
_LONG_TIMEOUT = 10**MAX_GRPC_TIMEOUT_DIGITS * SECOND  #: three years, too many seconds for eight digits
_TIMEOUT_DIGITS = 4  #: that say more than 0
_UNITS_BY_SIZE = sorted(TIMEOUT_UNITS.items(), key=lambda entry: entry[1])
_OF_GRPC = frozenset((b"content-type", b"grpc-status", b"grpc-message", b"grpc-encoding", b"grpc-accept-encoding"))
_HEX = "0123456789ABCDEF"
_VERBATIM = frozenset(range(0x20, 0x7F)) - {ord("%")}


def parse_timeout(value: bytes) -> int | None:
    """The nanoseconds that a `grpc-timeout` names; None when it is not `[0-9]{1,8}[HMSmun]`.

    Timeouts beyond 100 years count as 100 years, so that sums of times stay within 64 bits.
    """
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        return None
    return min(int(match[1]) * TIMEOUT_UNITS[match[2]], MAX_CLIENT_DURATION)


def is_grpc(content_type: bytes) -> bool:
    """Whether a request with this content type carries protobuf messages in gRPC framing."""
    return _CONTENT_TYPE.fullmatch(content_type) is not None


def percent_encode(text: str, limit: int) -> bytes:
    """`text` as a `grpc-message`: UTF-8, everything but printable ASCII escaped; cut to `limit` bytes."""
    if len(text) <= limit and "%" not in text and _PRINTABLE.fullmatch(text):
        return text.encode("ascii")
    parts: list[str] = []
    size = 0
    for character in text:
        escaped = "".join(
            chr(byte) if byte in _VERBATIM else f"%{_HEX[byte >> 4]}{_HEX[byte & 15]}"
            for byte in character.encode("utf-8", "replace")
        )
        size += len(escaped)
        if size > limit:
            break
        parts.append(escaped)
    return "".join(parts).encode("ascii")


def percent_decode(value: bytes) -> str:
    """The text of a `grpc-message`; what is not well escaped, or not UTF-8, is kept as far as it can be read."""
    if b"%" not in value:
        return value.decode("utf-8", "replace")
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), value).decode("utf-8", "replace")


def encode_timeout(duration: int) -> bytes:
    """`grpc-timeout` of at least 1 ns, rounded up by a thousandth at most.

    Calls with the same time limit have a little less of it left when they go out; rounded, they all say the same, which
    compresses. gRPC's own library rounds to three digits.
    """
    duration = max(duration, 1)
    if duration < 10_000:
        return b"%dn" % duration
    if duration < _LONG_TIMEOUT:
        step: int = 10 ** (len(str(duration)) - _TIMEOUT_DIGITS)
        duration = -(-duration // step) * step
    return _encode_rounded(duration)


def timeout_step(duration: int) -> tuple[int, int]:
    """The durations for which `encode_timeout` says the same as for this one: above the first, up to the second."""
    if not 10_000 <= duration < _LONG_TIMEOUT:
        return duration - 1, duration
    step: int = 10 ** (len(str(duration)) - _TIMEOUT_DIGITS)
    rounded = -(-duration // step) * step
    # Below the least number of as many digits the steps are smaller.
    return max(rounded - step, step * 10 ** (_TIMEOUT_DIGITS - 1) - 1), rounded


@lru_cache(64)
def _encode_rounded(duration: int) -> bytes:
    """In the coarsest unit that is exact, or in the finest one in which it is not too long."""
    for unit, size in reversed(_UNITS_BY_SIZE):
        amount, rest = divmod(duration, size)
        if not rest and amount < 10**MAX_GRPC_TIMEOUT_DIGITS:
            return b"%d%s" % (amount, unit)
    for unit, size in _UNITS_BY_SIZE:
        amount = -(-duration // size)
        if amount < 10**MAX_GRPC_TIMEOUT_DIGITS:
            return b"%d%s" % (amount, unit)
    return b"9" * MAX_GRPC_TIMEOUT_DIGITS + b"H"


def request_entry(name: str, value: str | bytes) -> tuple[bytes, bytes]:
    """A metadata entry of a caller as a header field. ValueError says which rule it breaks ("Custom-Metadata")."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"metadata name {name!r}: only a-z, 0-9, '_', '-' and '.' are allowed")
    if name.startswith("grpc-") or name in ("te", "content-type", "user-agent"):
        raise ValueError(f"metadata name {name!r} is reserved for gRPC")
    if name.endswith("-bin"):
        if isinstance(value, str):
            raise ValueError(f"metadata {name!r}: values of names that end in -bin are bytes")
        return name.encode(), base64.b64encode(value).rstrip(b"=")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not _PRINTABLE.fullmatch(text) or text != text.strip(" "):
        raise ValueError(f"metadata {name!r}: the value must be printable ASCII without spaces around it")
    return name.encode(), text.encode()


def response_metadata(*blocks: Iterable[tuple[bytes, bytes]]) -> Metadata:
    """What a server sent beside gRPC's own fields, in order; `-bin` values as bytes (undecoded when not base64)."""
    return tuple(
        (name.decode("ascii", "replace"), (decode_binary(value) or value))
        if name.endswith(b"-bin")
        else (name.decode("ascii", "replace"), value.decode("utf-8", "replace"))
        for block in blocks
        for name, value in block
        if not name.startswith(b":") and name not in _OF_GRPC
    )


def encode_entry(name: str, value: str) -> tuple[bytes, bytes]:
    """A metadata entry of ours as a header field: names that end in `-bin` carry base64, others printable ASCII."""
    key = name.encode("ascii")
    if key.endswith(b"-bin"):
        return key, base64.b64encode(value.encode()).rstrip(b"=")
    return key, percent_encode(value, len(value) * 12)


def decode_binary(value: bytes) -> bytes | None:
    """The bytes of a `-bin` value, padded or not; None when it is not base64. Several, comma-separated, are joined."""
    try:
        return b",".join(
            base64.b64decode(part + b"=" * (-len(part) % 4), validate=True)
            for part in value.replace(b" ", b"").split(b",")
        )
    except binascii.Error:
        return None


def application_metadata(headers: Iterable[tuple[bytes, bytes]]) -> Headers | None:
    """What the caller sent beside HTTP/2's pseudo-header fields, `-bin` values decoded; None when one is not base64."""
    entries: Headers = []
    for name, value in headers:
        if name.startswith(b":"):
            continue
        if name.endswith(b"-bin"):
            decoded = decode_binary(value)
            if decoded is None:
                return None
            entries.append((name, decoded))
        else:
            entries.append((name, value))
    return entries
