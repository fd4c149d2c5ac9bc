"""The foreign clients that are programs: where each comes from, and how it is run.

What is not on this machine, and cannot be built, leaves its tests out with a sentence; in CI that is a failure.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.go_tools import module

HERE = Path(__file__).parent
BOUND = 120.0
"""Seconds that a program may take; the longest take 12."""


def go_folder() -> Path:
    """The folder with `foreign`, our client in Go, and `grpcurl`."""
    return module(HERE / "go")


def installed(name: str) -> str:
    """A program of the system."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"helper missing: {name}")
    return path


def run(*command: object, stdin: str | bytes = b"", code: int = 0) -> str:
    """What the program prints; it must end with this exit code."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run([str(part) for part in command], input=given, capture_output=True, timeout=BOUND, check=False)
    output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{command[0]} ended with {done.returncode}:\n{output[-4_000:]}\n{errors[-4_000:]}"
    return output


def report(*command: object) -> Any:
    """The JSON that the program prints."""
    return json.loads(run(*command))
