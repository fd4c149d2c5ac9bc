"""Length-prefixed messages: any cut of the bytes gives the same messages, and nothing above the limit is kept."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.wire.framing import SERVER_LIMIT, MessageReader, frame
from cronoq_sansio.wire.inflation import Inflation

LIMIT = 64


def inflate(data: bytes, limit: int) -> bytes | Rejection | None:
    return Inflation(data, limit, SERVER_LIMIT).go_on()


def feed_in_pieces(reader: MessageReader, data: bytes, cuts: list[int]) -> list[bytes | Rejection]:
    found: list[bytes | Rejection] = []
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    for start, end in zip(edges, edges[1:], strict=False):
        found += reader.feed(data[start:end])
    return found


def packed(message: bytes) -> bytes:
    compressed = gzip.compress(message)
    return b"\x01" + len(compressed).to_bytes(4, "big") + compressed


@given(
    messages=st.lists(st.tuples(st.binary(max_size=30), st.booleans()), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_any_cut_gives_the_same_messages(messages: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    data = b"".join(packed(message) if zipped else frame(message) for message, zipped in messages)
    expected = [message for message, _ in messages]
    for chosen in (cuts, [], list(range(len(data)))):
        reader = MessageReader(LIMIT, gzip=True)
        assert feed_in_pieces(reader, data, chosen) == expected
        assert reader.buffered == 0


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=10))
def test_garbage_is_cut_the_same_way_and_never_buffered_beyond_the_limit(data: bytes, cuts: list[int]) -> None:
    whole, pieces = MessageReader(LIMIT, gzip=True), MessageReader(LIMIT, gzip=True)
    expected = whole.feed(data)
    assert feed_in_pieces(pieces, data, cuts) == expected
    assert pieces.buffered == whole.buffered <= 5 + LIMIT
    for item in expected[:-1]:
        assert not isinstance(item, Rejection)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"\0\0\0\0\x41", Code.TOO_LARGE, ["65 bytes", "limit of 64"]),
        (b"\0\xff\xff\xff\xff", Code.TOO_LARGE, ["4294967295"]),
        (b"\x02\0\0\0\0", Code.INVALID, ["flags are 2"]),
        (b"\x01\0\0\0\0", Code.INVALID, ["names no compression"]),
    ],
)
def test_a_bad_prefix_is_refused_before_the_message_comes(data: bytes, code: Code, words: list[str]) -> None:
    reader = MessageReader(LIMIT)
    assert reader.feed(data[:4]) == []
    (refusal,) = reader.feed(data[4:])
    assert isinstance(refusal, Rejection) and refusal.code is code
    assert all(word in refusal.message for word in words)
    assert reader.feed(frame(b"more")) == [] and reader.buffered == 0


def test_messages_before_the_fault_are_kept() -> None:
    first, second, refusal = MessageReader(LIMIT).feed(frame(b"a") + frame(b"b") + b"\x07" + b"\0" * 4 + frame(b"c"))
    assert (first, second) == (b"a", b"b") and isinstance(refusal, Rejection)


def test_a_message_of_exactly_the_limit_passes() -> None:
    assert MessageReader(LIMIT).feed(frame(b"x" * LIMIT)) == [b"x" * LIMIT]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (gzip.compress(b"x" * (LIMIT + 1)), Code.TOO_LARGE),
        (gzip.compress(b"x" * 100_000_000, 9), Code.TOO_LARGE),
        (b"no gzip", Code.INVALID),
        (b"", Code.INVALID),
        (gzip.compress(b"abc")[:-4], Code.INVALID),
        (gzip.compress(b"abc") * 2, Code.INVALID),
        (zlib.compress(b"abc"), Code.INVALID),
    ],
    ids=["one byte too many", "bomb", "not gzip", "empty", "cut off", "two members", "zlib"],
)
def test_bad_gzip(data: bytes, code: Code) -> None:
    refusal = inflate(data, LIMIT)
    assert isinstance(refusal, Rejection) and refusal.code is code


def test_a_bomb_takes_little_memory() -> None:
    import tracemalloc

    bomb = gzip.compress(b"\0" * 50_000_000, 9)
    tracemalloc.start()
    try:
        assert isinstance(inflate(bomb, 1_000_000), Rejection)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_gzip_of_exactly_the_limit_passes() -> None:
    assert inflate(gzip.compress(b"x" * LIMIT), LIMIT) == b"x" * LIMIT
