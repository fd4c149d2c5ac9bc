"""What was learned of a task is used for exactly those that differ in payload and key alone."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_RECALLED, MAX_RECALLED_SIZE, MESSAGE_HEADROOM
from cronoq_sansio.service.messages import Submit
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.spec import TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.framing import PREFIX_SIZE, frame
from cronoq_sansio.wire.protobuf_bytes import LENGTH, MAX_INSIDE, tag, varint
from cronoq_sansio.wire.protobuf_codec import _decode_submit
from cronoq_sansio.wire.protobuf_recall import Recall
from cronoq_sansio.wire.protobuf_spec import decode_spec

LIMITS = LimitSettings()
TEXTS = st.sampled_from(["", "a", "kind", "über"])
PIECES = st.one_of(
    st.builds(lambda payload: pb.TaskSpec(payload=payload), st.binary(max_size=3)),
    st.builds(lambda text: pb.TaskSpec(kind=text), TEXTS),
    st.builds(lambda text: pb.TaskSpec(pool=text), TEXTS),
    st.builds(lambda text: pb.TaskSpec(key=text), TEXTS),
    st.builds(lambda text: pb.TaskSpec(tenant=text), TEXTS),
    st.builds(lambda name, text: pb.TaskSpec(tags={name: text}), TEXTS, TEXTS),
    st.builds(lambda name, text: pb.TaskSpec(labels={name: text}), TEXTS, TEXTS),
    st.builds(lambda seconds: pb.TaskSpec(timeout_s=seconds), st.sampled_from([0.0, 1.5, -1.0])),
    st.builds(lambda seconds: pb.TaskSpec(deadline_in_s=seconds), st.sampled_from([0.0, 60.0])),
    st.builds(lambda number: pb.TaskSpec(deps=[pb.Dep(target=pb.TaskRef(id=number))]), st.integers(1, 3)),
    st.builds(lambda tries: pb.TaskSpec(retry=pb.RetryPolicy(max_attempts=tries)), st.integers(0, 3)),
).map(lambda task: task.SerializeToString())
ODD = st.sampled_from([b"\x0a\x00", b"\x0a\x05ab", b"\x08\x01", b"\xf8\x07\x01", b"\x1a\x01\xff", b"\x0a", b"\x0a\x80"])


def whole(task: bytes, received: int, limits: LimitSettings = LIMITS) -> Any:
    try:
        message = pb.TaskSpec.FromString(task)
    except Exception:
        return None
    return decode_spec(message, received, limits)


def content(task: bytes) -> bytes:
    """What comes of a request that has nothing else."""
    return frame(bytes((tag(1, LENGTH),)) + varint(len(task)) + task)


def find(recall: Recall, task: bytes, limits: LimitSettings = LIMITS) -> TaskSpec | None:
    return found(recall, content(task), limits)


def found(recall: Recall, said: bytes, limits: LimitSettings = LIMITS) -> TaskSpec | None:
    """Without the long way."""
    recall._decode = lambda data, limits: Rejection(Code.INVALID, "not found")
    submit = recall.read(said, limits)
    recall._decode = _decode_submit
    return submit.spec if isinstance(submit, Submit) else None


def seen(recall: Recall, task: bytes, limits: LimitSettings = LIMITS) -> None:
    """As a server does that gets it: what is found is right, and what is not found is decoded and learned."""
    decoded, known = whole(task, len(content(task)) - PREFIX_SIZE, limits), find(recall, task, limits)
    assert known is None or known == decoded
    submit = recall.read(content(task), limits)
    assert submit == Submit(decoded, False, None) if isinstance(decoded, TaskSpec) else isinstance(submit, Rejection)


def payload(data: bytes) -> bytes:
    return pb.TaskSpec(payload=data).SerializeToString()


@given(st.lists(st.one_of(PIECES, ODD), max_size=4), st.lists(st.binary(max_size=300), min_size=3, max_size=4))
@example([b"\x0a\x01x"], [b"x", b"x", b"y"])
@example([b"\x0a\x00"], [b"x", b"y", b"z"])
@example([b"\x0a\x010"], [b"x", b"y", b"z"])
@example([b"\x32\x00"], [b"x", b"y", b"z"])
@example([b"\x32\x010"], [b"x", b"y", b"z"])
def test_what_is_found_is_what_would_be_decoded(pieces: list[bytes], payloads: list[bytes]) -> None:
    recall, rest = Recall(_decode_submit), b"".join(pieces)
    for data in payloads:
        seen(recall, payload(data) + rest)
        for cut in range(len(pieces) + 1):
            key = pb.TaskSpec(key=data[:2].hex()).SerializeToString()
            seen(recall, payload(data) + b"".join(pieces[:cut]) + key + b"".join(pieces[cut:]))
        seen(recall, rest)
        seen(recall, rest + payload(data))


@given(st.lists(PIECES, max_size=3), st.binary(max_size=200), st.integers(0, 250))
@example([], b"abc", 4)
def test_nor_is_anything_found_for_a_part_of_it(pieces: list[bytes], data: bytes, end: int) -> None:
    recall, task = Recall(_decode_submit), payload(data) + b"".join(pieces)
    for _ in range(3):
        seen(recall, task)
    seen(recall, task[:end])


KEY = pb.TaskSpec(key="k").SerializeToString()
TASK = pb.TaskSpec(
    payload=b"x",
    content_type="text/plain",
    kind="mail",
    pool="default",
    priority=1,
    timeout_s=3.0,
    retry=pb.RetryPolicy(max_attempts=2),
    tags={"team": "core"},
    deadline_in_s=60.0,
    labels={"zone": "a"},
)


@pytest.mark.parametrize("key", ["", "k", "other", "über"])
@pytest.mark.parametrize("size", [0, 1, 127, 128, MAX_INSIDE - 200])
def test_its_like_is_found_with_everything_that_it_asks_for(size: int, key: str) -> None:
    recall = Recall(_decode_submit)
    for first in ("k", "l"):
        seen(recall, like(key=first).SerializeToString())
    task = like(key=key, payload=bytes(size)).SerializeToString()
    known, size = find(recall, task), len(content(task)) - PREFIX_SIZE
    assert known is not None and known == whole(task, size) and known.size == size


def like(**fields: Any) -> pb.TaskSpec:
    task = pb.TaskSpec()
    task.CopyFrom(TASK)
    for name, value in fields.items():
        setattr(task, name, value)
    return task


@pytest.mark.parametrize("key", [b"\xff", b"\xed\xa0\x80", b"a\0b", b"x" * 257, b"k@2026-01-01T00:00:00Z"])
def test_a_key_that_nobody_may_have_is_not_found(key: bytes) -> None:
    recall = Recall(_decode_submit)
    for first in ("k", "l"):
        seen(recall, pb.TaskSpec(key=first).SerializeToString())
    seen(recall, bytes((0x32,)) + varint(len(key)) + key)
    assert find(recall, bytes((0x32, 1)) + b"m") is not None


def test_it_is_not_found_under_other_limits_nor_beyond_them() -> None:
    recall, task = Recall(_decode_submit), TASK.SerializeToString()
    for _ in range(2):
        seen(recall, task)
    assert find(recall, task) is not None
    assert find(recall, task, LimitSettings(max_tags=1)) is None
    room = 1000 - len(content(like(payload=bytes(900)).SerializeToString())) + PREFIX_SIZE + 900
    tight = LimitSettings(max_message_bytes=MESSAGE_HEADROOM + 1000)
    largest, larger = (like(payload=bytes(size)).SerializeToString() for size in (room, room + 1))
    for _ in range(2):
        seen(recall, task, tight)
    assert len(content(largest)) - PREFIX_SIZE == 1000
    assert find(recall, largest, tight) is not None and find(recall, larger, tight) is None


def test_a_key_ends_where_it_ends() -> None:
    recall, rest = Recall(_decode_submit), pb.TaskSpec(kind="mail").SerializeToString()
    for task in (b"", b"", rest, rest):
        seen(recall, task)
    assert find(recall, KEY + rest) is not None
    seen(recall, b"\x32\x05ab")
    seen(recall, b"\x32\x80\x01" + b"k" * 127 + rest)  # the first byte of `rest` is its last one


def test_a_large_payload_ends_where_it_ends() -> None:
    recall, task = Recall(_decode_submit), pb.TaskSpec(kind="mail").SerializeToString()
    for _ in range(2):
        seen(recall, task)
    assert find(recall, task) is not None
    seen(recall, b"\x0a\x80\x80\x01" + bytes((1 << 14) - 1) + task)  # the first byte of `task` is its last one


@pytest.mark.parametrize(
    ("why", "task"),
    [
        ("it came once", TASK.SerializeToString()),
        ("its key is not where keys are", pb.TaskSpec(tags={"a": "b"}).SerializeToString() + KEY),
        ("its key is long", pb.TaskSpec(key="k" * 128).SerializeToString()),
        ("another key follows", KEY + pb.TaskSpec(kind="mail").SerializeToString() + KEY),
        ("it is long", pb.TaskSpec(payload=b"x", tags={"a": "x" * MAX_RECALLED_SIZE}).SerializeToString()),
        ("another payload follows", payload(b"x") + pb.TaskSpec(kind="mail").SerializeToString() + payload(b"x")),
        ("its payload is large", payload(bytes(1 << 14))),
    ],
)
def test_what_is_not_remembered(why: str, task: bytes) -> None:
    recall = Recall(_decode_submit)
    for _ in range(1 if why == "it came once" else 3):
        seen(recall, task)
    assert find(recall, task) is None and not recall._known, why


def test_so_many_are_remembered_and_no_more() -> None:
    recall = Recall(_decode_submit)
    for number in range(3 * MAX_RECALLED):
        task = pb.TaskSpec(kind=f"kind {number}").SerializeToString()
        for _ in range(2):
            seen(recall, task)
        assert len(recall._known) <= MAX_RECALLED and len(recall._seen) <= MAX_RECALLED
    assert find(recall, task) is not None


def test_contents_of_one_length_need_not_begin_alike() -> None:
    """Payloads of two lengths, none at all, an empty one, and one that is said in a way that nobody uses."""
    recall = Recall(_decode_submit)
    rests = [pb.TaskSpec(kind="k" * size).SerializeToString() for size in (10, 8, 6, 4)]
    tasks = [
        payload(b"12") + rests[0],
        payload(b"1234") + rests[1],
        pb.TaskSpec(kind="k" * 14).SerializeToString(),
        b"\x0a\x00" + pb.TaskSpec(kind="k" * 12).SerializeToString(),
    ]
    assert len({len(content(task)) for task in tasks}) == 1
    for _ in range(3):
        for task in tasks:
            seen(recall, task)
    for task in tasks * 2:
        assert find(recall, task) == whole(task, len(content(task)) - PREFIX_SIZE)
    odd = b"\x0a\x82\x00" + b"12" + pb.TaskSpec(kind="k" * 9).SerializeToString()
    assert len(odd) == len(tasks[0])
    for _ in range(3):
        seen(recall, odd)
    assert find(recall, tasks[0]) is not None


def test_nothing_is_found_but_in_a_content_that_is_one_message() -> None:
    recall, task = Recall(_decode_submit), payload(b"x") + pb.TaskSpec(kind="mail").SerializeToString()
    for _ in range(2):
        seen(recall, task)
    said = content(task)
    assert found(recall, said) is not None
    for at in range(PREFIX_SIZE + 2):
        for bit in range(8):
            changed = bytearray(said)
            changed[at] ^= 1 << bit
            assert found(recall, bytes(changed)) is None
    for other in (said + b"\0", said[:-1], b"", said[:PREFIX_SIZE], frame(task), frame(b"\x0a\x00"), said + said):
        assert found(recall, other) is None
    assert found(recall, said) is not None


def test_of_so_many_lengths_it_is_known_how_contents_begin_and_of_no_more() -> None:
    recall, rest = Recall(_decode_submit), pb.TaskSpec(kind="mail").SerializeToString()
    for size in range(2 * MAX_RECALLED):
        seen(recall, payload(bytes(size)) + rest)
        assert len(recall._openings) <= MAX_RECALLED
    assert find(recall, payload(b"x") + rest) is not None
