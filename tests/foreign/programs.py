"""The foreign clients that are programs: where each comes from, and how it is run.

What is not on this machine, and cannot be built, leaves its tests out with a sentence; in CI that is a failure.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.go_tools import module
from tests.acceptance.server import ROOT

HERE = Path(__file__).parent
BOUND = 120.0
"""Seconds that a program may take; the longest take 12."""
NODE = 20
"""The first version of Node.js that Connect-ES takes."""


_missing: list[str] = []
"""Why there are no packages for Node.js: it is not tried again for each test."""


def go_folder() -> Path:
    """The folder with `foreign`, our client in Go, and `grpcurl`."""
    return module(HERE / "go")


def node_folder() -> Path:
    """The folder with our scripts for Node.js, and beside them the packages of the lock file."""
    source, npm = HERE / "node", installed("npm")
    if int(re.findall(r"\d+", run(installed("node"), "--version"))[0]) < NODE:
        pytest.skip(f"helper missing: Node.js {NODE} or newer")
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = ROOT / ".cache" / "node"
    folder = cache / digest.hexdigest()[:16]
    if not folder.exists():
        if _missing:
            pytest.skip(_missing[0])
        building = cache / f"building-{uuid.uuid4()}"
        shutil.copytree(source, building)
        try:
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=building, capture_output=True, text=True, timeout=BOUND, check=False)
            if done.returncode:
                _missing.append(f"helper missing: packages for Node.js: {done.stderr[-500:]}")
                pytest.skip(_missing[0])
            if not folder.exists():
                building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


def contract(folder: Path) -> Path:
    """The contract as a file with its descriptors."""
    files = FileDescriptorSet()
    pb.DESCRIPTOR.CopyToProto(files.file.add())
    path = folder / "contract.binpb"
    path.write_bytes(files.SerializeToString())
    return path


def server_command(name: str, folder: Path) -> list[str]:
    """What starts a foreign server that prints its port, and ends when its input does; `folder` is for its files."""
    if name == "grpc-go":
        return [str(go_folder() / "foreign"), "serve"]
    if name == "Connect-ES":
        return [installed("node"), str(node_folder() / "serve.mjs"), str(contract(folder))]
    return [sys.executable, "-m", "tests.foreign.noop_server", name.removeprefix("grpcio ")]


def trusting(ca: Path | None) -> dict[str, str]:
    """The environment of a Node.js that trusts the authority."""
    return dict(os.environ) | ({"NODE_EXTRA_CA_CERTS": str(ca)} if ca else {})


def installed(name: str) -> str:
    """A program of the system."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"helper missing: {name}")
    return path


def run(*command: object, stdin: bytes = b"", code: int = 0, env: dict[str, str] | None = None) -> str:
    """What the program prints; it must end with this exit code."""
    words = [str(part) for part in command]
    done = subprocess.run(words, input=stdin, env=env, capture_output=True, timeout=BOUND, check=False)
    output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{command[0]} ended with {done.returncode}:\n{output[-4_000:]}\n{errors[-4_000:]}"
    return output


def report(*command: object, env: dict[str, str] | None = None) -> Any:
    """The JSON that the program prints."""
    return json.loads(run(*command, env=env))
