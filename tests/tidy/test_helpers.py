"""A test that is left out because a program of the machine is missing fails where CI runs, and only there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT

TESTS = """
import pytest

def test_helper():
    pytest.skip("helper missing: h2load")

def test_other():
    pytest.skip("not on this system")
"""


@pytest.mark.parametrize(("ci", "closing"), [("true", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_missing_helpers(tmp_path, ci, closing):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert closing in done.stdout.splitlines()[-1], done.stdout
    assert ("skipped in CI, helper missing: h2load" in done.stdout) is bool(ci)
