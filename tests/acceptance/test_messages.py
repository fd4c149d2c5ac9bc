"""Sizes and encodings: messages up to the limit and one byte above, outputs over flow control, gzip, metadata."""

import gzip

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, submission, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

LIMIT = 1 << 20
HEADROOM = 1_024
POOLS = ("limit", "large", "gzip", "flow", "output", "answer", "stream", "kept")
SERVER = {
    "limits": f"max_message_bytes = {LIMIT}",
    "outputs": "cache_bytes = 500000000",
    "pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in POOLS),
}


def payload_of(size, **task):
    """A payload with which the encoded TaskSpec has exactly `size` bytes."""
    payload = b"\xa5" * size
    excess = pb.TaskSpec(payload=payload, **task).ByteSize() - size
    spec = pb.TaskSpec(payload=payload[excess:], **task)
    assert spec.ByteSize() == size
    return spec.payload


def test_a_task_at_the_limit_runs_through_to_a_worker_and_back(client):
    """What is accepted must fit into a Lease with the longest names around it, else it would kill every worker."""
    names = {"key": "k" * 256, "kind": "d" * 128, "content_type": "t" * 128, "pool": "limit"}
    payload = payload_of(LIMIT - HEADROOM, **names)
    with serving(client.channel, pool="limit") as worker:
        result = client.submit(wait=True, payload=payload, **names).result
        assert word(result.status) == "succeeded"
        assert result.output == payload
        assert worker.registered.max_message_bytes == LIMIT
    assert client.wait(result.id).output == payload


def test_a_task_one_byte_larger_is_refused(client):
    payload = payload_of(LIMIT - HEADROOM + 1, pool="limit")
    with refused(Status.RESOURCE_EXHAUSTED, str(LIMIT - HEADROOM)):
        client.submit(payload=payload, pool="limit")


def test_a_message_above_the_limit_is_refused_with_limit_and_size(client):
    request = submission(payload=payload_of(LIMIT + 1))
    assert request.ByteSize() > LIMIT
    with refused(Status.RESOURCE_EXHAUSTED, str(LIMIT), str(request.ByteSize())):
        client.tasks.Submit(request, timeout=HANG)
    client.snapshot()  # on the same connection, which goes on


def test_a_message_far_above_the_limit_is_refused_before_it_is_buffered(client):
    with refused(Status.RESOURCE_EXHAUSTED, str(LIMIT)):
        client.submit(payload=bytes(40 * LIMIT))
    client.snapshot()


def test_an_output_at_the_limit_comes_back(client):
    with Worker(client.channel, pool="output") as worker:
        task_id = client.submit(pool="output").id
        output = b"\x5a" * (LIMIT - HEADROOM)
        worker.complete(worker.lease().lease, output)
        assert client.wait(task_id).output == output


def test_an_output_one_byte_larger_fails_its_attempt_for_good(client):
    with Worker(client.channel, pool="output", slots=2) as worker:
        task_id = client.submit(pool="output").id
        worker.complete(worker.lease().lease, bytes(LIMIT - HEADROOM + 1))
        result = client.wait(task_id)
        assert word(result.status) == "failed"
        assert str(LIMIT - HEADROOM) in result.message
        client.submit(pool="output")
        worker.complete(worker.lease().lease)  # the stream goes on


def test_a_worker_message_above_the_limit_ends_the_stream_and_says_so(client):
    task_id = client.submit(pool="stream").id
    with Worker(client.channel, pool="stream") as worker:
        worker.complete(worker.lease().lease, bytes(LIMIT))
        code, details = worker.ended()
        assert code is Status.RESOURCE_EXHAUSTED
        assert str(LIMIT) in details
    assert client.status(task_id) in ("retrying", "ready")
    assert client.cancel(task_id)


def test_big_outputs_pass_many_at_once_over_one_connection(client):
    """60 MB each way through windows of 64 KiB to 1 MiB, while small calls go on between them."""
    count, size = 60, 1_000_000
    with connect(client_address(client)) as other, serving(other.channel, pool="flow", slots=16):
        calls = [
            client.tasks.Submit.future(submission(wait=True, pool="flow", payload=bytes([n]) * size), timeout=HANG)
            for n in range(count)
        ]
        client.snapshot()
        for number, call in enumerate(calls):
            assert call.result(HANG).result.output == bytes([number]) * size


def client_address(client):
    return client.channel._channel.target().decode()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
def test_compressed_requests_are_read(client, compression):
    payload = b"compressible " * 10_000
    reply = client.tasks.Submit(submission(pool="gzip", payload=payload), timeout=HANG, compression=compression)
    with Worker(client.channel, pool="gzip") as worker:
        lease = worker.lease()
        worker.complete(lease.lease)
    assert (lease.task_id, lease.payload) == (reply.id, payload)


def test_a_worker_may_compress_too(client):
    """Every message of this stream is compressed, the Register included."""
    with grpc.insecure_channel(client_address(client), compression=grpc.Compression.Gzip) as channel:
        task_id = client.submit(pool="gzip", payload=b"p").id
        with Worker(channel, pool="gzip") as worker:
            worker.complete(worker.lease().lease, b"zip " * 50_000)
            assert client.wait(task_id).output == b"zip " * 50_000


def test_a_message_that_inflates_beyond_the_limit_is_refused(client):
    """20 MB of zeros in 20 KB."""
    payload = bytes(20 * LIMIT)
    assert len(gzip.compress(payload)) < LIMIT // 10
    request = submission(pool="gzip", payload=payload)
    with refused(Status.RESOURCE_EXHAUSTED, str(LIMIT)):
        client.tasks.Submit(request, timeout=HANG, compression=grpc.Compression.Gzip)
    client.snapshot()


def test_an_unknown_encoding_is_unimplemented_and_names_the_known_ones(client):
    call = client.channel.unary_unary("/cronoq.v1.Tasks/Submit", pb.SubmitRequest.SerializeToString)
    with refused(Status.UNIMPLEMENTED, "gzip"):
        call(submission(pool="gzip", payload=b"a" * 10_000), timeout=HANG, compression=grpc.Compression.Deflate)


def test_metadata_of_all_kinds_is_taken(client):
    metadata = (
        ("x-text", "a b, c"),
        ("x-bytes-bin", bytes(range(256))),
        ("x-empty", ""),
        ("authorization", "Bearer x"),
    )
    assert client.tasks.Submit(submission(pool="kept"), timeout=HANG, metadata=metadata).id


def test_a_header_list_beyond_the_limit_harms_nobody_else(client):
    with pytest.raises(grpc.RpcError):
        client.tasks.Submit(submission(pool="kept"), timeout=HANG, metadata=(("x-large", "x" * 40_000),))
    with connect(client_address(client)) as other:
        assert other.submit(pool="kept").id


def test_messages_with_every_character_arrive(client):
    """Failure texts travel in results; a refusal's text is percent-encoded in the trailers."""
    text = 'percent % quote " umlaut ü snowman ☃ newline \n tab \t end'
    task_id = client.submit(pool="answer").id
    with Worker(client.channel, pool="answer") as worker:
        worker.fail(worker.lease().lease, text, permanent=True)
        assert client.wait(task_id).message == text
    with refused(Status.NOT_FOUND, "☃ % ü"):
        client.tasks.Get(pb.GetRequest(task=reference("☃ % ü")), timeout=HANG)


def test_a_failure_text_is_cut(client):
    task_id = client.submit(pool="answer").id
    with Worker(client.channel, pool="answer") as worker:
        worker.fail(worker.lease().lease, "ü" * 10_000, permanent=True)
        assert client.wait(task_id).message == "ü" * 4_096
