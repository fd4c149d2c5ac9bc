"""`worker` and `demo`, as processes."""

import json
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.realtime


def test_a_function_in_a_thread_serves_a_pool(cli, server):
    with cli.start("worker", "handlers:echo_in_a_thread", "--pool", "idle") as running:
        running.until(lambda it: f"ready: worker of {server.address}" in it.err)
        done = cli("submit", "hello", "--pool", "idle", "--wait", "--json")
        assert done.json["result"]["output_text"] == "hello"
        assert running.interrupt().code == 0


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_the_first_signal_lets_handlers_finish(cli, loop):
    with cli.start("worker", "handlers:tasks", "--loop", loop) as running:
        task = cli("submit", "--data", '{"seconds": 0.5}', "--kind", "sleep", "--json").json["id"]
        running.until(lambda it: "sleeping" in it.out)
        done = running.interrupt()
    assert done.code == 0 and "stopping: 1 running may finish" in done.err
    assert cli("wait", task, "--json").json["output"] == "slept"


def test_the_second_signal_cuts_them_off(cli):
    with cli.start("worker", "handlers:tasks") as running:
        task = cli("submit", "--data", '{"seconds": 60}', "--kind", "sleep", "--json").json["id"]
        running.until(lambda it: "sleeping" in it.out)
        running.process.send_signal(signal.SIGTERM)
        running.until(lambda it: "stopping: 1" in it.err)
        done = running.interrupt()
    assert done.code == 130
    assert cli("cancel", task).out == "cancelled\n", "the server has it back"


def test_a_handler_that_exits_ends_the_worker_with_a_sentence(cli):
    (cli.folder / "leaving.py").write_text("import sys\n\n\nasync def leave(lease):\n    sys.exit(3)\n")
    cli("submit", "x", "--pool", "idle")
    done = cli("worker", "leaving:leave", "--pool", "idle")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("Error: a handler ended the worker (SystemExit: 3)")


def test_what_connecting_again_cannot_cure_ends_the_worker(cli):
    done = cli("worker", "handlers:echo", "--pool", "nowhere")
    assert (done.code, done.err.splitlines()[-1]) == (3, "Error: not_found: unknown pool 'nowhere'")


def test_a_worker_without_a_server_says_so_and_waits_for_it(absent):
    cli, address = absent
    with cli.start("worker", "handlers:tasks") as running:
        running.until(lambda it: f"{address}: connection refused" in it.err)
        assert "`cronoq-trio serve`" in running.err
        assert running.interrupt().code == 0


def test_demo_runs_to_its_end_and_leaves_nothing(cli, tmp_path):
    done = cli("demo", TMPDIR=str(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert "11 tasks: " in done.out and "9 succeeded" in done.out
    for status in ("retrying", "running", "cancelled"):
        assert f" {status} " in done.out
    assert list(tmp_path.iterdir()) == []


def test_demo_as_json(cli):
    done = cli("demo", "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    ends = {event["key"]: event["status"] for event in events}
    assert (done.code, len(ends)) == (0, 11)
    assert (ends["flaky-1"], ends["hopeless-1"], ends["unwanted"]) == ("succeeded", "failed", "cancelled")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_ends_cleanly_when_it_is_interrupted(cli, tmp_path, number):
    with cli.start("demo", TMPDIR=str(tmp_path)) as running:
        running.until(lambda it: " running " in it.out)
        (folder,) = tmp_path.iterdir()
        server = int((folder / "demo.db.leader").read_text())
        done = running.interrupt(number)
    assert (done.code, done.err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 10
    while Path(f"/proc/{server}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{server}").exists()
