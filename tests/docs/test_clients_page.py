"""The page of tested clients names each of them, at the versions that are pinned and recorded, and its tests."""

import json
import re

import pytest

from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs" / "protocol" / "clients.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
VERSIONS = {name.strip(): row[1] for row in ROWS[1:] for name in row[0].replace(" sync and asyncio", "").split(",")}
TESTS = {path for row in ROWS[1:] for path in re.findall(r"`([^`]+)`", row[3])}
RECORDED = {
    found["name"]: found["version"]
    for found in (json.loads(path.read_text()) for path in (ROOT / "tests" / "wire" / "recorded").glob("*.json"))
}
FOREIGN = ROOT / "tests" / "foreign"


def pins():
    """What the files of the project ask for."""
    python = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    go = dict(re.findall(r"(\S+) v(\S+)", (FOREIGN / "go" / "go.mod").read_text()))
    node = json.loads((FOREIGN / "node" / "package.json").read_text())["dependencies"]
    return {
        "grpcio": python["grpcio"],
        "grpcio-server-sync": python["grpcio"],
        "grpcio-server-aio": python["grpcio"],
        "grpc-go-server": go["google.golang.org/grpc"],
        "grpclib": python["grpclib"],
        "grpc-go": go["google.golang.org/grpc"],
        "grpcurl": go["github.com/fullstorydev/grpcurl"],
        "Connect-ES": node["@connectrpc/connect-node"],
        "Connect-ES-server": node["@connectrpc/connect-node"],
    }


def test_each_peer_is_there_with_the_version_that_was_recorded():
    assert {name: version for name, version in VERSIONS.items() if name} == RECORDED


@pytest.mark.parametrize(("name", "version"), pins().items())
def test_what_was_recorded_is_what_is_pinned(name, version):
    assert RECORDED[name] == version, "record it again: python -m tests.foreign.record"


def test_all_tests_are_named():
    assert {f"tests/foreign/{path.name}" for path in FOREIGN.glob("test_*.py")} <= TESTS
    missing = [path for path in TESTS if not (ROOT / path).exists()]
    assert not missing
