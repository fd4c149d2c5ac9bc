"""Where our HTTP/2 machine and h2 do not do the same, on purpose. Every other difference is a fault of one of them."""

import struct
from collections.abc import Callable

from hpack import Encoder

from cronoq_sansio.values import value
from cronoq_sansio.wire.http2_fields import content_length, request_fault, trailers_fault
from tests.wire import raw
from tests.wire.http2_pair import Outcome
from tests.wire.http2_scripts import REQUEST, Step

Matches = Callable[[bytes, Outcome, Outcome], bool]
BLOCK_KINDS = (raw.HEADERS, raw.CONTINUATION)
ALTSVC = 10
CHARACTERS = ("no method", "an authority", "no path", "no scheme")


@value
class Difference:
    """A row of the table in docs/protocol/http2.md."""

    what: str
    section: str
    """Of RFC 9113, or of the RFC that is named."""
    ours: str
    theirs: str
    matches: Matches
    """Whether a frame, and what ours and h2 made of it, is a case of it."""
    example: tuple[Step, ...]
    """The last step shows it."""

    def has(self, frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
        """Whether this is a case; of a frame that is not whole, the head alone was looked at."""
        whole = len(frame) >= 9 and len(frame) == 9 + int.from_bytes(frame[:3], "big")
        return whole is not (self.matches is _head_alone) and self.matches(frame, ours, theirs)


def head(*fields: tuple[bytes, bytes], stream_id: int = 1, flags: int = raw.END_HEADERS) -> bytes:
    """HEADERS that leave the dynamic table alone."""
    block = Encoder().encode([(name, text, True) for name, text in fields], huffman=False)
    return raw.frame(raw.HEADERS, flags, stream_id, block)


def request(stream_id: int = 1, *more: tuple[bytes, bytes], end: bool = False) -> bytes:
    flags = raw.END_HEADERS | (raw.END_STREAM if end else 0)
    return head(*REQUEST, *more, stream_id=stream_id, flags=flags)


def _fields(outcome: Outcome) -> list[tuple[bytes, bytes]] | None:
    """Of the request that a machine took."""
    return next((list(event[2]) for event in outcome.events if event[0] == "request"), None)


def _malformed(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    if ours.failed or not theirs.failed or [code for _, code in ours.resets] not in ([1], [7]):
        return False
    return frame[3] in (raw.DATA, *BLOCK_KINDS)


def _target(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    fields = _fields(theirs)
    return bool(ours.resets) and fields is not None and request_fault(fields).startswith(CHARACTERS)


def _field_characters(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    fields = _fields(theirs)
    fault = ""
    if fields is not None:
        fault = request_fault(fields)
    elif theirs.trailers is not None:
        fault = trailers_fault(theirs.trailers.fields)
    return bool(ours.resets) and fault.startswith(("a field name", "a field value"))


def _ends_too_soon(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    fields = _fields(theirs)
    if theirs.trailers is not None:
        return bool(ours.resets) and theirs.trailers.owed and not trailers_fault(theirs.trailers.fields)
    if fields is None or not ours.resets or request_fault(fields):
        return False
    length = content_length(fields)
    return length is not None and length > 0 and theirs.events[-1][0] == "end"


def _long_length(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    fields = _fields(theirs)
    return fields is not None and bool(ours.resets) and not request_fault(fields) and content_length(fields) is None


def _length_in_trailers(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    trailers = ours.trailers
    return trailers is not None and theirs.failed and not ours.resets and content_length(trailers.fields) is None


def _no_authority(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    fields = _fields(ours)
    return theirs.failed and fields is not None and not {b":authority", b"host"} & set(dict(fields))


def _on_its_way(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return (
        frame[3] in (raw.DATA, *BLOCK_KINDS)
        and ours == Outcome((), (), None)
        and [code for _, code in theirs.resets] == [5]
    )


def _never_opened(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return ours.why.endswith(("on a stream that was not opened", "on a stream of the wrong side")) and not theirs.failed


def _after_both_ends(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return ours.why.endswith("on a stream that has ended") and not theirs.failed


def _priority(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.PRIORITY and theirs.failed and [code for _, code in ours.resets] in ([1], [6])


def _itself(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.HEADERS and ours.why == "a stream that depends on itself" and not theirs.failed


def _settings_in_order(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    if frame[3] != raw.SETTINGS or not ours.failed or theirs.failed:
        return False
    names = [frame[at : at + 2] for at in range(9, len(frame), 6)]
    return len(set(names)) < len(names)


def _settings_of_others(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.SETTINGS and theirs.failed and not ours.failed


def _head_alone(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return ours.failed is not theirs.failed


def _all_padding(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    if frame[3] != raw.HEADERS or not frame[4] & raw.PADDED or ours.failed or not theirs.failed:
        return False
    if [code for _, code in ours.resets] not in ([], [5]):
        return False
    return frame[9:10] == bytes([(len(frame) - 10 - (5 if frame[4] & 0x20 else 0)) & 255])


def _long_padding(_frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return ours.why == "HEADERS too short for their priority" and not theirs.failed


def _push(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.PUSH_PROMISE and ours.failed and not theirs.failed


def _goaway(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.GOAWAY and ours.why == "GOAWAY on a stream" and not theirs.failed


def _reserved_bit(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == raw.WINDOW_UPDATE and frame[9] & 0x80 > 0 and theirs.failed and not ours.failed


def _nothing(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return (
        frame[3:5] == bytes([raw.WINDOW_UPDATE, frame[4]])
        and frame[9:] == bytes(4)
        and theirs.failed
        and not ours.failed
        and [code for _, code in ours.resets] in ([1], [])
    )


def _extension(frame: bytes, ours: Outcome, theirs: Outcome) -> bool:
    return frame[3] == ALTSVC and theirs.failed and not ours.failed


BAD = (b"x name", b"1")
DIFFERENCES = (
    Difference(
        "a malformed message: fields, or content that is not as long as it says; on a stream too many, too",
        "8.1.1",
        "its stream is reset, or refused",
        "ends the connection",
        _malformed,
        (request(1, BAD),),
    ),
    Difference(
        "characters that a method, scheme, path or authority cannot have",
        "8.3.1",
        "malformed",
        "not looked at",
        _target,
        (head(*REQUEST[:2], (b":path", b"no slash"), *REQUEST[3:]),),
    ),
    Difference(
        "field names that are no tokens, and control characters in field values other than NUL and line breaks",
        "RFC 9110 5.1, 5.5",
        "malformed",
        "taken",
        _field_characters,
        (request(1, (b"x", b"bell\x07")),),
    ),
    Difference(
        "a request that ends with its headers or trailers, and says that it has more content",
        "8.1.1",
        "malformed",
        "not looked at",
        _ends_too_soon,
        (request(1, (b"content-length", b"5"), end=True),),
    ),
    Difference(
        "a content-length of more than 18 digits",
        "8.1.1",
        "malformed",
        "taken",
        _long_length,
        (request(1, (b"content-length", b"9" * 20)),),
    ),
    Difference(
        "a content-length in trailers that is no length",
        "RFC 9110 6.5.1",
        "dropped, as all that is in trailers",
        "ends the connection",
        _length_in_trailers,
        (request(), head((b"content-length", b"none"), flags=5)),
    ),
    Difference(
        "a request with neither authority nor host",
        "8.3.1",
        "taken",
        "ends the connection",
        _no_authority,
        (head(*REQUEST[:3], *REQUEST[4:]),),
    ),
    Difference(
        "DATA and HEADERS that were on their way when we reset their stream",
        "5.1",
        "dropped",
        "answered with one more RST_STREAM",
        _on_its_way,
        (request(), ("reset", 1), raw.frame(raw.DATA, 0, 1, b"x")),
    ),
    Difference(
        "frames on streams that the peer has skipped, or could not open",
        "5.1.1",
        "end the connection",
        "reset, or not looked at",
        _never_opened,
        (request(5), raw.frame(raw.RST_STREAM, 0, 3, bytes(4))),
    ),
    Difference(
        "content on a stream that both sides have ended",
        "5.1",
        "ends the connection",
        "answered with RST_STREAM",
        _after_both_ends,
        (request(end=True), ("answer", 1), raw.frame(raw.DATA, 0, 1, b"x")),
    ),
    Difference(
        "a PRIORITY frame that is malformed",
        "6.3",
        "its stream is reset",
        "ends the connection",
        _priority,
        (request(), raw.frame(raw.PRIORITY, 0, 1, bytes(4))),
    ),
    Difference(
        "HEADERS whose stream depends on itself, and that go on",
        "RFC 7540 5.3.1",
        "end the connection at once",
        "end it with the header block",
        _itself,
        (raw.frame(raw.HEADERS, 0x20, 1, struct.pack(">LB", 1, 15)),),
    ),
    Difference(
        "a wrong value in SETTINGS that is followed by a right one",
        "6.5.3",
        "ends the connection",
        "not looked at",
        _settings_in_order,
        (raw.frame(raw.SETTINGS, 0, 0, struct.pack(">HLHL", 5, 1, 5, 16_384)),),
    ),
    Difference(
        "a wrong value of SETTINGS_ENABLE_CONNECT_PROTOCOL, from a client",
        "RFC 8441 3",
        "not looked at, as of all that mean nothing to a server",
        "ends the connection",
        _settings_of_others,
        (raw.frame(raw.SETTINGS, 0, 0, struct.pack(">HL", 8, 2)),),
    ),
    Difference(
        "PUSH_PROMISE whose header block goes on",
        "8.4",
        "ends the connection at once",
        "ends it with the header block",
        _push,
        (raw.frame(raw.PUSH_PROMISE, 0, 1, struct.pack(">L", 2)),),
    ),
    Difference(
        "GOAWAY on a stream",
        "6.8",
        "ends the connection",
        "taken",
        _goaway,
        (request(), raw.frame(raw.GOAWAY, 0, 1, bytes(8))),
    ),
    Difference(
        "the reserved bit of WINDOW_UPDATE",
        "6.9",
        "not looked at",
        "ends the connection",
        _reserved_bit,
        (raw.frame(raw.WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 31 | 5)),),
    ),
    Difference(
        "a WINDOW_UPDATE of nothing on a stream",
        "6.9",
        "its stream is reset, if it is not over",
        "ends the connection",
        _nothing,
        (request(), raw.frame(raw.WINDOW_UPDATE, 0, 1, bytes(4))),
    ),
    Difference(
        "a malformed frame of an extension that nobody has agreed on",
        "5.5",
        "not looked at",
        "ends the connection",
        _extension,
        (raw.frame(ALTSVC, 0, 0, b"\0\xffx"),),
    ),
    Difference(
        "the head of a frame that may not be there, before the rest has come",
        "6.10",
        "ends the connection at once, unless it is its length that is too small",
        "ends it with the frame, unless it is a GOAWAY that is too short",
        _head_alone,
        (raw.frame(raw.HEADERS, 0, 1), raw.frame(raw.PING, 0, 0, bytes(8))[:12]),
    ),
    Difference(
        "HEADERS that are padding alone, and go on or come too late",
        "6.2",
        "taken, or their stream is reset",
        "end the connection",
        _all_padding,
        (raw.frame(raw.HEADERS, raw.PADDED, 1, b"\2\0\0"),),
    ),
    Difference(
        "HEADERS whose padding reaches into their priority",
        "6.2",
        "end the connection",
        "taken",
        _long_padding,
        (raw.frame(raw.HEADERS, raw.PADDED | 0x20, 1, b"\6" + bytes(10)),),
    ),
)
