"""HPACK of our own: the examples of RFC 7541 octet by octet, hpack as the oracle both ways, and what a peer may not do.

Where ours and hpack differ, and nowhere else (`differs`): an integer in more than five octets is refused (section 5.1:
"excessively large encodings … in value or octet length … MUST be treated as decoding errors"), and so is a block that
begins with more than two table sizes (section 4.2: the smallest one and the last are told, "at most two").
"""

import copy
import re

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.wire import huffman
from cronoq_sansio.wire.hpack_decoder import Decoder, HeaderList, Unreadable, integer
from cronoq_sansio.wire.hpack_encoder import Encoder
from cronoq_sansio.wire.hpack_tables import DEFAULT_TABLE, INDEXED, OVERHEAD, RESIZED, STATIC
from cronoq_sansio.wire.hpack_tables import integer as write_integer
from cronoq_sansio.wire.http2_words import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

Fields = list[tuple[bytes, bytes]]

MAX_LIST = 16_384


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


def read(decoder: Decoder, block: bytes) -> Fields:
    headers = decoder.decode(block)
    assert isinstance(headers, HeaderList), headers
    return headers.fields


def refused(decoder: Decoder, block: bytes) -> int:
    fault = decoder.decode(block)
    assert isinstance(fault, Unreadable)
    return fault.code


# --- RFC 7541 appendix A, B and C


def test_the_static_table_is_that_of_the_standard() -> None:
    assert STATIC == HeaderTable.STATIC_TABLE and len(STATIC) == 61


INTEGERS = [(10, 5, "0a"), (1337, 5, "1f9a0a"), (42, 8, "2a")]


@pytest.mark.parametrize(("value", "prefix", "code"), INTEGERS)
def test_integers_of_appendix_c1(value: int, prefix: int, code: str) -> None:
    assert write_integer(value, prefix, 0) == octets(code)
    assert integer(octets(code), 0, (1 << prefix) - 1) == (value, len(code) // 2)


SINGLE: dict[str, tuple[str, Fields, int]] = {
    "C.2.1 literal with indexing": (
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        [(b"custom-key", b"custom-header")],
        55,
    ),
    "C.2.2 literal without indexing": ("040c 2f73 616d 706c 652f 7061 7468", [(b":path", b"/sample/path")], 0),
    "C.2.3 never indexed": ("1008 7061 7373 776f 7264 0673 6563 7265 74", [(b"password", b"secret")], 0),
    "C.2.4 indexed": ("82", [(b":method", b"GET")], 0),
}


@pytest.mark.parametrize(("block", "fields", "size"), SINGLE.values(), ids=SINGLE)
def test_single_fields_of_appendix_c2(block: str, fields: Fields, size: int) -> None:
    decoder = Decoder(MAX_LIST)
    assert read(decoder, octets(block)) == fields
    assert decoder._size == size


GET = (b":method", b"GET")
AUTHORITY = (b":authority", b"www.example.com")
REQUESTS: list[tuple[Fields, int]] = [
    ([GET, (b":scheme", b"http"), (b":path", b"/"), AUTHORITY], 57),
    ([GET, (b":scheme", b"http"), (b":path", b"/"), AUTHORITY, (b"cache-control", b"no-cache")], 110),
    (
        [GET, (b":scheme", b"https"), (b":path", b"/index.html"), AUTHORITY, (b"custom-key", b"custom-value")],
        164,
    ),
]
COOKIE = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
PRIVATE, LOCATION = (b"cache-control", b"private"), (b"location", b"https://www.example.com")
FIRST_DATE = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
RESPONSES: list[tuple[Fields, int]] = [
    ([(b":status", b"302"), PRIVATE, FIRST_DATE, LOCATION], 222),
    ([(b":status", b"307"), PRIVATE, FIRST_DATE, LOCATION], 222),
    (
        [
            (b":status", b"200"),
            PRIVATE,
            (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
            LOCATION,
            (b"content-encoding", b"gzip"),
            (b"set-cookie", COOKIE),
        ],
        215,
    ),
]
C3 = [
    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "8286 84be 5808 6e6f 2d63 6163 6865",
    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
]
C4 = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
]
C5 = [
    """4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
       3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d""",
    "4803 3330 37c1 c0bf",
    """88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
       7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
       6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31""",
]
C6 = [
    """4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
       1718 63c7 8f0b 97c8 e9ae 82ae 43d3""",
    "4883 640e ffc1 c0bf",
    """88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
       e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07""",
]
SIZE_256 = octets("3fe101")
"""What tells a table of 256 octets, which is that of the responses."""
SERIES = {
    "C.3 requests": (b"", C3, REQUESTS),
    "C.4 requests in Huffman's code": (b"", C4, REQUESTS),
    "C.5 responses": (SIZE_256, C5, RESPONSES),
    "C.6 responses in Huffman's code": (SIZE_256, C6, RESPONSES),
}


@pytest.mark.parametrize(("first", "blocks", "lists"), SERIES.values(), ids=SERIES)
def test_series_of_appendix_c_are_read(first: bytes, blocks: list[str], lists: list[tuple[Fields, int]]) -> None:
    decoder = Decoder(MAX_LIST)
    for number, (block, (fields, size)) in enumerate(zip(blocks, lists, strict=True)):
        assert read(decoder, (b"" if number else first) + octets(block)) == fields
        assert decoder._size == size


@pytest.mark.parametrize(("size", "blocks", "lists"), [(4_096, C4, REQUESTS), (256, C6, RESPONSES)])
def test_series_of_appendix_c_are_written(size: int, blocks: list[str], lists: list[tuple[Fields, int]]) -> None:
    encoder = Encoder()
    encoder.resize(size)
    written = b"".join(encoder.encode(fields) for fields, _ in lists)
    expected = b"".join(map(octets, blocks))
    if size == 256:
        # The standard uses the code where it saves nothing, too.
        expected = SIZE_256 + expected.replace(octets("4883 640e ff"), octets("4803 3330 37"))
    assert written == expected


# --- the code of appendix B


@given(st.binary(max_size=80))
def test_strings_in_the_code_are_those_of_hpack(text: bytes) -> None:
    code = huffman.encode(text)
    assert code == HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    assert huffman.decode(code) == text


@given(st.binary(max_size=12) | st.lists(st.sampled_from([0xFF, 0xFE, 0x7F, 0x0F, 0x1C]), max_size=9).map(bytes))
def test_what_is_no_string_of_the_code_is_so_for_hpack_too(code: bytes) -> None:
    try:
        expected: bytes | None = bytes(decode_huffman(code))
    except hpack.HPACKDecodingError:
        expected = None
    assert huffman.decode(code) == expected


PADDINGS: dict[str, tuple[str, bytes | None]] = {
    "none": ("f8", b"&"),
    "three ones": ("1f", b"a"),
    "seven ones": ("18ee7f", b"aa:"),
    "eight ones": ("f8ff", None),
    "eleven ones": ("1fff", None),
    "zeros": ("18", None),
    "EOS": ("ffffffff", None),
    "EOS behind a symbol": ("1fffffffff", None),
}


@pytest.mark.parametrize(("code", "text"), PADDINGS.values(), ids=PADDINGS)
def test_the_end_of_a_string(code: str, text: bytes | None) -> None:
    assert huffman.decode(octets(code)) == text


# --- ours and hpack, whatever is said and however the tables change

NAMES = st.sampled_from([b":path", b":status", b"content-type", b"x-one", b"x-two", b"authorization", b"date", b""])
VALUES = st.sampled_from([b"", b"a", b"/", b"200", b"application/grpc", b"v" * 100, b"w" * 2_000, b"w" * 4_000])
LISTS = st.lists(st.tuples(NAMES, VALUES | st.binary(max_size=12)), max_size=4)
SIZES = st.sampled_from([0, 31, 33, 60, 2_100, 4_096])


@given(st.lists(LISTS | SIZES | st.just(8_192), max_size=12))
def test_hpack_reads_what_ours_writes(steps: list[Fields | int]) -> None:
    encoder, theirs, ours = Encoder(), hpack.Decoder(max_header_list_size=1 << 20), Decoder(1 << 20)
    for step in steps:
        if isinstance(step, int):
            encoder.resize(step)
            continue
        for _ in range(3):  # the third is a kept one, if that can be
            once = [(b"grpc-timeout", b"1S"), (b"date", b"today")]
            block = encoder.encode(step, once)
            assert theirs.decode(block, raw=True) == [*step, *once]
            assert read(ours, block) == [*step, *once]


@given(st.lists(LISTS | SIZES, max_size=12), st.booleans())
def test_ours_reads_what_hpack_writes(steps: list[Fields | int], huffman_code: bool) -> None:
    encoder, decoder = hpack.Encoder(), Decoder(1 << 20)
    for step in steps:
        if isinstance(step, int):
            # hpack would tell each size, and forgets to when it is told the present one.
            if len(encoder.table_size_changes) < 2 and step != encoder.header_table_size:
                encoder.header_table_size = step
            continue
        for _ in range(3):
            assert read(decoder, encoder.encode(step, huffman=huffman_code)) == step


@given(st.lists(LISTS | st.sampled_from([60, 4_096]), max_size=12))
def test_what_is_kept_means_the_same_now(steps: list[Fields | int]) -> None:
    """Each block that the decoder would not look at again is given to an hpack decoder in the present state."""
    encoder, ours, theirs = hpack.Encoder(), Decoder(1 << 20), hpack.Decoder(max_header_list_size=1 << 20)
    for step in steps:
        if isinstance(step, int):
            if not encoder.table_size_changes and step != encoder.header_table_size:
                encoder.header_table_size = step
            continue
        for _ in range(2):
            block = encoder.encode(step)
            assert read(ours, block) == theirs.decode(block, raw=True)
            for kept, headers in ours._kept.items():
                assert ours.known(kept) is headers
                assert copy.deepcopy(theirs).decode(kept, raw=True) == headers.fields


def test_two_large_entries_that_push_each_other_out() -> None:
    """The table always has one entry of the same size: what is kept must not be told apart by that."""
    encoder, decoder = hpack.Encoder(), Decoder(1 << 20)
    first, second = [(b"x-one", b"a" * 3_000)], [(b"x-two", b"b" * 3_000)]
    for fields in (first, first, second, second, first, first):
        assert read(decoder, encoder.encode(fields)) == fields


def test_a_block_that_comes_again_is_the_same_object_until_the_table_moves() -> None:
    decoder = Decoder(MAX_LIST)
    kept = decoder.decode(b"\x83")
    assert decoder.known(b"\x83") is kept is decoder.decode(b"\x83")
    for moves in (octets(SINGLE["C.2.1 literal with indexing"][0]), b"\x3f\x00", b"\x20\x82"):
        decoder.decode(b"\x83")
        assert decoder.known(b"\x83") is not None
        assert isinstance(decoder.decode(moves), HeaderList)
        assert decoder.known(b"\x83") is None and decoder.known(moves) is None


def test_an_encoder_keeps_blocks_until_the_table_moves() -> None:
    encoder = Encoder()
    fields = ((b":method", b"POST"), (b"x", b"y"))
    encoder.encode(fields)
    block = encoder.encode(fields)
    assert block is encoder.encode(fields) and block == b"\x83\xbe"
    assert encoder.encode(fields, [(b"grpc-timeout", b"1S")]).startswith(block)
    encoder.encode([(b"another", b"field")])
    assert encoder.encode(fields) == b"\x83\xbf", "the entry has moved"


# --- random octets

PIECES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([0x82, 0x88, 0xBE, 0xBF, 0xC0, 0x80, 0xFF]).map(lambda byte: bytes((byte,))),
    st.integers(0, 5_000).map(lambda size: write_integer(size, 5, RESIZED)),
    st.integers(0, 100).map(lambda index: write_integer(index, 7, INDEXED)),
    st.tuples(st.sampled_from([0x00, 0x10, 0x40]), st.integers(0, 70), st.binary(max_size=5)).map(
        lambda part: write_integer(part[1], 6 if part[0] == 0x40 else 4, part[0]) + bytes((len(part[2]),)) + part[2]
    ),
    st.tuples(st.sampled_from([0x00, 0x40]), st.binary(max_size=9)).map(
        lambda part: bytes((part[0], len(part[1]))) + part[1] + bytes((0x80 | len(part[1]),)) + huffman.encode(part[1])
    ),
)
BLOCKS = st.lists(st.lists(PIECES, max_size=5).map(b"".join), max_size=6)
_LONG = re.compile(rb"[\x80-\xff]{4}")


def differs(block: bytes) -> bool:
    """Whether one of the written differences may be met: what is long for an integer, or three table sizes."""
    return bool(_LONG.search(block)) or sizes_at_start(block) > 2


def sizes_at_start(block: bytes) -> int:
    count = at = 0
    while at < len(block) and block[at] & 0xE0 == RESIZED:
        _, at = integer(block, at, 0x1F)
        count += 1
    return count


@given(BLOCKS)
def test_random_octets_are_judged_as_by_hpack(blocks: list[bytes]) -> None:
    ours, theirs = Decoder(2_000), hpack.Decoder(max_header_list_size=2_000)
    for block in blocks:
        found = ours.decode(block)
        try:
            expected: Fields | None = list(theirs.decode(block, raw=True))
        except hpack.HPACKError:
            expected = None
        if isinstance(found, Unreadable):
            assert expected is None or differs(block)
            return
        assert found.fields == expected
        assert ours._size == theirs.header_table._current_size


@given(st.binary(max_size=40))
def test_no_octets_raise(block: bytes) -> None:
    decoder = Decoder(MAX_LIST)
    for _ in range(2):
        found = decoder.decode(block)
        if isinstance(found, Unreadable):
            return
    assert decoder.decode(block) == found or isinstance(found, HeaderList)


# --- what a peer may not do

MALFORMED = {
    "index 0": "80",
    "an index behind the tables": "be",
    "an index that is cut off": "ff",
    "an index of six octets": "ff8080808001",
    "an index of six octets that is small": "ff8080808000",
    "a name by an index that leads nowhere": "7e0161",
    "a literal without a name": "40",
    "a literal without a value": "400161",
    "a name that is cut off": "4005616263",
    "a value that is cut off": "40016105616263",
    "a length of 2^35": "4001617fffffffff7f",
    "a name in a code that ends in zeros": "40811800",
    "a value with EOS": "40016184ffffffff",
    "a table above what was allowed": "3fe21f",
    "a table of an endless size": "3fffffffffff0f",
    "a size that is cut off": "3f",
    "a size behind a field": "8220",
    "three sizes": "202020",
}


@pytest.mark.parametrize("block", MALFORMED.values(), ids=MALFORMED)
def test_what_cannot_be_read_is_refused(block: str) -> None:
    assert refused(Decoder(MAX_LIST), octets(block)) == COMPRESSION_ERROR


def test_sizes_up_to_what_was_allowed() -> None:
    decoder = Decoder(MAX_LIST)
    for size in (DEFAULT_TABLE, 0, 100, DEFAULT_TABLE):
        assert read(decoder, write_integer(size, 5, RESIZED) + b"\x82") == [GET]
        assert decoder._limit == size
    smallest_and_last = b"\x20" + write_integer(DEFAULT_TABLE, 5, RESIZED)
    assert read(decoder, smallest_and_last) == []


def test_an_entry_above_the_table_empties_it() -> None:
    """Section 4.4: that is no fault."""
    decoder = Decoder(MAX_LIST)
    read(decoder, octets(SINGLE["C.2.1 literal with indexing"][0]))
    large = b"\x40\x01a" + write_integer(DEFAULT_TABLE, 7, 0) + bytes(DEFAULT_TABLE)
    assert read(decoder, large) == [(b"a", bytes(DEFAULT_TABLE))]
    assert decoder._size == 0 and decoder._entries == []


def test_a_bomb_of_references_stops_at_the_limit_of_the_list() -> None:
    """4 KiB in the table, and an octet for each time that it is meant: 64 KiB of block would be 256 MiB."""
    decoder = Decoder(MAX_LIST)
    entry = b"\x40\x01x" + write_integer(4_000, 7, 0) + b"y" * 4_000
    assert len(read(decoder, entry + b"\xbe" * 3)) == 4
    assert refused(decoder, b"\xbe" * 60_000) == ENHANCE_YOUR_CALM


def test_fields_without_a_byte_count_too() -> None:
    decoder = Decoder(1_000)
    empty = b"\x00\x00\x00"
    assert len(read(decoder, empty * (1_000 // OVERHEAD))) == 31
    assert refused(Decoder(1_000), empty * 32) == ENHANCE_YOUR_CALM


def test_a_string_in_the_code_counts_by_what_it_says() -> None:
    """Five bits for an octet are the most that the code saves."""
    text = b"a" * 1_000
    code = huffman.encode(text)
    block = b"\x00\x01x" + write_integer(len(code), 7, 0x80) + code
    assert len(code) == 625 and refused(Decoder(1_000), block) == ENHANCE_YOUR_CALM


def test_what_a_peer_can_make_a_decoder_keep() -> None:
    decoder = Decoder(MAX_LIST)
    for first in range(1, 62):
        for second in range(1, 62):
            read(decoder, bytes((INDEXED | first, INDEXED | second)))
            assert len(decoder._kept) <= 64
    read(decoder, b"\x82" * 257)
    assert decoder.known(b"\x82" * 257) is None and decoder.known(b"\x82") is None
    for number in range(1_000):
        read(decoder, b"\x40\x04" + b"%04d" % number + b"\x01x")
    assert decoder._size <= DEFAULT_TABLE and len(decoder._entries) == DEFAULT_TABLE // (4 + 1 + OVERHEAD)


def test_what_a_peer_can_make_an_encoder_keep_and_say() -> None:
    encoder = Encoder()
    for number in range(1_000):
        encoder.encode([(b"x", b"%d" % number)], [(b"once", b"%d" % number)])
        assert len(encoder._kept) <= 64 and len(encoder._literals) <= 64 and encoder._size <= DEFAULT_TABLE
    for _ in range(1_000):
        for size in (0, 100, 1 << 30, 50):
            encoder.resize(size)
    block = encoder.encode([GET])
    assert block == b"\x20" + write_integer(50, 5, RESIZED) + b"\x82", "the smallest and the last"
    assert encoder.encode([GET]) == b"\x82"
    encoder.resize(1 << 30)
    assert encoder.encode([GET]) == write_integer(DEFAULT_TABLE, 5, RESIZED) + b"\x82", "ours is no larger"


def test_a_size_that_is_told_twice_is_announced_once() -> None:
    encoder = Encoder()
    encoder.resize(60)
    encoder.resize(60)
    assert encoder.encode([GET]) == write_integer(60, 5, RESIZED) + b"\x82"
    encoder.resize(60)
    assert encoder.encode([GET]) == b"\x82"
