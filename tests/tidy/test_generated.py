"""Generated files are what their generators write."""

import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT


@pytest.mark.parametrize("tool", ["generate_stubs.py", "generate_reference.py"])
def test_up_to_date(tool):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
