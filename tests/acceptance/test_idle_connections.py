"""What an idle connection costs in memory: 2,000 of them at a server, and the HTTP/2 machine alone."""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance import ledger
from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG, ROOT, Server, environment
from tests.wire import raw

COUNT = 2_000
MOST_OF_SERVER = 40 << 10
"""Bytes of VmRSS for each."""
MOST_OF_MACHINE = 12 << 10
CALL = raw.frame(raw.HEADERS, raw.END_HEADERS, 1, raw.block(("te", "trailers"))) + raw.frame(
    raw.DATA, raw.END_STREAM, 1, bytes(5)
)
"""A Submit of nothing, which is answered."""

MACHINES = """
import sys
from cronoq_sansio.clock import SECOND
from cronoq_sansio.service.access import authenticate
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.http2_server import Http2Server

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024

def one(kind, said):
    limits = LimitSettings()
    if kind == "grpc":
        machine = GrpcServer(limits, SECOND, authenticate)
        events = machine.receive(said, SECOND)
        for event in events:
            event.call.sink.reject(FAILED)
    else:
        machine = Http2Server(max_streams=1024, ping_interval=SECOND, ping_timeout=SECOND, now=SECOND)
        for event in machine.receive(said, SECOND):
            machine.answer(1, [(b":status", b"200")], b"", [(b"grpc-status", b"0")])
    assert machine.take(1 << 20) and not machine.closed
    return machine

from cronoq_sansio.errors import Code, Rejection
FAILED = Rejection(Code.NOT_FOUND, "x")
kind, said = sys.argv[1], bytes.fromhex(sys.argv[2])
kept = [one(kind, said) for _ in range(200)]
before = resident()
kept += [one(kind, said) for _ in range(10_000)]
print((resident() - before) // 10_000)
"""


@contextmanager
def files(count: int) -> Iterator[None]:
    """So many files may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(server: Server) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no VmRSS")


def greet(server: Server, said: bytes) -> socket.socket:
    """A connection that is there: the server has answered."""
    connection = socket.create_connection(("127.0.0.1", server.port), HANG)
    connection.sendall(said)
    assert connection.recv(4_096)
    return connection


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform != "linux", reason="memory of another process is read from /proc")
@pytest.mark.parametrize("said", ["nothing", "a call"])
def test_connections_at_a_server(said: str, tmp_path: Path) -> None:
    data = raw.HELLO + raw.frame(raw.SETTINGS, raw.ACK, 0) + (CALL if said == "a call" else b"")
    with files(2 * COUNT), Server(tmp_path, "memory") as server, connect(server.address) as client:
        client.submit()
        warm = [greet(server, data) for _ in range(100)]
        before = resident(server)
        idle = [greet(server, data) for _ in range(COUNT)]
        each = (resident(server) - before) // COUNT
        assert int(server.statistics()["connections"]) == 1 + len(warm) + COUNT
        client.submit()
        for connection in idle + warm:
            connection.close()
        wait_until(lambda: server.statistics()["connections"] == "1", "all of them are forgotten")
        assert server.stop() == 0
    ledger.record(f"idle.server.{said.replace(' ', '_')}", bytes_each=each, connections=COUNT)
    assert each <= MOST_OF_SERVER
    server.check_log()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("said", ["nothing", "a call"])
@pytest.mark.parametrize("kind", ["http2", "grpc"])
def test_the_machine_alone(kind: str, said: str) -> None:
    data = raw.HELLO + raw.frame(raw.SETTINGS, raw.ACK, 0) + (CALL if said == "a call" else b"")
    ended = subprocess.run(
        [sys.executable, "-c", MACHINES, kind, data.hex()],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert ended.returncode == 0, ended.stderr
    each = int(ended.stdout)
    ledger.record(f"idle.{kind}.{said.replace(' ', '_')}", bytes_each=each, connections=10_000)
    assert each <= MOST_OF_MACHINE
