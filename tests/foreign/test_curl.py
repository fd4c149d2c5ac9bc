"""curl and h2load, which know HTTP/2 and nothing of gRPC: they are told the headers, and given framed messages."""

import re
from pathlib import Path

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import reference, submission
from tests.foreign.conftest import Target, also_on_h2
from tests.foreign.framing import HEADERS, framed
from tests.foreign.programs import installed, run


def curl(target: Target, folder: Path, path: str, *options: str, body: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and trailers together, and the content."""
    answer, headers = folder / "answer", folder / "headers"
    answer.write_bytes(b"")
    way = ["--http2", "--cacert", str(target.ca)] if target.ca else ["--http2-prior-knowledge"]
    command = [*way, "-sS", "-o", answer, "-D", headers, *options, "--data-binary", "@-", target.url + path]
    run(installed("curl"), *command, stdin=body)
    status, *fields = headers.read_text().splitlines()
    version, code = status.split()
    assert version == "HTTP/2"
    return {":status": code, **dict(field.split(": ", 1) for field in fields if field)}, answer.read_bytes()


@also_on_h2
def test_a_call(target: Target, tmp_path: Path) -> None:
    headers, body = curl(target, tmp_path, "/cronoq.v1.Tasks/Submit", *HEADERS, body=framed(submission(key="curl")))
    assert (headers["content-type"], headers["grpc-status"]) == ("application/grpc", "0")
    submitted = pb.SubmitResponse.FromString(body[5:])
    assert body == framed(submitted) and submitted.id and not submitted.duplicate


def test_a_call_that_fails(target: Target, tmp_path: Path) -> None:
    request = framed(pb.GetRequest(task=reference(1 << 40)))
    headers, body = curl(target, tmp_path, "/cronoq.v1.Tasks/Get", *HEADERS, body=request)
    assert (headers["grpc-status"], headers["grpc-message"], body) == ("5", f"no task with id {1 << 40}", b"")


@also_on_h2
def test_large_content(target: Target, tmp_path: Path) -> None:
    """Above every window: curl waits for credit."""
    request = framed(submission(payload=bytes(3_000_000)))
    headers, _ = curl(target, tmp_path, "/cronoq.v1.Tasks/Submit", *HEADERS, body=request)
    assert headers["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("options", "status"), [(("-X", "GET", *HEADERS), "405"), (("-H", "content-type: text/plain"), "415")]
)
def test_what_is_not_grpc(target: Target, tmp_path: Path, options: tuple[str, ...], status: str) -> None:
    headers, _ = curl(target, tmp_path, "/cronoq.v1.Tasks/Get", *options, body=b"x")
    assert headers[":status"] == status


def test_h2load(target: Target, tmp_path: Path) -> None:
    """Some connections with many calls at once: each is answered with 200."""
    calls, body = 2_000, tmp_path / "body"
    body.write_bytes(framed(submission()))
    load = ["-n", calls, "-c", 4, "-m", 32, *HEADERS, "-d", body]
    output = run(installed("h2load"), *load, f"{target.url}/cronoq.v1.Tasks/Submit")
    assert f"{calls} succeeded, 0 failed, 0 errored, 0 timeout" in output, output
    assert re.search(rf"status codes: {calls} 2xx", output), output
    assert int(target.server.statistics()["live_tasks"]) >= calls, "each has brought a task"
