"""The quick ways through hot messages say what the library says of the whole message, whatever is in it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service.messages import CancelReply, Complete, Submit
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire import pb, protobuf_bytes
from cronoq_sansio.wire.framing import frame
from cronoq_sansio.wire.protobuf_codec import ROUTES, decode_submit, encode_submit, read_submit, write_submit
from cronoq_sansio.wire.protobuf_spec import decode_spec
from cronoq_sansio.wire.protobuf_worker import decode_worker

LIMITS = LimitSettings()
TIGHT = LimitSettings(max_tags=1, max_tag_len=3, max_kind_len=3, max_key_len=3)
TEXTS = st.sampled_from(["", "a", "kind", "über", "a\0b", "x" * 200])


@st.composite
def tasks(draw: Any) -> bytes:
    """Tasks as they may be sent: entries of a map twice, damaged, in pieces."""
    task = pb.TaskSpec(
        payload=draw(st.binary(max_size=40)),
        kind=draw(TEXTS),
        pool=draw(TEXTS),
        content_type=draw(TEXTS),
        key=draw(TEXTS),
        priority=draw(st.sampled_from([0, 1, 4, 5])),
    )
    parts = [task.SerializeToString()]
    for _ in range(draw(st.integers(0, 3))):
        entry = pb.TaskSpec(tags={draw(TEXTS): draw(TEXTS)})
        parts.append(entry.SerializeToString())
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from([b"\x10", b"\x42\x02\x0a\xff", b"\x42\x03\x0a\x01\xff", b"\xf8\x07\x01"])))
    if draw(st.booleans()):
        parts.append(pb.TaskSpec(tenant=draw(TEXTS)).SerializeToString())
    if draw(st.booleans()):
        parts.append(pb.TaskSpec(timeout_s=draw(st.sampled_from([0.0, 1.5, -1.0]))).SerializeToString())
    return b"".join(parts)


def _whole(data: bytes, limits: LimitSettings) -> Submit | Rejection:
    """Without any of the quick ways."""
    try:
        message = pb.SubmitRequest.FromString(data)
    except Exception:
        return Rejection(Code.INVALID, "")
    spec = decode_spec(message.task, len(data), limits)
    return spec if isinstance(spec, Rejection) else Submit(spec, message.wait, None)


@given(tasks(), st.sampled_from([LIMITS, TIGHT]), st.booleans())
def test_a_submit_is_decoded_alike_whether_its_like_was_seen_or_not(
    task: bytes, limits: LimitSettings, wait: bool
) -> None:
    data = pb.SubmitRequest(wait=wait).SerializeToString()
    data = _field(1, task) + data
    expected = _whole(data, limits)
    for _ in range(3):
        found = decode_submit(data, limits)
        if isinstance(expected, Rejection):
            assert isinstance(found, Rejection)
            assert found.code is expected.code
        else:
            assert found == expected
        assert read_submit(frame(data), limits) == found


def _field(number: int, inside: bytes) -> bytes:
    head = bytes((protobuf_bytes.tag(number, protobuf_bytes.LENGTH),))
    return head + protobuf_bytes.varint(len(inside)) + inside


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if route.read is not None])
def test_a_content_is_read_as_its_message_is_decoded_and_only_when_it_is_one_message(path: bytes) -> None:
    route = ROUTES[path]
    assert route.read is not None and route.decode is not None
    for message in (b"", b"\xff", pb.GetRequest(task=pb.TaskRef(id=5)).SerializeToString()):
        said = frame(message)
        assert route.read(said, LIMITS) == route.decode(message, LIMITS)
        for other in (said[:-1], said + b"\0", b"\1" + said[1:], said + said):
            assert route.read(other, LIMITS) is None
    most = LIMITS.max_message_bytes
    assert route.read(frame(bytes(most)), LIMITS) is not None and route.read(frame(bytes(most + 1)), LIMITS) is None


def test_one_request_and_one_answer_are_read_and_written_whole() -> None:
    whole = {route.name for route in ROUTES.values() if route.write is not None}
    assert whole == {route.name for route in ROUTES.values() if not route.streaming and not route.events}
    assert whole == {route.name for route in ROUTES.values() if route.read is not None or route.looks}
    cancel = ROUTES[b"/cronoq.v1.Tasks/Cancel"]
    assert cancel.write is not None
    assert cancel.write(CancelReply(True)) == frame(pb.CancelResponse(cancelled=True).SerializeToString())


def test_what_passed_the_checks_of_one_server_does_not_pass_those_of_another() -> None:
    data = pb.SubmitRequest(task=pb.TaskSpec(kind="resize", tags={"team": "core"})).SerializeToString()
    for _ in range(2):
        assert isinstance(decode_submit(data, LIMITS), Submit)
        assert isinstance(decode_submit(data, TIGHT), Rejection)


@given(st.integers(0, (1 << 64) - 1))
@example(0)
@example(127)
@example(128)
@example(1 << 14)
@example((1 << 14) - 1)
@example((1 << 64) - 1)
def test_numbers_are_written_as_the_library_writes_them(number: int) -> None:
    field = pb.Complete(lease=number).SerializeToString()
    assert field == (b"\x08" + protobuf_bytes.varint(number) if number else b"")
    message = pb.SubmitResponse(id=number).SerializeToString()
    assert encode_submit(Submitted(number, False)) == message
    assert write_submit(Submitted(number, False)) == frame(message)
    assert encode_submit(Submitted(number, True)) == pb.SubmitResponse(id=number, duplicate=True).SerializeToString()


@given(st.binary(max_size=40), st.binary(max_size=300), st.booleans())
def test_what_is_inside_is_cut_out_only_when_nothing_else_is_there(more: bytes, inside: bytes, add: bool) -> None:
    message = _field(3, inside) + (more if add else b"")
    expected = inside if len(message) == len(_field(3, inside)) else None
    only = protobuf_bytes.Only(protobuf_bytes.tag(3, protobuf_bytes.LENGTH))
    for _ in range(2):
        begin = only.begins(message)
        assert (message[begin:] if begin else None) == expected
    begin = only.begins(message[:-1])
    assert not begin or message[begin:-1] == message[2:-1]
    assert not protobuf_bytes.Only(protobuf_bytes.tag(4, protobuf_bytes.LENGTH)).begins(message)


def test_the_inside_of_every_length_is_found() -> None:
    only = protobuf_bytes.Only(protobuf_bytes.tag(3, protobuf_bytes.LENGTH))
    for size in (*range(200), (1 << 14) - 1):
        field = _field(3, bytes(size))
        assert field[only.begins(field) :] == bytes(size)
        assert not only.begins(field + b"\0") and not only.begins(field[:-1])
    assert not only.begins(_field(3, bytes(1 << 14))) and not only.begins(b"")


@given(st.integers(0, (1 << 64) - 1), st.binary(max_size=300), TEXTS)
def test_a_completion_is_decoded_alike(lease: int, output: bytes, content_type: str) -> None:
    complete = pb.Complete(lease=lease, output=output, content_type=content_type)
    data = pb.WorkerMessage(complete=complete).SerializeToString()
    found = decode_worker(data, LIMITS)
    twice = decode_worker(data + data, LIMITS)  # the last one counts, and this is not the quick way
    assert found == twice
    assert type(found) is Complete
    assert (found.lease, found.output) == (lease, output)


def test_a_damaged_completion_is_refused() -> None:
    found = decode_worker(b"\x1a\x02\x08\xff", LIMITS)
    assert isinstance(found, Rejection)
    assert "cronoq.v1.WorkerMessage" in found.message
