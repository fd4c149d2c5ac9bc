"""A client in Go, on grpc-go and generated stubs, as its users write it (`go/`)."""

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.clients import wait_until
from tests.foreign.conftest import Target
from tests.foreign.programs import go_folder, report


@pytest.fixture(scope="module")
def client() -> Path:
    return go_folder() / "foreign"


def play(client: Path, target: Target, scenario: str, **options: Any) -> Any:
    flags = [f"-{name}={value}" for name, value in options.items()]
    trust = [f"-ca={target.ca}"] if target.ca else []
    return report(client, *flags, *trust, scenario, target.address)


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


def test_a_watch(client: Path, target: Target) -> None:
    statuses = [f"TASK_STATUS_{word}" for word in ("BLOCKED", "READY", "CANCELLED")]
    assert play(client, target, "watch") == {"statuses": statuses, "end": "Canceled"}
    wait_until(lambda: target.server.statistics()["open_watches"] == "0", "the server has heard of it")


@pytest.mark.parametrize(("count", "size", "slots"), [(500, 10, 16), (20, 1_000_000, 2)])
@pytest.mark.parametrize("gzip", ["false", "true"])
def test_a_worker(client: Path, target: Target, count: int, size: int, slots: int, gzip: str) -> None:
    found = play(client, target, "work", count=count, size=size, slots=slots, gzip=gzip)
    assert (found["slots"], found["clean"]) == (slots, True)
