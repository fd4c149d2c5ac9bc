"""Clients that send much of what costs a server, and mean well: none of them is ever closed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, wait_until
from tests.acceptance.server import HANG, Server
from tests.acceptance.workers import serving
from tests.foreign.framing import HEADERS, framed
from tests.foreign.node_peer import NodeClient
from tests.foreign.programs import BOUND, go_folder, installed, report, run
from tests.foreign.tap import Tap, tapped

MIB = 1 << 20
NO_ERROR = 0


def assert_kept(tap: Tap) -> None:
    """There was one connection, and the server did not end it but with a client that had said farewell."""
    connection = tap.only()
    ends = list(connection.server.ends)  # before the farewell is looked for, which was there before its answer
    assert ends in ([], [NO_ERROR][: connection.client.frames["GOAWAY"]]), connection


@pytest.fixture
def tap(server: Server) -> Iterator[Tap]:
    """What connects to it stays connected: there is one connection, and the server finds no fault with it."""
    with tapped(server.port) as tap:
        yield tap
        if tap.connections:
            assert_kept(tap)


@pytest.fixture(scope="module")
def idle(server: Server) -> Iterator[tuple["subprocess.Popen[str]", Tap]]:
    """A client in Go that keeps quiet and pings, while the others are at work."""
    with tapped(server.port) as tap:
        command = [str(go_folder() / "foreign"), "-idle=11s", "idle", tap.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            yield process, tap
            process.kill()


@pytest.mark.parametrize(("size", "count"), [(10, 3_000), (65_536, 500)])
def test_a_go_client_measures_the_path_with_pings(tap: Tap, idle: object, size: int, count: int) -> None:
    found = report(go_folder() / "foreign", f"-count={count}", f"-size={size}", "-slots=16", "work", tap.address)
    assert found == {"slots": 16, "clean": True}
    assert tap.only().client.frames["PING"] >= 50, "hundreds are usual"


def large_output(server: Server, size: int) -> bytes:
    """A framed request for an output of that size."""
    with connect(server.address) as client, serving(client.channel, pool="worked"):
        task_id = client.submit(True, pool="worked", payload=bytes(size)).id
    return framed(pb.WaitRequest(task=reference(task_id)))


def test_h2load_opens_windows_of_a_kilobyte(server: Server, tap: Tap, tmp_path: Path) -> None:
    """Each frame of DATA is answered with two WINDOW_UPDATEs, one of the stream and one of the connection."""
    body = tmp_path / "body"
    body.write_bytes(large_output(server, MIB))
    load = ["-n", 10, "-c", 1, "-m", 5, "-w", 10, "-W", 10, *HEADERS, "-d", body]
    output = run(installed("h2load"), *load, f"http://{tap.address}/cronoq.v1.Tasks/Wait")
    assert "10 succeeded, 0 failed, 0 errored, 0 timeout" in output, output
    assert tap.only().client.frames["WINDOW_UPDATE"] >= 10 * MIB // 1_024


def test_node_opens_its_windows_for_250_mib(server: Server, tap: Tap) -> None:
    """One output again and again: on streams one after another, and on many at once."""
    size, count = 2 * MIB, 125
    request = large_output(server, size)
    with NodeClient(f"http://{tap.address}") as node:
        for number in range(count):
            node.call(number, "Tasks/Wait", request, count=True)
            if number % 10 == 0:
                assert node.hear("close", number)["size"] > size
        for number in range(count):
            if number % 10:
                assert node.hear("close", number)["size"] > size
    assert tap.only().client.frames["WINDOW_UPDATE"] >= 5_000, "13,000 are usual"


@pytest.mark.parametrize("way", ["one deadline", "cancelled"])
def test_grpcio_gives_1000_calls_up_at_once(server: Server, tap: Tap, way: str) -> None:
    """Each becomes a reset, but where the server has seen the deadline pass before that comes."""
    with connect(server.address) as client:
        task_id = client.submit().id
    with connect(tap.address) as client:
        client.snapshot()
        request = pb.WaitRequest(task=reference(task_id))
        calls = [client.tasks.Wait.future(request, timeout=1 if way == "one deadline" else HANG) for _ in range(1_000)]
        if way == "cancelled":
            wait_until(lambda: server.statistics()["waiting_for_tasks"] == "1000", "all are there")
            for call in calls:
                call.cancel()
        assert {call.code() for call in calls} == {Status.CANCELLED if way == "cancelled" else Status.DEADLINE_EXCEEDED}
        wait_until(lambda: server.statistics()["waiting_for_tasks"] == "0", "all are gone")
        client.snapshot()
    assert way == "one deadline" or tap.only().client.frames["RST_STREAM"] == 1_000


@pytest.mark.realtime
def test_a_go_client_that_keeps_quiet_pings(idle: tuple["subprocess.Popen[str]", Tap]) -> None:
    """Its keepalive is at the shortest that grpc-go takes, and no call is open: the connection stays."""
    process, tap = idle
    output, _ = process.communicate(timeout=BOUND)
    assert (process.returncode, output) == (0, '{"lost":false}\n')
    assert tap.only().client.frames["PING"] >= 1
    assert_kept(tap)
