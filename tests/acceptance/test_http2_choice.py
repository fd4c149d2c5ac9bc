"""`[server] http2`: the same server on the library h2, and by default a process that has nothing to do with it."""

import re
import sys

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, refused
from tests.acceptance.server import HANG, environment, run_cli
from tests.acceptance.workers import Worker, serving

LARGE = bytes(range(256)) * 20_000
IMPORT = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


def test_calls_and_workers_of_grpcio_on_h2(start):
    server = start("memory", server='http2 = "h2"')
    with connect(server.address) as client, connect(server.address) as other:
        first = client.submit(payload=b"one", key="k")
        assert client.submit(payload=b"one", key="k").id == first.id
        with refused(Status.NOT_FOUND):
            client.get(1 << 40)
        watching = client.tasks.Watch(pb.WatchRequest(), timeout=HANG)
        watching.initial_metadata()
        with Worker(other.channel, slots=1) as worker:
            lease = worker.lease()
            assert lease.payload == b"one"
            worker.heartbeat(lease.lease)
            worker.complete(lease.lease, b"done")
            assert client.wait(first.id).output == b"done"
            assert next(watching).status == pb.TASK_STATUS_SUCCEEDED
        with serving(other.channel):
            calls = [client.submit(wait=True, payload=bytes([number])).result.output for number in range(100)]
            assert calls == [bytes([number]) for number in range(100)]
            assert client.submit(wait=True, payload=LARGE).result.output == LARGE
    assert "served by the library h2" in server.output()
    assert server.stop() == 0


def test_other_values_are_refused_in_a_sentence(tmp_path):
    (tmp_path / "cronoq.toml").write_text('[server]\nhttp2 = "nghttp2"\n')
    for command in ("check", "serve"):
        ended = run_cli(command, "--config", "cronoq.toml", folder=tmp_path)
        assert ended.returncode == 1
        assert 'cronoq.toml:2: server.http2: found "nghttp2"; allowed is "own" or "h2"' in ended.stderr


def test_check_says_that_it_is_for_diagnosis(tmp_path):
    (tmp_path / "cronoq.toml").write_text(
        '[server]\nhttp2 = "h2"\ngrpc_addr = "127.0.0.1:0"\nhttp_addr = "127.0.0.1:0"\n'
    )
    ended = run_cli("check", "--config", "cronoq.toml", folder=tmp_path)
    assert ended.returncode == 0 and "for diagnosis only" in ended.stdout + ended.stderr


def test_a_default_server_never_imports_the_machine_on_h2(start, tmp_path):
    """The interpreter tells what it imports. hypercorn, behind health checks over HTTP, has h2 for itself."""
    command = (sys.executable, "-X", "importtime", "-m", "cronoq", "serve", "--config", "cronoq.toml")
    server = start("memory", command=command, environ=environment())
    with connect(server.address) as client, serving(client.channel):
        assert client.submit(wait=True, payload=b"x").result.output == b"x"
    imported = set(IMPORT.findall(server.output()))
    assert {"cronoq_sansio.wire.http2_server", "hypercorn.protocol.h2"} <= imported
    assert "cronoq_sansio.wire.h2_server" not in imported
