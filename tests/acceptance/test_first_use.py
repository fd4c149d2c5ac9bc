"""What somebody meets who has just got the project: a fresh clone and its README, the wheel in an empty environment."""

import os
import re
import shlex
import subprocess
import sys
from functools import partial

import pytest

from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG, READY, ROOT, Server, environment, free_port
from tests.acceptance.workers import serving

SET_UP = 600.0
"""Seconds for a set-up from the package index; 15 s were measured."""
README_PORT = 7070
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What is committed, and nothing else."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("fresh") / "cronoq-trio"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True, timeout=HANG)
    return folder


def stranger(home):
    """The environment of somebody who has never used this: an empty home, nothing of ours."""
    ours = ("ARGS", "CRONOQ_", "PYTHON", "VIRTUAL_ENV", "VENV", "MAKE", "MFLAGS", "PYTEST", "UV_", "XDG_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    # A tool that runs from an environment of ours must not lend it: `python3` is to be the system's.
    ours_bin = os.path.dirname(sys.executable)
    path = os.pathsep.join(part for part in environ.get("PATH", "").split(os.pathsep) if part != ours_bin)
    return {**environ, "HOME": str(home), "PATH": path}


def blocks(language):
    """The code blocks of the README in a language, as they are printed."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_readme_from_a_fresh_clone(clone, tmp_path):
    """Its blocks in their order: each command is run as it is printed, each answer compared with what is shown."""
    (source,) = blocks("python")
    serve, _test, greetings, worker, commands = blocks("console")
    submit, listing, watch = commands.splitlines()
    _start, shown, shown_later = blocks("text")
    home = tmp_path / "home"
    home.mkdir()
    environ = stranger(home)
    log, worker_log, watch_log = (tmp_path / f"{name}.log" for name in ("serve", "worker", "watch"))
    assert not (clone / "cronoq.db").exists()
    assert not (clone / ".venv").exists()
    running = []
    try:
        printed, port = make_serve(running, serve, clone, environ, log)
        assert re.search(rf"ready: grpc 127.0.0.1:{port} http 127.0.0.1:\d+\n", printed)
        assert str(clone / "cronoq.db") in printed
        if port != README_PORT:
            environ["CRONOQ_SERVER"] = f"127.0.0.1:{port}"
        (clone / "greetings.py").write_text(at_port(source, port))
        assert_alike(output(greetings, clone, environ), shown)
        start(running, shlex.split(worker), clone, environ, worker_log)
        wait_until(lambda: "ready: worker of " in worker_log.read_text(), "the worker is registered")
        submitted = output(submit, clone, environ) + "\n"  # which a terminal gets and a pipe does not
        listed = output(listing, clone, environ)
        start(running, shlex.split(watch), clone, environ, watch_log)
        wait_until(lambda: "Ctrl-C ends" in watch_log.read_text(), "the watch has begun")
        watched = watch_log.read_text().replace(f":{port}", f":{README_PORT}")
        assert_alike(submitted + listed + watched, shown_later)
    finally:
        for process in reversed(running):
            end(process)
    wait_until(lambda: re.search(r"\] stopped ", log.read_text()), "the server has stopped")
    assert (clone / "cronoq.db").stat().st_mode & 0o777 == 0o600
    assert not any("Traceback" in path.read_text() for path in (log, worker_log, watch_log))


def output(command, folder, environ):
    """What a command of the README prints."""
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=environ, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def assert_alike(printed, shown):
    """They are equal but for the ids of tasks, which tell how often the server was started, and their ages."""
    printed, shown = (re.sub(r"\b\d{15}\b", "ID", re.sub(r" +\d+s ago", " AGO", text)) for text in (printed, shown))
    assert printed == shown


def make_serve(running, command, clone, environ, log):
    """`make serve` up to its last start-up line; what it printed, and its port.

    That is the README's, unless somebody on this machine uses it, which whoever follows the README may well do.
    """
    port = README_PORT
    while True:
        serve = start(running, shlex.split(command), clone, environ, log)
        wait_until(partial(ready_or_over, serve, log), "make serve is ready", bound=SET_UP)
        printed = log.read_text()
        if serve.poll() is None:
            return printed, port
        assert re.search(r"cannot listen on 127.0.0.1:\d+: another program", printed), printed
        port = free_port()
        server = f'[server]\ngrpc_addr = "127.0.0.1:{port}"\nhttp_addr = "127.0.0.1:0"\n'
        text = f'{server}[store]\nkind = "sqlite"\npath = "cronoq.db"\n'
        (clone / "cronoq.toml").write_text(text)


def at_port(source, port):
    assert source.count(f":{README_PORT}") == 1
    return source.replace(f":{README_PORT}", f":{port}")


def ready_or_over(process, log):
    return process.poll() is not None or READY.search(log.read_text())


def start(running, command, folder, environ, log):
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    running.append(process)
    return process


def end(process):
    """SIGTERM; `make` hands it on to what it started, and may be gone first."""
    process.terminate()
    try:
        process.wait(HANG)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def installed(clone, tmp_path_factory):
    """The programs of an empty environment with the wheel in it, and nothing of the checkout in reach."""
    folder = tmp_path_factory.mktemp("installed")
    environ = {**stranger(folder), "HOME": os.environ.get("HOME", str(folder))}  # whose cache makes this faster

    def run(*command):
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SET_UP)
        assert done.returncode == 0, done.stderr

    wheels = folder / "wheels"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(clone))
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    (wheel,) = wheels.iterdir()
    programs = folder / "venv" / "bin"
    run(str(programs / "python"), "-m", "pip", "install", "-q", "-c", str(clone / "constraints.txt"), str(wheel))
    return programs


def test_the_wheel_serves(installed, tmp_path):
    config = tmp_path / "cronoq.toml"
    command = (str(installed / "cronoq-trio"), "serve", "-c", str(config))
    server = Server(tmp_path, "sqlite", command=command, environ=stranger(tmp_path))
    with server, connect(server.address) as client, serving(client.channel):
        assert client.submit(wait=True, payload=b"wheel").result.output == b"wheel"
        assert server.stop() == 0
    server.check_log()


def test_the_wheel_holds_everything(installed, tmp_path):
    def run(*command):
        return subprocess.run(
            command, cwd=tmp_path, env=stranger(tmp_path), capture_output=True, text=True, timeout=HANG, check=True
        ).stdout

    program = str(installed / "cronoq-trio")
    assert re.fullmatch(r"cronoq-trio \d+\.\d+\.\d+\S*\n", run(program, "--version"))
    proto = (ROOT / "proto/cronoq/v1/cronoq.proto").read_text(encoding="utf-8")
    assert run(program, "print-proto") == proto
    python = str(installed / "python")
    assert run(python, "-c", "import cronoq, cronoq_sansio, cronoq._proto.cronoq_pb2") == ""
    files = run(python, "-c", "import importlib.metadata as m; print(*m.files('cronoq-trio'), sep='\\n')")
    for name in ("cronoq/py.typed", "cronoq_sansio/py.typed", "LICENSE-MIT", "LICENSE-APACHE"):
        assert name in files
    assert "tests/" not in files


WITHOUT_UNIX = """
import signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
    sys.modules[name] = None
import cronoq, cronoq.config, cronoq.errors, cronoq_sansio
import cronoq._proto.cronoq_pb2, cronoq._cli.main
from cronoq._stores import memory, sqlite
"""


def test_nothing_at_import_that_windows_lacks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX], env=environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
