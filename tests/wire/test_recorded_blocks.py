"""HPACK on what real peers have said: header blocks as they came, with the version of the peer (`recorded/*.json`).

They are recorded over sockets by `tests/foreign/record.py`.
"""

import json
from pathlib import Path

import hpack
import pytest

from cronoq_sansio.limits import MAX_HEADER_LIST
from cronoq_sansio.wire import http2_fields
from cronoq_sansio.wire.hpack_decoder import Decoder, HeaderList
from cronoq_sansio.wire.hpack_encoder import Encoder
from cronoq_sansio.wire.http2_events import Event, Request
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.patience import forgive

Blocks = list[bytes]
Fields = list[tuple[bytes, bytes]]

RECORDED = {
    f"{found['name']} {number}": (found["sends"], [bytes.fromhex(block) for block in blocks])
    for found in (json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "recorded").glob("*.json")))
    for number, blocks in enumerate(found["connections"])
}
REQUESTS = {name: blocks for name, (sends, blocks) in RECORDED.items() if sends == "requests"}

every = pytest.mark.parametrize("blocks", [blocks for _, blocks in RECORDED.values()], ids=RECORDED)
requests = pytest.mark.parametrize("blocks", REQUESTS.values(), ids=REQUESTS)


def by_hpack(blocks: Blocks) -> list[Fields]:
    """What hpack reads."""
    decoder = hpack.Decoder()
    return [[(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)] for block in blocks]


def read(decoder: Decoder, block: bytes) -> HeaderList:
    found = decoder.decode(block)
    assert isinstance(found, HeaderList), found
    return found


def test_there_is_something() -> None:
    assert len(REQUESTS) >= 8 and len(RECORDED) > len(REQUESTS)
    assert sum(map(len, REQUESTS.values())) >= 100


@every
def test_the_same_lists_as_hpack_reads(blocks: Blocks) -> None:
    decoder = Decoder(MAX_HEADER_LIST)
    assert [read(decoder, block).fields for block in blocks] == by_hpack(blocks)


@every
def test_the_same_without_memory_of_blocks(blocks: Blocks) -> None:
    decoder = Decoder(MAX_HEADER_LIST)
    found = []
    for block in blocks:
        decoder._kept.clear()
        found.append(read(decoder, block).fields)
    assert found == by_hpack(blocks)


@every
def test_the_same_when_each_block_comes_twice(blocks: Blocks) -> None:
    """The second of the two is from memory, if the first left the table as it was; what it puts in is there twice."""
    twice = [block for block in blocks for _ in range(2)]
    decoder = Decoder(MAX_HEADER_LIST)
    lists = [read(decoder, block) for block in twice]
    assert [found.fields for found in lists] == by_hpack(twice)


@requests
def test_what_comes_again_is_decoded_once(blocks: Blocks) -> None:
    """No client puts anything into the table for a call that it has made before."""
    decoder = Decoder(MAX_HEADER_LIST)
    lists = [read(decoder, block) for block in blocks]
    for number in range(2, len(blocks)):
        if blocks[number] == blocks[number - 1] == blocks[number - 2]:
            assert lists[number] is lists[number - 1]


@requests
def test_they_are_well_formed(blocks: Blocks) -> None:
    assert {http2_fields.request_fault(fields) for fields in by_hpack(blocks)} == {""}


def heard(machine: Http2Server, data: bytes, chunk: int) -> list[Fields]:
    """The fields of the requests that the machine finds in the data, which comes in pieces."""
    events: list[Event] = []
    for at in range(0, len(data), chunk):
        forgive(machine)
        events += machine.receive(data[at : at + chunk], 0)
    assert not machine.closed
    return [event.headers.fields for event in events if isinstance(event, Request)]


def server() -> Http2Server:
    return Http2Server(max_streams=100, ping_interval=1 << 40, ping_timeout=1 << 40, now=0)


def split(stream_id: int, block: bytes, cut: int) -> bytes:
    """A block in HEADERS and one CONTINUATION."""
    return raw.frame(raw.HEADERS, 0, stream_id, block[:cut]) + raw.frame(
        raw.CONTINUATION, raw.END_HEADERS, stream_id, block[cut:]
    )


@requests
def test_blocks_in_two_frames_for_every_cut(blocks: Blocks) -> None:
    expected = by_hpack(blocks)
    for cut in range(max(map(len, blocks)) + 1):
        frames = [split(2 * number + 1, block, min(cut, len(block))) for number, block in enumerate(blocks)]
        assert heard(server(), raw.HELLO + b"".join(frames), 1 << 20) == expected


@requests
def test_blocks_in_reads_of_every_size(blocks: Blocks) -> None:
    expected = by_hpack(blocks)
    frames = [raw.frame(raw.HEADERS, raw.END_HEADERS, 2 * number + 1, block) for number, block in enumerate(blocks)]
    data = raw.HELLO + b"".join(frames)
    for chunk in range(1, 100):
        assert heard(server(), data, chunk) == expected


@every
@pytest.mark.parametrize("sizes", [(4_096,), (0,), (0, 4_096), (64, 200, 4_096, 100)], ids=str)
def test_written_by_us_hpack_reads_them_as_they_were(blocks: Blocks, sizes: tuple[int, ...]) -> None:
    """The peer sets another size of the table now and then."""
    encoder, decoder, ours = Encoder(), hpack.Decoder(), Decoder(MAX_HEADER_LIST)
    for number, fields in enumerate(by_hpack(blocks) * 2):
        size = sizes[number % len(sizes)]
        decoder.max_allowed_table_size = size
        encoder.resize(size)
        block = encoder.encode(fields)
        assert [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)] == fields
        assert read(ours, block).fields == fields
