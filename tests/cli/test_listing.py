"""list, workers, snapshot and watch, as processes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def many(cli):
    """Ids of tasks in the pool `idle`."""
    return [cli("submit", "x", "--pool", "idle", "--key", f"many-{number}", "--json").json["id"] for number in range(3)]


# --- list


def test_list_is_a_table_and_says_that_more_follow(cli, many):
    done = cli("list", "--pool", "idle", "--limit", "2")
    heading, *rows = done.out.splitlines()
    assert heading.split() == ["ID", "STATUS", "POOL", "KIND", "KEY", "PRIORITY", "TENANT", "ATTEMPT", "AGE"]
    assert [row.split()[:8] for row in rows] == [
        [task, "ready", "idle", "default", f"many-{number}", "normal", "-", "0/3"]
        for number, task in enumerate(many[:2])
    ]
    assert (done.code, done.err) == (0, f"More follow: --after {many[1]}, or --all\n")


def test_pages_and_the_whole_as_json(cli, many):
    page = cli("list", "--pool", "idle", "--limit", "2", "--json")
    assert (page.code, page.err) == (0, "")
    assert [task["id"] for task in page.json["tasks"]] == many[:2] and page.json["next_after"] == many[1]
    rest = cli("list", "--pool", "idle", "--after", many[1], "--json").json
    assert [task["id"] for task in rest["tasks"]] == many[2:] and "next_after" not in rest
    everything = cli("list", "--pool", "idle", "--all", "--json").json
    assert [task["key"] for task in everything["tasks"]] == ["many-0", "many-1", "many-2"]
    assert set(everything) == {"tasks"}


def test_filters(cli, many):
    assert cli("list", "--status", "running", "--json").json == {"tasks": []}
    both = cli("list", "--status", "ready", "--status", "failed", "--pool", "idle", "--pool", "default", "--json")
    assert [task["id"] for task in both.json["tasks"]] == many
    done = cli("list", "--pool", "nowhere")
    assert done.code == 3 and "nowhere" in done.err


def test_a_reader_that_stops_early_sees_no_complaint(cli, many):
    for command in (["list", "--all"], ["get", many[0]], ["snapshot", "--json"]):
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "cronoq", *command],
                stdout=write,
                stderr=subprocess.PIPE,
                env=cli.environ,
                timeout=60,
                check=False,
            )
        finally:
            os.close(write)
        assert (done.returncode, done.stderr) == (141, b""), command


# --- workers, snapshot


def test_workers(cli, worker):
    done = cli("workers")
    heading, row = done.out.splitlines()
    assert heading.split() == ["ID", "NAME", "POOL", "BUSY", "LABELS", "CONNECTED"]
    assert row.split()[1:5] == ["tester", "default", "0/4", "gpu=a"] and row.endswith(" ago")
    (found,) = cli("workers", "--json").json["workers"]
    assert found.pop("id").isdigit() and found.pop("connected_unix_ns").isdigit()
    assert found == {"name": "tester", "pool": "default", "labels": {"gpu": "a"}, "slots": 4, "busy": 0}


def test_snapshot(cli, worker, many):
    done = cli("snapshot")
    lines = done.out.splitlines()
    assert lines[0].split() == ["POOL", "CAPACITY", "BUSY", "HELD", "DESIRED", "PENDING", "RESERVED", "WORKERS", "COST"]
    assert [line.split() for line in lines[1:3]] == [
        ["default", "4", "0", "0", lines[1].split()[4], "0", "0", "1", "0"],
        ["idle", "0", "0", "0", lines[2].split()[4], "3", "0", "0", "0"],
    ]
    assert lines[4].split()[:5] == ["POOL", "STARTED", "SUCCEEDED", "FAILED", "WAIT"]
    assert [line.split()[0] for line in lines[5:7]] == ["default", "idle"]
    assert lines[8] == "3 live, 0 running, 3 pending, 1 workers"
    assert lines[9].startswith("since the start 3 submitted, 0 attempts, ") and lines[10].startswith("0 retries, ")
    found = cli("snapshot", "--json").json
    assert (found["live_tasks"], found["unavailable_shards"], found["totals"]["submitted"]) == (3, [], 3)


# --- watch


def test_watch_prints_ends_until_ctrl_c(cli, server, worker):
    with cli.start("watch", "--pool", "default") as running:
        running.until(lambda it: it.err == f"Watching {server.address}; Ctrl-C ends\n")
        task = cli("submit", "--data", '{"name": "x"}', "--kind", "greet", "--key", "seen", "--json").json["id"]
        running.until(lambda it: it.out.endswith("\n"))
        done = running.interrupt()
    assert done.code == 0
    when, *words = done.out.split()
    assert words == ["succeeded", task, "pool=default", "key=seen", "attempt=1"]
    assert len(when) == 20 and when.endswith("Z")


def test_watch_as_json_shows_every_change_of_one_task(cli, worker):
    arguments = ("watch", "--key", "all-of-it", "--all", "--json")
    with cli.start(*arguments) as running:
        running.until(lambda it: "Watching" in it.err)
        cli("submit", "--data", '{"name": "x"}', "--kind", "greet", "--key", "other")
        task = cli("submit", "--data", '{"reason": "r"}', "--kind", "refuse", "--key", "all-of-it", "--json").json["id"]
        running.until(lambda it: '"failed"' in it.out)
        done = running.interrupt()
    events = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, {event["id"] for event in events}) == (0, {task})
    assert [event["status"] for event in events][-2:] == ["running", "failed"]
    last = events[-1]
    assert last.pop("at_unix_ns").isdigit()
    assert last == {"id": task, "pool": "default", "key": "all-of-it", "status": "failed", "attempt": 1, "message": "r"}
