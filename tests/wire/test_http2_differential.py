"""Our HTTP/2 machine and h2 are told the same: they say the same, or both refuse; what differs is meant and written."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.wire.h2_server import H2Server
from cronoq_sansio.wire.http2_server import Http2Server
from tests.wire import raw
from tests.wire.http2_differences import DIFFERENCES, Difference
from tests.wire.http2_pair import START, Outcome, Side, told, whole_frames
from tests.wire.http2_scripts import Step, script, steps
from tests.wire.patience import forgive

PAGE = Path(__file__).parents[2] / "docs" / "protocol" / "http2.md"


def first_difference(said: list[Step]) -> tuple[int, Step, Outcome, Outcome] | None:
    """Where the two part, if they do; with both refusing they are done."""
    ours, theirs = Side(Http2Server), Side(H2Server)
    for at, step in enumerate(whole_frames(said)):
        mine, other = ours.do(step), theirs.do(step)
        if not mine.same(other):
            return at, step, mine, other
        assert ours.machine.closed is theirs.machine.closed
        if ours.machine.closed:
            break
    return None


def cases(step: Step, ours: Outcome, theirs: Outcome) -> list[str]:
    """Which intended differences this is one of."""
    return [row.what for row in DIFFERENCES if isinstance(step, bytes) and row.has(step, ours, theirs)]


@given(steps)
def test_the_same_events_or_both_refuse(drawn: list[Any]) -> None:
    found = first_difference(script(drawn))
    if found is not None:
        _, *parted = found
        assert len(cases(*parted)) == 1, parted


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.what)
def test_each_difference_is_one(row: Difference) -> None:
    found = first_difference(list(row.example))
    assert found is not None, "they do the same by now"
    at, *parted = found
    assert at == len(row.example) - 1 and cases(*parted) == [row.what]


def test_the_documentation_has_all_of_them() -> None:
    rows = re.findall(r"^\| (?!what |---)(.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [" | ".join((row.what, row.section, row.ours, row.theirs)) for row in DIFFERENCES]


def run(data: bytes, cuts: list[int]) -> tuple[tuple[Any, ...], bytes]:
    """What our machine tells and writes."""
    side, events, written = Side(Http2Server), [], b""
    edges = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    for start, end in zip(edges, edges[1:], strict=False):
        forgive(side.machine)
        events += side.machine.receive(data[start:end], START)
        written += side.machine.take(1 << 24)
    return told(events), written


@given(steps, st.lists(st.integers(1, 20_000), max_size=12))
def test_cuts_never_matter(drawn: list[Any], cuts: list[int]) -> None:
    data = b"".join(step for step in script(drawn) if isinstance(step, bytes))
    whole = run(data, [])
    assert run(data, cuts) == whole
    edge = len(data) - 3_000  # byte by byte to the end, and at once before that
    assert run(data, [*range(max(1, edge), len(data))]) == whole


calls = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from([b"", b"x", b"0123456789", bytes(16_384)]), st.sampled_from("wwwwdps")
    ),
    max_size=12,
)


@given(calls, st.lists(st.integers(1, 4_000), max_size=8))
def test_requests_that_are_recognised_whole_are_the_same_requests(drawn: list[Any], cuts: list[int]) -> None:
    """Headers that come again and one frame of content, which is the way of nearly all calls."""
    said: list[bytes] = []
    blocks = [raw.block(), raw.block(("x", "y")), raw.block(("content-length", "1")), raw.block(("te", "gzip"))]
    for number, (which, body, form) in enumerate(drawn):
        stream_id, block = 2 * number + 1, blocks[which]
        said.append(raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, block))
        if form == "p":
            said.append(raw.frame(raw.DATA, raw.END_STREAM | raw.PADDED, stream_id, b"\2" + body[:9] + b"\0\0"))
        elif form == "d":
            said.append(raw.frame(raw.DATA, 0, stream_id, body))
            said.append(raw.frame(raw.DATA, raw.END_STREAM, stream_id))
        else:
            said.append(raw.frame(raw.DATA, raw.END_STREAM, stream_id, body))
        if form == "s":
            said.append(raw.frame(raw.PING, 0, 0, b"8 bytes."))
        said.append(raw.frame(raw.RST_STREAM, 0, stream_id, bytes(4)))
    data = b"".join(said)
    whole = run(data, [])
    assert run(data, cuts) == whole
    assert run(data, [9 * number for number in range(1, min(len(data) // 9, 300))]) == whole
    frames, events, written = Side(Http2Server), [], b""
    for frame in said:
        events += frames.machine.receive(frame, START)
        written += frames.machine.take(1 << 24)
    assert (told(events), written) == whole


def by_stream(events: tuple[Any, ...]) -> dict[int, list[Any]]:
    """What was told of each stream, in order; 0 is the connection."""
    found: dict[int, list[Any]] = {}
    for event in events:
        found.setdefault(event[1] if len(event) > 1 else 0, []).append(event)
    return found


LENGTHS = {b"": 0, b"x": 1, b"0123456789": 10}
LIES = {0: 1, 1: 10, 10: 0}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([*LENGTHS]), st.sampled_from("wwwwlrn")), max_size=8),
    st.randoms(use_true_random=False),
    st.lists(st.integers(1, 400), max_size=6),
)
def test_contents_may_follow_the_headers_of_others(drawn: list[Any], random: Any, cuts: list[int]) -> None:
    """Some clients open all their streams first. `l` says a length that is none, `r` resets, `n` sends no content."""
    opening, rest = [], []
    for number, (which, body, form) in enumerate(drawn):
        stream_id = 2 * number + 1
        length = LIES[LENGTHS[body]] if form == "l" else LENGTHS[body]
        blocks = [raw.block(), raw.block(("content-length", str(length))), raw.block(("x", "y"))]
        opening.append(raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, blocks[which]))
        if form == "r":
            rest.append(raw.frame(raw.RST_STREAM, 0, stream_id, bytes(4)))
        elif form != "n":
            rest.append(raw.frame(raw.DATA, raw.END_STREAM, stream_id, body))
    random.shuffle(rest)
    said = [*opening, *rest]
    data = b"".join(said)
    results = []
    lies = any(form in "ln" and which == 1 for which, _, form in drawn)  # h2 ends the connection then
    for pieces in ([data], said, _cut(data, cuts)):
        for kind in (Http2Server,) if lies else (Http2Server, H2Server):
            side, events = Side(kind), []
            for piece in pieces:
                events += side.machine.receive(piece, START)
            results.append(by_stream(told(events)))
    assert all(result == results[0] for result in results)
    for number, (which, _, form) in enumerate(drawn):
        found = results[0].get(2 * number + 1)
        if found and which == 1 and form in "lr":  # one stream too many was refused
            assert found[-1] == ("reset", 2 * number + 1)


@pytest.mark.parametrize("order", [(1, 3, 5, 5), (1, 3, 5, 3), (1, 3, 9), (1, 3, 4), (1, 3, 5, 7, 5)])
def test_a_block_that_is_known_opens_no_stream_out_of_order(order: tuple[int, ...]) -> None:
    said = []
    for stream_id in order:
        said.append(raw.frame(raw.HEADERS, raw.END_HEADERS, stream_id, raw.block()))
        said.append(raw.frame(raw.DATA, raw.END_STREAM, stream_id, b"x"))
    assert run(b"".join(said), []) == run(b"".join(said), [*range(400)])
    theirs = Side(H2Server)
    assert by_stream(run(b"".join(said), [])[0]) == by_stream(told(theirs.machine.receive(b"".join(said), START)))


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    return [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]
