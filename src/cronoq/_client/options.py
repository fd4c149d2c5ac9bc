"""gRPC channel arguments: those that mean something here."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cronoq_sansio.clock import MILLISECOND
from cronoq_sansio.limits import CLIENT_MAX_RECEIVE, CLIENT_PING_INTERVAL, CLIENT_PING_TIMEOUT

UNLIMITED = (1 << 32) - 1  #: what the length field of a message can say


@dataclass(slots=True)
class ChannelOptions:
    """The arguments, with their defaults. Sizes are bytes, times nanoseconds."""

    max_receive: int = CLIENT_MAX_RECEIVE
    max_send: int | None = None
    ping_interval: int = CLIENT_PING_INTERVAL
    ping_timeout: int = CLIENT_PING_TIMEOUT
    server_name: str | None = None
    authority: str | None = None


def read_options(options: Iterable[tuple[str, Any]], *, quiet: bool = False) -> ChannelOptions:
    """The known arguments; others warn, values that make no sense raise TypeError or ValueError."""
    known = ChannelOptions()
    for name, value in options:
        match name:
            case "grpc.max_receive_message_length":
                known.max_receive = _size(name, value)
            case "grpc.max_send_message_length":
                known.max_send = _size(name, value)
            case "grpc.keepalive_time_ms":
                known.ping_interval = _positive(name, value) * MILLISECOND
            case "grpc.keepalive_timeout_ms":
                known.ping_timeout = _positive(name, value) * MILLISECOND
            case "grpc.ssl_target_name_override":
                known.server_name = _text(name, value)
            case "grpc.default_authority":
                known.authority = _text(name, value)
            case _ if not quiet:
                warnings.warn(f"the channel option {name!r} has no effect", stacklevel=4)
    return known


def _size(name: str, value: Any) -> int:
    return UNLIMITED if value == -1 else _positive(name, value)


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: an integer is needed, not {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name}: {value} is not above 0")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: a str is needed, not {type(value).__name__}")
    if not value.isascii() or not value.isprintable() or not value:
        raise ValueError(f"{name}: {value!r} is not printable ASCII")
    return value
