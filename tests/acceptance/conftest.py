"""Servers for the tests: most share one per store and module, those that break it have their own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.clients import Client, connect
from tests.acceptance.server import Server

Starter = Callable[..., Server]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that is not about stores says so with `STORES = ["memory"]`."""
    if "server" in metafunc.fixturenames:
        stores = getattr(metafunc.module, "STORES", ["memory", "sqlite"])
        metafunc.parametrize("server", stores, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server on each store, shared by the tests of a module; a module sets `SERVER` to change tables."""
    tables: dict[str, Any] = getattr(request.module, "SERVER", {})
    server = Server(tmp_path_factory.mktemp("server"), request.param, **tables)
    with server:
        yield server
        assert server.stop() == 0
    server.check_log()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server.address) as client:
        yield client


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start servers that are the test's own; all are killed after it, and their logs looked at."""
    servers: list[Server] = []

    def starter(store: str = "sqlite", **tables: Any) -> Server:
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        server = Server(folder, store, **tables)
        servers.append(server)
        return server.start()

    yield starter
    for server in servers:
        server.kill()
    for server in servers:
        server.check_log()
