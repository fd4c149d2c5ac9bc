"""Programs in Go that tests run: built once into `.cache/go`, by module and version, or by what ours consist of.

Without Go, or where nobody hands out modules, the tests that need one are left out with a sentence; in CI that is a
failure.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.server import ROOT

CACHE = ROOT / ".cache" / "go"
PROTO = "cronoq/v1/cronoq.proto"
BUILD_BOUND = 300.0
"""Seconds; 30 s were measured with everything to be fetched."""

_missing: dict[str, str] = {}
"""What could not be built, and why: it is not tried again for each test."""


def program(package: str, version: str) -> Path:
    """The program of a package, built when this version is not there yet."""
    name = package.rpartition("/")[2]
    path = CACHE / f"{name}-{version}" / name
    if not path.exists():
        with _building(name, path.parent) as folder:
            _run(name, ["go", "install", f"{package}@{version}"], folder, folder)
    return path


def module(source: Path) -> Path:
    """The folder with the program of a module of ours, which is called like it, and those of its `tool` lines.

    The module finds the stubs of the contract in its package `cronoq/v1`, made by its own tools.
    """
    digest = hashlib.sha256()
    proto = ROOT / "proto" / PROTO
    for path in (*sorted(source.iterdir()), proto):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    built = CACHE / f"{source.parent.name}-{digest.hexdigest()[:16]}"
    if not built.exists():
        with _building(source.parent.name, built) as folder:
            inside = CACHE / f"source-{uuid.uuid4()}"
            try:
                shutil.copytree(source, inside)
                (inside / PROTO).parent.mkdir(parents=True)
                shutil.copy(proto, inside / PROTO)
                _run("tools", ["go", "install", "tool"], inside, folder)
                _run("protoc", _stubs(inside, folder), inside, folder)
                _run("our client", ["go", "build", "-o", f"{folder}/", "."], inside, folder)
            finally:
                shutil.rmtree(inside, ignore_errors=True)
    return built


def _stubs(inside: Path, tools: Path) -> list[str]:
    """As the manual says for workers in Go."""
    (name,) = (line.split()[1] for line in (inside / "go.mod").read_text().splitlines() if line.startswith("module "))
    package = f"M{PROTO}={name}/{Path(PROTO).parent}"
    options = [
        option
        for plugin in ("go", "go-grpc")
        for option in (
            f"--plugin=protoc-gen-{plugin}={tools}/protoc-gen-{plugin}",
            f"--{plugin}_out=.",
            f"--{plugin}_opt=paths=source_relative,{package}",
        )
    ]
    return [sys.executable, "-m", "grpc_tools.protoc", "-I.", *options, PROTO]


@contextmanager
def _building(name: str, path: Path) -> Iterator[Path]:
    """A folder of its own, which becomes `path` when the block is through: nobody runs half a program."""
    if shutil.which("go") is None:
        pytest.skip(f"helper missing: Go, which builds {name}")
    folder = CACHE / f"building-{uuid.uuid4()}"
    folder.mkdir(parents=True)
    try:
        yield folder
        if not path.exists():
            os.replace(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(name: str, command: list[str], inside: Path, folder: Path) -> None:
    if name in _missing:
        pytest.skip(_missing[name])
    done = subprocess.run(
        command, env=_environment(folder), cwd=inside, capture_output=True, text=True, timeout=BUILD_BOUND
    )
    if done.returncode:
        _missing[name] = f"helper missing: {name}, which could not be built: {done.stderr[-500:]}"
        pytest.skip(_missing[name])


def _environment(folder: Path) -> dict[str, str]:
    environ = {**os.environ, "GOBIN": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    if not os.environ.get("HOME"):
        environ |= {"GOPATH": str(CACHE / "path"), "GOCACHE": str(CACHE / "built")}
    return environ
