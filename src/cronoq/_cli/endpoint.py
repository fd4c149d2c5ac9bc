"""Which server, as whom, and over what: the options that every command with a server takes."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cronoq._cli.failures import usage

if TYPE_CHECKING:
    from cronoq.client import Client, PemPaths

DEFAULT_SERVER = "127.0.0.1:7070"
SERVER_VARIABLE = "CRONOQ_SERVER"
TOKEN_VARIABLE = "CRONOQ_TOKEN"
MAX_TOKEN_FILE = 65_536
"""Bytes; a token is one header of a call, and headers are bounded by far less."""
MAX_RECEIVE = 64 << 20
"""Bytes of one answer (server.md section 12)."""

SERVER_HELP = (
    "The server: `host:port`, or a URL; `https://` means TLS. Without it the variable CRONOQ_SERVER, "
    f"else {DEFAULT_SERVER}."
)


@Parameter(name="*")
@dataclass(frozen=True)
class Endpoint:
    """The options themselves. They may stand before the command too."""

    server: Annotated[str | None, Parameter(help=SERVER_HELP)] = None
    token_file: Annotated[
        str | None, Parameter(help="File with the access token. Without it the variable CRONOQ_TOKEN is used, if set.")
    ] = None
    tls_ca: Annotated[
        str | None, Parameter(help="PEM file of the roots to trust instead of the system's; implies TLS.")
    ] = None
    tls_cert: Annotated[str | None, Parameter(help="PEM file of the client's certificate; needs --tls-key.")] = None
    tls_key: Annotated[str | None, Parameter(help="PEM file of the client's key; needs --tls-cert.")] = None
    tls_domain: Annotated[
        str | None, Parameter(help="The name that the server's certificate must have, if not the host's.")
    ] = None

    @property
    def target(self) -> str:
        """What to connect to, as the user wrote it."""
        return self.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER

    @property
    def address(self) -> str:
        """`host:port`, for messages."""
        from cronoq._client.target import parse_target

        return parse_target(self.target).authority

    def client(self) -> "Client":
        """A client that is not connected yet."""
        from cronoq.client import Client

        arguments = self.arguments()
        with told_warnings():
            return Client(self.target, **arguments)

    def arguments(self) -> dict[str, Any]:
        """What `Client` and `Worker` take beside the target. All of it was looked at: nothing fails later."""
        from cronoq._client.target import parse_target

        try:
            secure = parse_target(self.target).tls
        except ValueError as error:
            usage(f"--server: {error}")
        paths = self._pem_paths()
        asked = paths is not None or self.tls_domain is not None
        if asked and secure is False:
            usage(f"--server: {self.target} is in clear, but --tls options are given; write https://…")
        options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", MAX_RECEIVE)]
        if self.tls_domain is not None:
            if not re.fullmatch(r"[A-Za-z0-9.:-]+", self.tls_domain):
                usage(f"--tls-domain: {self.tls_domain!r} is not the name of a host")
            options.append(("grpc.ssl_target_name_override", self.tls_domain))
        return {
            "token": self._token(),
            "tls": asked or bool(secure),
            "credentials": self._context(paths),
            "options": options,
        }

    def _token(self) -> str | None:
        if self.token_file is None:
            name, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
        else:
            name, text = f"--token-file: {self.token_file}", _read_token(self.token_file)
        token = text.strip()
        if not (token.isascii() and (token.isprintable() or not token)):
            usage(f"{name}: only printable ASCII characters can be sent as a token")
        if not token and self.token_file is not None:
            usage(f"{name}: the file is empty")
        return token or None

    def _pem_paths(self) -> "PemPaths | None":
        if (self.tls_cert is None) != (self.tls_key is None):
            usage("--tls-cert and --tls-key belong together: give both or none")
        if self.tls_ca is None and self.tls_cert is None:
            return None
        from cronoq.client import PemPaths

        return PemPaths(self.tls_ca, self.tls_cert, self.tls_key)

    def _context(self, paths: "PemPaths | None") -> Any:
        if paths is None:
            return None
        from cronoq._client.dialing import make_context

        for option, path in (("--tls-ca", paths.ca), ("--tls-cert", paths.cert), ("--tls-key", paths.key)):
            if path is not None:
                try:
                    with open(path, "rb"):
                        pass
                except (OSError, ValueError) as error:
                    usage(f"{option}: {path}: cannot be read: {getattr(error, 'strerror', None) or error}")
        try:
            return make_context(paths)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            names = ", ".join(str(path) for path in (paths.ca, paths.cert, paths.key) if path is not None)
            usage(f"the TLS files cannot be used ({getattr(error, 'reason', None) or error}): {names}")


def _read_token(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_TOKEN_FILE + 1)
    except (OSError, ValueError) as error:
        usage(f"--token-file: {path}: cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(content) > MAX_TOKEN_FILE:
        usage(f"--token-file: {path}: larger than {MAX_TOKEN_FILE} bytes; this is no token")
    return content.decode("utf-8", "replace")


@contextmanager
def told_warnings() -> Iterator[None]:
    """What is warned of in the block, as sentences on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text = str(warning.message).replace("use TLS (https://… or tls=True)", "use TLS: --server https://…")
        print(f"Warning: {text}", file=sys.stderr)
