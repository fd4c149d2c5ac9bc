"""A file system that is small enough to fill. Not below pytest's own folders, which other runs clean up."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(size: str) -> Iterator[Path | None]:
    """A folder that is a file system of `size` (as `mount` reads it, `4m`); None where that is not allowed."""
    with tempfile.TemporaryDirectory(prefix="cronoq-disk-") as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name]
        try:
            allowed = os.geteuid() == 0 and not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
        except FileNotFoundError:
            allowed = False
        if not allowed:
            yield None
            return
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)
