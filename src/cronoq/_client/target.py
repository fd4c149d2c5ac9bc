"""Where a server is: `host:port`, and what goes with it."""

import ipaddress
import re

from cronoq_sansio.values import value

_SCHEMES = {"http://": False, "https://": True, "grpc://": None}
_HTTPS_PORT = 443
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9.])?")


@value
class Target:
    """A parsed target."""

    host: str
    """A name or an address, without brackets."""
    port: int
    tls: bool | None
    """What the scheme says; None = nothing."""

    @property
    def authority(self) -> str:
        """As in `:authority`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """`localhost`, 127/8 or `::1`: what is said there does not leave the machine."""
        if self.host.lower().rstrip(".") == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_target(text: str) -> Target:
    """`host:port`, `[IPv6]:port`, or one of them after `http://`, `https://` (TLS; port 443 if none) or `grpc://`.

    TypeError or ValueError with the reason.
    """
    if not isinstance(text, str):
        raise TypeError(f"target: a str like 'localhost:7070' is needed, not {type(text).__name__}")
    rest, tls = text, None
    for scheme, meaning in _SCHEMES.items():
        if text.lower().startswith(scheme):
            rest, tls = text[len(scheme) :].rstrip("/"), meaning
            break
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or not _is_ipv6(host):
            raise ValueError(f"target {text!r}: the brackets must hold an IPv6 address")
        port = tail.removeprefix(":") if tail.startswith(":") else ("" if not tail else "?")
    else:
        host, _, port = rest.partition(":")
        if not _NAME.fullmatch(host):
            raise ValueError(f"target {text!r}: write host:port, like localhost:7070 or [::1]:7070")
    return Target(host, _port(text, port, tls), tls)


def _port(text: str, port: str, tls: bool | None) -> int:
    if not port and tls:
        return _HTTPS_PORT
    if port.isascii() and port.isdigit() and 0 < int(port) < 65_536:
        return int(port)
    what = f"{port!r} is not a port from 1 to 65535" if port else "it has no port; write host:port, like localhost:7070"
    raise ValueError(f"target {text!r}: {what}")


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
