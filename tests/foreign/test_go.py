"""A client in Go, on grpc-go and generated stubs, as its users write it (`go/`)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG, Server, free_port
from tests.foreign.conftest import Target, also_on_h2
from tests.foreign.programs import BOUND, go_folder, report


@pytest.fixture(scope="module")
def client() -> Path:
    return go_folder() / "foreign"


COUNT = 3_000


def play(client: Path, target: Target, scenario: str, **options: Any) -> Any:
    flags = [f"-{name}={value}" for name, value in options.items()]
    trust = [f"-ca={target.ca}"] if target.ca else []
    return report(client, *flags, *trust, scenario, target.address)


@also_on_h2
def test_calls_and_each_way_in_which_they_end(client: Path, target: Target) -> None:
    found = play(client, target, "unary")
    assert found == {
        "same": True,
        "duplicate": [False, True],
        "key": "go",
        "missing": ["NotFound", f"no task with id {1 << 40}"],
        "pool": ["NotFound", "unknown pool 'nowhere é ☃'"],
        "late": ["DeadlineExceeded", "the time to wait ran out before an end of the task was known; wait again"],
        "trailer": 1,
        "deadline": "DeadlineExceeded",
        "cancelled": "Canceled",
        "ended": True,
    }
    wait_until(lambda: target.server.statistics()["open_waits"] == "0", "the server has heard of the cancelled calls")


@also_on_h2
def test_a_watch(client: Path, target: Target) -> None:
    statuses = [f"TASK_STATUS_{word}" for word in ("BLOCKED", "READY", "CANCELLED")]
    assert play(client, target, "watch") == {"statuses": statuses, "end": "Canceled"}
    wait_until(lambda: target.server.statistics()["open_watches"] == "0", "the server has heard of it")


@also_on_h2
@pytest.mark.parametrize(("count", "size", "slots"), [(500, 10, 16), (20, 1_000_000, 2)])
@pytest.mark.parametrize("gzip", ["false", "true"])
def test_a_worker(client: Path, target: Target, count: int, size: int, slots: int, gzip: str) -> None:
    found = play(client, target, "work", count=count, size=size, slots=slots, gzip=gzip)
    assert (found["slots"], found["clean"]) == (slots, True)


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_server_that_comes_back_under_load(client: Path, tmp_path: Path, way: str) -> None:
    """Each task is there once, whether the server said goodbye or died; the client goes on by itself."""
    with Server(tmp_path, "sqlite", port=free_port()) as server:
        command = [client, f"-count={COUNT}", "-slots=8", "load", server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            wait_until(lambda: int(server.statistics()["live_tasks"]) > COUNT // 10, "it is at work")
            if way == "stopped":
                assert server.stop() == 0
            else:
                server.kill()
            assert process.poll() is None, "it is not through yet"
            server.start()
            output, _ = process.communicate(timeout=BOUND)
        assert process.returncode == 0, output
        with connect(server.address) as other:
            keys, after = [], 0
            while True:
                page = other.tasks.ListTasks(pb.ListTasksRequest(after=after, limit=1_000), timeout=HANG)
                keys += [info.key for info in page.tasks]
                after = page.next_after
                if not after:
                    break
        assert sorted(keys) == sorted(f"k{number}" for number in range(COUNT))
        assert server.stop() == 0
    server.check_log()
