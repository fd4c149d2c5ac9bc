"""Health over HTTP as a supervisor asks for it, and that nobody can keep it from being answered."""

import http.client
import json
import socket
import time

import pytest

from tests.acceptance.clients import connect, wait_until
from tests.acceptance.server import HANG, run_cli
from tests.acceptance.workers import Worker


def ask(port, path="/readyz", method="GET", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type"), answer.read(), answer.getheader("allow")
    finally:
        connection.close()


TEXT = "text/plain; charset=utf-8"


def test_health_and_readiness(server):
    assert ask(server.http_port, "/healthz") == (200, TEXT, b"ok", None)
    assert ask(server.http_port, "/readyz") == (200, TEXT, b"ready", None)
    assert ask(server.http_port, "/readyz", "HEAD") == (200, TEXT, b"", None)
    assert ask(server.http_port, "/readyz?verbose=1")[0] == 200


def test_what_is_refused_is_json(server):
    for path in ("/", "/readyz/", "/v1/tasks", "/metrics"):
        status, kind, body, _ = ask(server.http_port, path)
        assert (status, kind, json.loads(body)["code"]) == (404, "application/json", "not_found")
    status, kind, body, allow = ask(server.http_port, "/readyz", "POST", body=b"x" * 50_000)
    assert (status, kind, allow) == (405, "application/json", "GET, HEAD")
    assert list(json.loads(body)) == ["code", "error"]


def test_one_connection_asks_again_and_again(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=HANG)
    for _ in range(20):
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b"ready"
    connection.close()


def test_a_stopping_server_is_alive_and_not_ready(start):
    server = start("sqlite", server="shutdown_grace_s = 20")
    with connect(server.address) as client, Worker(client.channel) as worker:
        client.submit()
        lease = worker.receive("lease")
        server.terminate()
        wait_until(lambda: ask(server.http_port)[0] == 503, "not ready")
        assert ask(server.http_port) == (503, TEXT, b"stopping", None)
        assert ask(server.http_port, "/healthz")[2] == b"ok"
        worker.complete(lease.lease)
        assert server.wait() == 0
    with pytest.raises(OSError):
        ask(server.http_port)


def test_connections_that_say_nothing_block_neither_health_nor_the_stop(start):
    server = start("memory")
    silent = [socket.create_connection(("127.0.0.1", server.http_port), HANG) for _ in range(400)]
    begun = time.monotonic()
    assert ask(server.http_port)[0] == 200
    assert time.monotonic() - begun < 5
    for connection in silent[:50]:
        assert connection.recv(1) == b"", "the oldest made room"
    half = socket.create_connection(("127.0.0.1", server.http_port), HANG)
    half.sendall(b"POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 8
    for connection in (*silent, half):
        connection.close()


def test_an_address_that_is_taken_is_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "cronoq.toml"
        config.write_text(f'[server]\ngrpc_addr = "127.0.0.1:0"\nhttp_addr = "127.0.0.1:{port}"\n')
        for command in ("check", "serve"):
            done = run_cli(command, "--config", str(config), folder=tmp_path)
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert line.startswith("Error: ") and f"127.0.0.1:{port}" in line and "server.http_addr" in line
