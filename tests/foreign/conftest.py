"""Servers for foreign clients: in cleartext, behind TLS, and on the library h2; each a process of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.server import Server
from tests.runtime import certificates

POOLS = "".join(f'[[pools]]\nname = "{name}"\nmax = 1000\n' for name in ("default", "worked"))
"""Nobody but a worker under test looks into the pool `worked`: its leases are of tasks that the test submitted."""
WAYS = ["cleartext", "tls"]
also_on_h2 = pytest.mark.parametrize("target", [*WAYS, "h2"], indirect=True, scope="module")
"""A test that the other machine, `[server] http2 = "h2"`, has to pass as well."""


@dataclass(frozen=True)
class Target:
    """What a client connects to."""

    server: Server
    ca: Path | None
    """The authority that signed the certificate; None = cleartext."""

    @property
    def address(self) -> str:
        """With the name that is in the certificate, which has the address too."""
        return f"localhost:{self.server.port}" if self.ca else self.server.address

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://{self.address}"


def serve(folder: Path, tls: bool, server: str = "") -> Server:
    """A server that is not started; `server` are lines of that table."""
    extra = ""
    if tls:
        certificates.write(folder)
        extra = f'[server.tls]\ncert = "{folder / "cert.pem"}"\nkey = "{folder / "key.pem"}"\n'
    return Server(folder, server=server, pools=POOLS, extra=extra)


@pytest.fixture(scope="module", params=WAYS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server that the tests of a module share, in both ways; for some of them one in cleartext on h2, too."""
    folder = tmp_path_factory.mktemp("server")
    tls, h2 = request.param == "tls", request.param == "h2"
    with serve(folder, tls, 'http2 = "h2"' if h2 else "") as server:
        assert h2 == ("served by the library h2" in server.output())
        yield Target(server, folder / "ca.pem" if tls else None)
        assert server.stop() == 0
    server.check_log()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in cleartext that the tests of a module share."""
    with serve(tmp_path_factory.mktemp("server"), False) as server:
        yield server
        assert server.stop() == 0
    server.check_log()
