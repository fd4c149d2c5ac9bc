"""Node's own HTTP/2 client: gRPC by hand, one call and a worker's stream; and a client on Connect-ES."""

from pathlib import Path

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import reference, submission, wait_until
from tests.foreign.conftest import Target, also_on_h2
from tests.foreign.framing import framed, messages
from tests.foreign.node_peer import NodeClient
from tests.foreign.programs import contract, installed, node_folder, report, trusting

CANCEL = 8


@also_on_h2
def test_calls(target: Target) -> None:
    with NodeClient(target.url, target.ca) as node:
        node.call(1, "Tasks/Submit", framed(submission(key="node")))
        assert node.hear("headers", 1)["fields"] == {":status": 200, "content-type": "application/grpc"}
        ((submitted,), rest) = messages(node.content(1), pb.SubmitResponse)
        assert submitted.id and not rest
        assert node.hear("trailers", 1)["fields"] == {"grpc-status": "0"}
        assert node.hear("close", 1)["code"] == 0
        node.call(2, "Tasks/Get", framed(pb.GetRequest(task=reference(1 << 40))))
        fields = node.hear("headers", 2)["fields"]
        assert (fields["grpc-status"], fields["grpc-message"]) == ("5", f"no task with id {1 << 40}")
        # A message in many pieces, each in a frame of its own.
        content = framed(submission(key="node", payload=bytes(100)))
        node.call(3, "Tasks/Submit", *(content[at : at + 1] for at in range(len(content))))
        ((again,), _) = messages(node.content(3), pb.SubmitResponse)
        assert again.duplicate and again.id == submitted.id
        node.do(ping=1)
        node.hear("ping", 1)


@also_on_h2
def test_a_worker(target: Target) -> None:
    with NodeClient(target.url, target.ca) as node:
        register = pb.WorkerMessage(register=pb.Register(pool="worked", slots=2, protocol_version=3))
        node.call(1, "Workers/Work", framed(register), end=False)
        ((registered,), _) = messages(node.content(1), pb.ServerMessage)
        assert registered.registered.slots == 2
        content = b""
        for number in range(2, 12):
            node.call(number, "Tasks/Submit", framed(submission(True, pool="worked", payload=b"%d" % number)))
            found: list[pb.ServerMessage] = []
            while not found:
                found, content = messages(content + node.content(1), pb.ServerMessage)
            lease = found[0].lease
            done = pb.Complete(lease=lease.lease, output=lease.payload * 2)
            node.write(1, framed(pb.WorkerMessage(complete=done)))
            ((answer,), _) = messages(node.content(number), pb.SubmitResponse)
            assert answer.result.output == b"%d" % number * 2
        node.do(end=1)
        assert node.hear("trailers", 1)["fields"] == {"grpc-status": "0"}


@pytest.mark.parametrize(
    ("method", "announced", "status"), [("Tasks/Nothing", 1_000_000, "12"), ("Tasks/Submit", 1 << 31, "8")]
)
def test_large_content_that_nobody_wants(target: Target, method: str, announced: int, status: str) -> None:
    """The answer is there before the content is, of which as much has come as the first window allows."""
    with NodeClient(target.url, target.ca) as node:
        node.call(1, method, b"\0" + announced.to_bytes(4, "big") + bytes(1_000_000))
        assert node.hear("headers", 1)["fields"]["grpc-status"] == status
        assert node.hear("close", 1)["code"] == 0
        node.call(2, "Tasks/Submit", framed(submission()))
        assert node.hear("trailers", 2)["fields"] == {"grpc-status": "0"}


def test_a_call_that_is_reset(target: Target) -> None:
    with NodeClient(target.url, target.ca) as node:
        node.call(1, "Tasks/Watch", framed(pb.WatchRequest()))
        node.hear("headers", 1)
        assert target.server.statistics()["open_watches"] == "1"
        node.do(reset=1)
        assert node.hear("close", 1)["code"] == CANCEL
        wait_until(lambda: target.server.statistics()["open_watches"] == "0", "the server has heard of the reset")


LATE = "the time to wait ran out before an end of the task was known; wait again"


@also_on_h2
def test_connect(target: Target, tmp_path: Path) -> None:
    command = [installed("node"), node_folder() / "connect.mjs", contract(tmp_path), target.url]
    found = report(*command, env=trusting(target.ca))
    assert found == {
        "calls": {
            "same": True,
            "duplicate": [False, True],
            "key": "connect",
            "missing": ["NotFound", f"no task with id {1 << 40}", False],
            "pool": ["NotFound", "unknown pool 'nowhere é ☃'", False],
            "late": ["DeadlineExceeded", LATE, True],
            "deadline": "DeadlineExceeded",
            "cancelled": "Canceled",
            "ended": True,
        },
        "watch": {
            "statuses": [pb.TASK_STATUS_BLOCKED, pb.TASK_STATUS_READY, pb.TASK_STATUS_CANCELLED],
            "end": "Canceled",
        },
        "small": {"slots": 8, "done": 200},
        "large": {"slots": 8, "done": 20},
        "packed": {"slots": 8, "done": 20},
    }
    figures = ("open_waits", "open_watches")
    # The program has ended, and the server may not have read its last words.
    wait_until(lambda: {target.server.statistics()[name] for name in figures} == {"0"}, "what was cancelled is over")
