"""Programs written in Go that tests run: built once into `.cache/go`, by module and version.

Without Go, or where nobody hands out modules, the tests that need one are left out with a sentence; in CI that is a
failure.
"""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.acceptance.server import ROOT

CACHE = ROOT / ".cache" / "go"
BUILD_BOUND = 300.0
"""Seconds; 11 s was measured with everything to be fetched."""


def program(package: str, version: str) -> Path:
    """The program of a package, built when this version is not there yet."""
    name = package.rpartition("/")[2]
    path = CACHE / f"{name}-{version}" / name
    if not path.exists():
        if shutil.which("go") is None:
            pytest.skip(f"helper missing: Go, which builds {name}")
        _build(package, version, path)
    return path


def _build(package: str, version: str, path: Path) -> None:
    """Into a folder of its own first, so that nobody runs half a program."""
    folder = CACHE / f"building-{uuid.uuid4()}"
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(
            ["go", "install", f"{package}@{version}"],
            env=_environment(folder),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILD_BOUND,
        )
        if done.returncode:
            pytest.skip(f"helper missing: {package}, which Go could not build: {done.stderr[-500:]}")
        path.parent.mkdir(exist_ok=True)
        os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder)


def _environment(folder: Path) -> dict[str, str]:
    environ = {**os.environ, "GOBIN": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    if not os.environ.get("HOME"):
        environ |= {"GOPATH": str(CACHE / "path"), "GOCACHE": str(CACHE / "built")}
    return environ
