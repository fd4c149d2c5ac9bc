"""The wheel alone, in an empty environment outside the checkout, is the whole product."""

import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pip(python, *arguments):
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode and ("No matching distribution" in done.stderr or "connection" in done.stderr.lower()):
        pytest.skip("helper missing: a package index that answers")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(folder with the wheel, commands of the environment)."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
    commands = folder / "venv" / "bin"
    pip(commands / "python", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    pip(commands / "python", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    return wheel, commands


def clean():
    """An environment that leads to nothing of the checkout."""
    names = ("PYTHONPATH", "CRONOQ_CONFIG", "CRONOQ_LOG", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in names} | {"HOME": ""}


def test_it_holds_the_contract_the_licences_and_the_types(installed):
    wheel, commands = installed
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("cronoq/py.typed", "cronoq_sansio/py.typed", "LICENSE-MIT", "LICENSE-APACHE"):
        assert any(name.endswith(wanted) for name in names), wanted
    assert not [name for name in names if name.startswith(("tests", "tools", "docs"))]
    done = subprocess.run(
        [commands / "cronoq-trio", "print-proto"], capture_output=True, text=True, env=clean(), timeout=60, check=True
    )
    assert done.stdout == (ROOT / "proto" / "cronoq" / "v1" / "cronoq.proto").read_text(encoding="utf-8")


@pytest.mark.realtime
def test_it_serves(installed, tmp_path):
    _, commands = installed
    (tmp_path / "cronoq.toml").write_text(
        '[server]\ngrpc_addr = "127.0.0.1:0"\nhttp_addr = "127.0.0.1:0"\n[store]\nkind = "sqlite"\npath = "x.db"\n'
    )
    with subprocess.Popen(
        [commands / "cronoq-trio", "serve"],
        cwd=tmp_path,
        env=clean(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        timer = threading.Timer(60, server.kill)
        timer.start()
        seen = []
        for line in server.stdout:
            seen.append(line)
            if line.startswith("ready: grpc 127.0.0.1:"):
                server.terminate()
        code = server.wait()
        timer.cancel()
    assert code == 0, "".join(seen)
    assert (tmp_path / "x.db").exists()
