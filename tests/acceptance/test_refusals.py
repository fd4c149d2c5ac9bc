"""What is refused, with which status, and that the message names what is wrong."""

import struct

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, refused, submission
from tests.acceptance.server import HANG

SERVER = {
    "limits": "max_tags = 3\nmax_tag_len = 20\nmax_key_len = 30\nmax_kind_len = 10\nmax_pending_total = 7",
    "pools": '[[pools]]\nname = "default"\n[[pools]]\nname = "small"\nmax_pending = 2\n',
}

NAN, INFINITY = float("nan"), float("inf")

INVALID = {
    "key too long": (dict(key="k" * 31), "key"),
    "key too long in bytes": (dict(key="ü" * 16), "key"),
    "key with NUL": (dict(key="a\0b"), "key"),
    "key of an occurrence": (dict(key="x@2026-01-01T00:00:00Z"), "key"),
    "kind too long": (dict(kind="k" * 11), "kind"),
    "pool too long": (dict(pool="p" * 65), "pool"),
    "content type too long": (dict(content_type="c" * 129), "content_type"),
    "too many tags": (dict(tags={str(n): "" for n in range(4)}), "tags"),
    "tag too long": (dict(tags={"n": "v" * 21}), "tags"),
    "tag name too long": (dict(tags={"n" * 21: "v"}), "tags"),
    "reserved tag": (dict(tags={"cronoq.x": "1"}), "tags"),
    "unknown priority": (dict(priority=5), "priority"),
    "negative priority": (dict(priority=-1), "priority"),
    "negative timeout": (dict(timeout_s=-0.1), "timeout_s"),
    "timeout is no number": (dict(timeout_s=NAN), "timeout_s"),
    "infinite timeout": (dict(timeout_s=INFINITY), "timeout_s"),
    "timeout beyond 100 years": (dict(timeout_s=3_153_600_001.0), "timeout_s"),
    "negative backoff": (dict(retry=pb.RetryPolicy(initial_backoff_s=-1)), "initial_backoff_s"),
    "backoff is no number": (dict(retry=pb.RetryPolicy(max_backoff_s=NAN)), "max_backoff_s"),
    "multiplier too large": (dict(retry=pb.RetryPolicy(multiplier=1_000.1)), "multiplier"),
    "multiplier is no number": (dict(retry=pb.RetryPolicy(multiplier=NAN)), "multiplier"),
    "both deadlines": (dict(deadline_in_s=1.0, deadline_unix_ns=1), "deadline_unix_ns"),
    "deadline is no number": (dict(deadline_in_s=NAN), "deadline_in_s"),
    "deadline beyond 100 years": (dict(deadline_in_s=3_153_600_001.0), "deadline_in_s"),
    "deadline before 1970": (dict(deadline_unix_ns=-1), "deadline_unix_ns"),
    "negative hint": (dict(duration_hint_s=-1.0), "duration_hint_s"),
    "infinite hint": (dict(duration_hint_s=INFINITY), "duration_hint_s"),
    "dependency on nothing": (dict(deps=[pb.Dep()]), "deps[0].target"),
    "dependency on id 0": (dict(deps=[pb.Dep(target=pb.TaskRef(id=0))]), "deps[0].target.id"),
    "dependency on a long key": (dict(deps=[pb.Dep(target=pb.TaskRef(key="k" * 31))]), "deps[0].target.key"),
    "unknown condition": (dict(deps=[pb.Dep(target=pb.TaskRef(id=1), cond=9)]), "deps[0].cond"),
    "no units": (dict(resources={"gpu": 0}), "resources['gpu']"),
    "resource without a name": (dict(resources={"": 1}), "resources"),
    "resource with a long name": (dict(resources={"r" * 65: 1}), "resources"),
    "label without a name": (dict(labels={"": "x"}), "labels"),
    "too many labels": (dict(labels={str(n): "" for n in range(4)}), "labels"),
    "label too long": (dict(labels={"n": "v" * 21}), "labels"),
    "tenant too long": (dict(tenant="t" * 31), "tenant"),
    "tenant with NUL": (dict(tenant="a\0b"), "tenant"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_malformed_task_is_invalid(client, case):
    task, field = INVALID[case]
    with refused(Status.INVALID_ARGUMENT, field):
        client.submit(**task)


def test_a_request_without_a_task_or_reference_is_invalid(client):
    with refused(Status.INVALID_ARGUMENT, "task"):
        client.tasks.Submit(pb.SubmitRequest(), timeout=HANG)
    for method, request in (("Get", pb.GetRequest()), ("Wait", pb.WaitRequest()), ("Cancel", pb.CancelRequest())):
        with refused(Status.INVALID_ARGUMENT, "task"):
            getattr(client.tasks, method)(request, timeout=HANG)
    for ref in (pb.TaskRef(key=""), pb.TaskRef(key="k" * 31), pb.TaskRef(key="a\0")):
        with refused(Status.INVALID_ARGUMENT, "task"):
            client.tasks.Get(pb.GetRequest(task=ref), timeout=HANG)


@pytest.mark.parametrize("timeout", [-1.0, NAN, INFINITY])
def test_a_wait_timeout_must_be_a_duration(client, timeout):
    with refused(Status.INVALID_ARGUMENT, "timeout_s"):
        client.wait("anything", timeout=timeout)
    with refused(Status.INVALID_ARGUMENT, "wait_timeout_s"):
        client.submit(wait=True, wait_timeout=timeout)


def test_an_unknown_pool_is_not_found(client):
    with refused(Status.NOT_FOUND, "nowhere"):
        client.submit(pool="nowhere")


def test_a_full_pool_refuses(client):
    taken = [client.submit(pool="small").id, client.submit(pool="small").id]
    with refused(Status.RESOURCE_EXHAUSTED, "small"):
        client.submit(pool="small")
    assert client.cancel(taken[0])
    taken.append(client.submit(pool="small").id)
    for task_id in taken[1:]:
        assert client.cancel(task_id)


def test_a_full_server_refuses(client):
    taken = []
    with refused(Status.RESOURCE_EXHAUSTED):
        for _ in range(8):
            taken.append(client.submit().id)
    assert len(taken) == 7
    for task_id in taken:
        assert client.cancel(task_id)


def test_payloads_beyond_the_budget_are_refused_until_there_is_room(start):
    server = start("memory", limits="max_payload_bytes = 100000\nmax_message_bytes = 100000")
    with connect(server.address) as client:
        first = client.submit(payload=bytes(60_000)).id
        with refused(Status.RESOURCE_EXHAUSTED, "max_payload_bytes"):
            client.submit(payload=bytes(60_000))
        client.submit(payload=bytes(30_000))
        assert client.cancel(first)
        client.submit(payload=bytes(60_000))


@pytest.mark.parametrize("path", ["/cronoq.v1.Tasks/Nothing", "/cronoq.v1.Nobody/Get", "/grpc.health.v1.Health/Check"])
def test_an_unknown_method_is_unimplemented(client, path):
    with refused(Status.UNIMPLEMENTED):
        client.channel.unary_unary(path)(b"", timeout=HANG)
    with refused(Status.UNIMPLEMENTED):
        list(client.channel.stream_stream(path)(iter([b""]), timeout=HANG))
    assert client.snapshot().workers_connected == 0


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x0a\x05ab", struct.pack("<Q", 2**63), b"\x0a\x03\x32\x01\xff"])
def test_an_undecodable_message_is_invalid(client, junk):
    with refused(Status.INVALID_ARGUMENT):
        client.channel.unary_unary("/cronoq.v1.Tasks/Submit")(junk, timeout=HANG)
    with refused(Status.INVALID_ARGUMENT):
        client.channel.unary_unary("/cronoq.v1.Tasks/Get")(b"\xff" + junk, timeout=HANG)


def test_a_unary_call_with_no_or_two_messages_is_refused(client):
    call = client.channel.stream_unary("/cronoq.v1.Tasks/Submit", pb.SubmitRequest.SerializeToString)
    for messages in ([], [submission(), submission()]):
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(messages), timeout=HANG)
        assert caught.value.code() in (Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED, Status.INTERNAL)
        assert caught.value.details()
