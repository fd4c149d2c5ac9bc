"""What people see: the same commands on a terminal."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.acceptance.server import HANG

pty = pytest.importorskip("pty")
pytestmark = pytest.mark.realtime
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command whose three streams are a terminal."""

    def __init__(self, cli, *arguments):
        self.master, slave = pty.openpty()
        environ = {**cli.environ, "TERM": "xterm-256color", "COLUMNS": "140"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cronoq", *arguments],
            cwd=cli.folder,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.raw = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    @property
    def text(self):
        return COLOURS.sub("", self.raw).replace("\r", "")

    def read(self):
        try:
            self.raw += os.read(self.master, 65_536).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # the other side is closed
            return False
        return True

    def until(self, words):
        deadline = time.monotonic() + HANG
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self.read(), self.text

    def end(self):
        deadline = time.monotonic() + HANG
        while self.read() and (self.process.poll() is None or self.raw == ""):
            assert time.monotonic() < deadline, self.text
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        self.read()
        assert "Traceback" not in self.text
        return self.process.returncode


def test_a_table_has_colours_and_no_escape_of_the_server(cli):
    cli("submit", "x", "--pool", "idle", "--key", "a\x1b[5mb")
    cancelled = cli("submit", "x", "--pool", "idle", "--key", "gone").out.strip()
    cli("cancel", cancelled)
    with Terminal(cli, "list", "--pool", "idle") as terminal:
        assert terminal.end() == 0
    assert "a\\u{1b}[5mb" in terminal.text and "\x1b[5m" not in terminal.raw
    assert re.search(r"\x1b\[35m *cancelled", terminal.raw)
    assert terminal.text.splitlines()[0].split() == [
        "ID", "STATUS", "POOL", "KIND", "KEY", "PRIORITY", "TENANT", "ATTEMPT", "AGE",
    ]  # fmt: skip


def test_wait_shows_how_the_task_is_and_ends_with_ctrl_c(cli):
    task = cli("submit", "x", "--pool", "idle").out.strip()
    with Terminal(cli, "wait", task) as terminal:
        terminal.until(f"task {task} is ready, attempt 0")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    assert cli("get", task, "--json").json["status"] == "ready"


def test_an_output_is_escaped(cli):
    with cli.start("worker", "handlers:echo", "--pool", "idle") as running:
        running.until(lambda it: "ready: worker" in it.err)
        task = cli("submit", "line\n\x1b[31mred\x07", "--pool", "idle").out.strip()
        with Terminal(cli, "wait", task) as terminal:
            assert terminal.end() == 0
        running.interrupt()
    assert "line\n\\u{1b}[31mred\\u{7}\n" in terminal.text


def test_demo_is_one_table_that_changes(cli):
    with Terminal(cli, "demo") as terminal:
        assert terminal.end() == 0
    assert "cronoq-trio demo: a server at 127.0.0.1:" in terminal.text
    assert "flaky-1" in terminal.text and "11 tasks: " in terminal.text
