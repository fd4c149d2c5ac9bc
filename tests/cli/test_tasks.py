"""submit, get, wait and cancel, as processes against a server and a worker."""

import json
import re

import pytest

pytestmark = pytest.mark.realtime


def submit(cli, *arguments):
    done = cli("submit", *arguments, "--json")
    assert done.code == 0, done.err
    assert set(done.json) == {"id", "duplicate"} and done.json["duplicate"] is False
    return done.json["id"]


# --- submit


def test_submit_prints_the_id_and_says_when_it_is_a_duplicate(cli):
    first = cli("submit", "hello", "--pool", "idle", "--key", "twice")
    assert first.code == 0 and re.fullmatch(r"[0-9]+\n", first.out) and first.err == ""
    second = cli("submit", "hello", "--pool", "idle", "--key", "twice")
    assert (second.code, second.out) == (0, first.out.strip() + " (duplicate)\n")
    third = cli("submit", "hello", "--pool", "idle", "--key", "twice", "--json")
    assert third.json == {"id": first.out.strip(), "duplicate": True}


def test_every_option_of_a_task_arrives(cli):
    options = ("--kind", "a.b", "--key", "all", "--priority", "high", "--tag", "x=1", "--tag", "y=a=b")
    more = ("--timeout-s", "5", "--content-type", "text/csv", "--tenant", "acme", "--duration-hint", "2.5")
    task = submit(cli, "a,b", "--pool", "idle", *options, *more)
    info = cli("get", task, "--json").json
    created = info.pop("created_unix_ns")
    assert created.isdigit() and len(created) == 19
    assert info == {
        "id": task,
        "status": "ready",
        "pool": "idle",
        "attempt": 0,
        "output_available": False,
        "key": "all",
        "kind": "a.b",
        "priority": "high",
        "tenant": "acme",
        "max_attempts": 3,
    }


def test_a_task_that_waits_for_others_is_blocked_and_skipped_with_the_reason(cli):
    parent = submit(cli, "x", "--pool", "idle", "--key", "2031")
    child = submit(cli, "x", "--pool", "idle", "--after-keys", "--after", "2031", "--deadline-in", "60")
    last = submit(cli, "x", "--pool", "idle", "--after-complete", child, "--after-failure", parent)
    assert cli("get", child, "--json").json["status"] == "blocked"
    assert "status: blocked\n" in cli("get", last).out
    assert [task["id"] for task in cli("list", "--status", "blocked", "--json").json["tasks"]] == [child, last]
    assert cli("cancel", parent).code == 0
    for task in (child, last):
        done = cli("wait", task)
        assert done.code == 1 and done.err.startswith(f"Error: task {task} skipped: "), done.err


def test_the_payload_has_four_forms(cli, worker, place):
    (place / "payload").write_bytes(b'{"name": "file"}')
    for arguments, stdin, name in (
        (['{"name": "text"}'], b"", "text"),
        (["--data", '{"name": "data"}'], b"", "data"),
        (["-"], b'{"name": "stdin"}', "stdin"),
        (["--file", "-"], b'{"name": "stdin"}', "stdin"),
        (["--file", "payload"], b"", "file"),
    ):
        done = cli("submit", "--kind", "greet", "--wait", *arguments, "--json", stdin=stdin)
        assert done.code == 0, done.err
        assert done.json["result"]["output"] == {"greeting": f"hello, {name}"}


def test_submit_waits_and_prints_the_output_behind_the_id(cli, worker):
    done = cli("submit", "--data", '{"name": "you"}', "--kind", "greet", "--wait", "--wait-timeout", "30")
    task, output = done.out.split("\n")
    assert (done.code, json.loads(output)) == (0, {"greeting": "hello, you"})
    assert task.isdigit()


def test_a_task_that_fails_is_exit_1(cli, worker):
    done = cli("submit", "--data", '{"reason": "no such address"}', "--kind", "refuse", "--wait")
    task = done.out.strip()
    assert (done.code, done.err) == (1, f"Error: task {task} failed: no such address\n")
    waited = cli("wait", task, "--json")
    assert (waited.code, waited.err) == (1, "")
    assert waited.json == {"id": task, "status": "failed", "output_available": False, "message": "no such address"}


def test_a_wait_that_takes_too_long_is_exit_5_and_the_id_is_known(cli):
    done = cli("submit", "x", "--pool", "idle", "--wait", "--wait-timeout", "0.2")
    task = done.out.strip()
    assert done.code == 5
    assert done.err == f"Error: deadline_exceeded: task {task} has not ended within 0.2 s; it goes on\n"
    done = cli("submit", "x", "--pool", "idle", "--wait", "--wait-timeout", "0.2", "--json")
    assert done.code == 5 and set(done.json) == {"id", "duplicate"}


# --- get


def test_get_shows_fields_by_id_and_by_key(cli):
    task = submit(cli, "x", "--pool", "idle", "--key", "shown")
    done = cli("get", task)
    assert done.code == 0
    fields = dict(line.split(": ", 1) for line in done.out.splitlines())
    assert fields.pop("created").endswith("Z")
    assert fields == {
        "id": task,
        "status": "ready",
        "pool": "idle",
        "kind": "default",
        "key": "shown",
        "priority": "normal",
        "attempt": "0 of 3",
        "output available": "no",
    }
    assert cli("get", "shown", "--key").out == done.out


def test_text_of_the_server_cannot_do_anything_to_a_terminal(cli):
    key = "a\x1b[31m\u202eb"
    submit(cli, "x", "--pool", "idle", "--key", key, "--kind", "k\u2066")
    got = cli("get", key, "--key")
    assert "key: a\\u{1b}[31m\\u{202e}b\n" in got.out and "kind: k\\u{2066}\n" in got.out
    assert "\x1b" not in cli("list", "--pool", "idle").out
    assert cli("get", key, "--key", "--json").json["key"] == key


def test_what_is_not_there_is_refused(cli):
    for command in ("get", "wait", "cancel"):
        done = cli(command, "5")
        assert (done.code, done.out, done.err) == (3, "", "Error: not_found: no task with id 5\n")
    done = cli("get", "none", "--key", "--json")
    assert done.code == 3 and done.err.startswith("Error: not_found: ")
    done = cli("submit", "x", "--pool", "nowhere")
    assert (done.code, done.err) == (3, "Error: not_found: unknown pool 'nowhere'\n")
    assert cli("submit", "x", "--label", f"{'n' * 2_000}=1").code == 3
    done = cli("submit", "x", "--resource", "gpu=1")
    assert (done.code, done.err.startswith("Error: not_found: ")) == (3, True) and "gpu" in done.err


# --- wait


def test_wait_prints_the_output_byte_for_byte(cli, place):
    content = bytes(range(256))
    (place / "bytes").write_bytes(content)
    with cli.start("worker", "handlers:echo", "--pool", "idle", "--loop", "asyncio") as running:
        running.until(lambda it: "ready: worker" in it.err)
        task = submit(cli, "--file", "bytes", "--pool", "idle")
        done = cli("wait", task)
        assert (done.code, done.raw, done.err) == (0, content, "")
        assert set(cli("wait", task, "--json").json) == {"id", "status", "output_available", "output_b64"}
        text = submit(cli, "plain text", "--pool", "idle", "--key", "waited")
        assert cli("wait", "waited", "--key", "--json").json == {
            "id": text,
            "status": "succeeded",
            "output_available": True,
            "output_text": "plain text",
        }
        assert running.interrupt().code == 0


def test_ctrl_c_ends_a_wait_and_not_the_task(cli):
    with cli.start("--json", "submit", "x", "--pool", "idle", "--key", "interrupted", "--wait") as running:
        running.until(lambda it: cli("get", "interrupted", "--key").code == 0)
        done = running.interrupt()
    assert (done.code, done.err) == (130, "")
    assert done.out == "" or set(done.json) == {"id", "duplicate"}
    assert cli("get", "interrupted", "--key", "--json").json["status"] == "ready"


# --- cancel


def test_cancel_says_whether_it_came_in_time(cli):
    task = submit(cli, "x", "--pool", "idle")
    assert cli("cancel", task).out == "cancelled\n"
    done = cli("cancel", task)
    assert (done.code, done.out) == (0, "already finished\n")
    assert cli("cancel", task, "--json").json == {"cancelled": False}
    done = cli("wait", task)
    assert (done.code, done.err) == (1, f"Error: task {task} cancelled: cancelled by a caller\n")
