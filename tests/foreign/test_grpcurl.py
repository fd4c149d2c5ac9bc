"""grpcurl: calls from a shell, with the contract as a file."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.go_tools import PROTO
from tests.acceptance.server import ROOT
from tests.foreign.conftest import Target, also_on_h2
from tests.foreign.programs import BOUND, go_folder, run

NOT_FOUND, LATE = 64 + 5, 64 + 4
"""Exit codes of grpcurl: 64 and the status."""


@pytest.fixture(scope="module")
def grpcurl() -> Path:
    return go_folder() / "grpcurl"


def options(target: Target) -> list[str]:
    trust = ["-cacert", str(target.ca)] if target.ca else ["-plaintext"]
    return ["-import-path", str(ROOT / "proto"), "-proto", PROTO, *trust]


def call(grpcurl: Path, target: Target, method: str, request: dict[str, Any], *flags: str, code: int = 0) -> str:
    command = [*options(target), *flags, "-format-error", "-d", json.dumps(request), target.address]
    return run(grpcurl, *command, f"cronoq.v1.{method}", code=code)


@also_on_h2
def test_calls(grpcurl: Path, target: Target) -> None:
    first = json.loads(call(grpcurl, target, "Tasks/Submit", {"task": {"key": "curl", "payload": "eA=="}}))
    again = json.loads(call(grpcurl, target, "Tasks/Submit", {"task": {"key": "curl"}}))
    assert again == {**first, "duplicate": True}
    found = json.loads(call(grpcurl, target, "Tasks/Get", {"task": first}))
    assert (found["id"], found["key"], found["status"]) == (first["id"], "curl", "TASK_STATUS_READY")
    assert json.loads(call(grpcurl, target, "Tasks/Cancel", {"task": {"key": "curl"}})) == {"cancelled": True}


def test_errors(grpcurl: Path, target: Target) -> None:
    call(grpcurl, target, "Tasks/Get", {"task": {"id": 1 << 40}}, code=NOT_FOUND)
    call(grpcurl, target, "Tasks/Submit", {"task": {}, "wait": True, "waitTimeoutS": 0.05}, code=LATE)
    # Its time runs from before it connects.
    call(grpcurl, target, "Tasks/Watch", {}, "-max-time", "2", code=LATE)


def test_a_worker(grpcurl: Path, target: Target) -> None:
    """Messages go out as they are typed, and answers are printed as they come."""
    command = [str(grpcurl), *options(target), "-d", "@", target.address, "cronoq.v1.Workers/Work"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        say(worker, {"register": {"pool": "worked", "slots": 1, "protocolVersion": 3}})
        assert hear(worker)["registered"]["slots"] == 1
        task = json.loads(call(grpcurl, target, "Tasks/Submit", {"task": {"pool": "worked", "payload": "eA=="}}))
        lease = hear(worker)["lease"]
        assert (lease["taskId"], lease["payload"]) == (task["id"], "eA==")
        say(worker, {"complete": {"lease": lease["lease"], "output": "eXk="}})
        result = json.loads(call(grpcurl, target, "Tasks/Wait", {"task": task}))
        assert (result["status"], result["output"]) == ("TASK_STATUS_SUCCEEDED", "eXk=")
        worker.stdin.close()
        assert (worker.wait(BOUND), worker.stdout.read()) == (0, "")


def say(worker: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(message) + "\n")
    worker.stdin.flush()


def hear(worker: "subprocess.Popen[str]") -> Any:
    """The next message, which is printed over several lines."""
    assert worker.stdout is not None
    text = ""
    while True:
        line = worker.stdout.readline()
        assert line, f"grpcurl has ended: {text}"
        text += line
        if line == "}\n":
            return json.loads(text)
