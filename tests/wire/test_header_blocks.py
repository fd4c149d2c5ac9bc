"""Kept header blocks: whatever is written can be read by plain HPACK, whatever plain HPACK writes can be read."""

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.wire.header_blocks import BlockReader, BlockWriter

NAMES = st.sampled_from([b":path", b"content-type", b"x-one", b"x-two", b"authorization"])
VALUES = st.sampled_from([b"", b"a", b"application/grpc", b"v" * 100, b"w" * 2_000, b"w" * 2_001])
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
SIZES = st.sampled_from([0, 60, 2_100, 4_096])


@given(st.lists(FIELDS | SIZES, max_size=12))
def test_what_is_written_reads_the_same(steps: list[list[tuple[bytes, bytes]] | int]) -> None:
    writer, decoder = BlockWriter(Encoder()), Decoder()
    for step in steps:
        if isinstance(step, int):
            writer.resize(step)
            decoder.max_allowed_table_size = 4_096
            continue
        for _ in range(3):  # the third is kept, if it can be
            once = [(b"grpc-timeout", b"1S")]
            block = writer.write(tuple(step), once)
            assert decoder.decode(block, raw=True) == [*step, *once]


@given(st.lists(FIELDS, max_size=12), st.booleans())
def test_what_plain_hpack_writes_reads_the_same(blocks: list[list[tuple[bytes, bytes]]], huffman: bool) -> None:
    encoder, reader = Encoder(), BlockReader(1 << 20)
    for fields in blocks:
        for _ in range(3):
            assert reader.read(encoder.encode(fields, huffman=huffman)) == fields


def test_a_table_that_moves_without_changing_its_length_is_noticed() -> None:
    """Two large entries push each other out: length and front look alike, and an old block would mean the wrong one."""
    encoder, reader = Encoder(), BlockReader(1 << 20)
    first, second = [(b"x-one", b"a" * 3_000)], [(b"x-two", b"b" * 3_000)]
    for fields in (first, first, second, second, first, first):
        assert reader.read(encoder.encode(fields)) == fields


def test_a_size_that_is_told_twice_is_announced_once() -> None:
    writer, decoder = BlockWriter(Encoder()), Decoder()
    for size in (60, 60):
        writer.resize(size)
    fields = ((b"x", b"y"),)
    for _ in range(2):
        assert decoder.decode(writer.write(fields, []), raw=True) == list(fields)
    assert decoder.header_table_size == 60


def test_blocks_are_kept_and_few() -> None:
    writer = BlockWriter(Encoder())
    fields = ((b":method", b"POST"),)
    assert writer.write(fields, []) is writer.write(fields, [])
    reader = BlockReader(1 << 20)
    kept = reader.read(b"\x83")
    assert kept == [(b":method", b"POST")] and reader.read(b"\x83") is kept
    for number in range(1, 62):
        for other in range(1, 62):
            reader.read(bytes((0x80 | number, 0x80 | other)))
    assert reader.read(b"\x83") == kept


@pytest.mark.parametrize("block", [b"\xff", b"\xff\xff\xff\xff\xff\xff", b"\x40\x01", b"\x3f\xff\xff\xff"])
def test_what_cannot_be_decoded_raises(block: bytes) -> None:
    with pytest.raises(HPACKError):
        BlockReader(1_000).read(block)


def test_a_list_above_the_limit_raises() -> None:
    with pytest.raises(HPACKError):
        BlockReader(1_000).read(Encoder().encode([(b"x", b"y" * 1_001)]))
