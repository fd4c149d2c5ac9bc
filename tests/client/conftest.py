"""Both event loops for every test of the client, and the servers that it talks to."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from tests.acceptance.server import HANG, Server
from tests.client.foreign import ForeignServer

Run = Callable[..., Any]


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(backend: str) -> Run:
    """Run a coroutine function to its end, on one of the two loops; what hangs fails."""

    def run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def bounded() -> Any:
            with anyio.fail_after(HANG):
                return await function(*arguments)

        return anyio.run(bounded, backend=backend)

    return run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our server as a process of its own."""
    pools = "".join(f'[[pools]]\nname = "{name}"\nmax = 1000\n' for name in ("default", "other"))
    pools += '[[pools]]\nname = "small"\nmax = 1\nmax_pending = 1\noverflow = "reject"\n'
    server = Server(tmp_path_factory.mktemp("server"), "memory", pools=pools, limits="max_message_bytes = 262144")
    with server:
        yield server
        assert server.stop() == 0
    server.check_log()


@pytest.fixture(scope="module")
def foreign() -> Iterator[ForeignServer]:
    """A server on grpcio, for the methods that answer anything we like."""
    with ForeignServer() as server:
        yield server
