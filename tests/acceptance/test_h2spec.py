"""h2spec, the conformance tests of HTTP/2 and HPACK, strict ones included: on the machine alone, and on our port."""

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.acceptance import h2_app
from tests.acceptance.go_tools import program
from tests.acceptance.server import Server
from tests.runtime import certificates

PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec"
VERSION = "v0.0.0-20200804131034-70ac22940108"
"""Release 2.6.0, whose tag is none that Go takes."""
TESTS = 147
"""How many there are with the strict ones; fewer were not all run."""
BOUND = 300.0
"""Seconds for a run; on the machine alone it takes 0.1 s, on our port 5 s."""


@pytest.fixture(scope="module")
def h2spec() -> Path:
    return program(PACKAGE, VERSION)


@pytest.fixture(params=["cleartext", "tls"])
def tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "tls")


def run(h2spec: Path, folder: Path, port: int, tls: bool) -> tuple[int, int, list[str]]:
    """How many tests were run and how many skipped; which failed."""
    report = folder / "report.xml"
    options = ["--strict", "--timeout", "5", "--port", str(port), "--junit-report", str(report)]
    done = subprocess.run(
        [h2spec, *options, *(["--tls", "--insecure"] if tls else [])], capture_output=True, text=True, timeout=BOUND
    )
    closing = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    assert closing is not None, done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    failed = [f"{case.get('package')}: {case.get('classname')}" for case in cases if case.find("failure") is not None]
    assert len(failed) == int(closing[4]), done.stdout
    return int(closing[1]), int(closing[3]), failed


def test_the_machine_alone(h2spec: Path, tls: bool, tmp_path: Path) -> None:
    with h2_app.serving(certificates.server_side(tmp_path) if tls else None) as port:
        assert run(h2spec, tmp_path, port, tls) == (TESTS, 0, [])


def test_our_port(h2spec: Path, tls: bool, tmp_path: Path) -> None:
    extra = ""
    if tls:
        certificates.write(tmp_path)
        extra = f'[server.tls]\ncert = "{tmp_path / "cert.pem"}"\nkey = "{tmp_path / "key.pem"}"\n'
    with Server(tmp_path, extra=extra) as server:
        assert run(h2spec, tmp_path, server.port, tls) == (TESTS, 0, [])
        assert server.stop() == 0
    server.check_log()
