"""gRPC's framing, for clients that know nothing of it."""

from typing import Any

from google.protobuf.message import Message

HEADERS = ("-H", "content-type: application/grpc", "-H", "te: trailers")
"""What curl and h2load are told."""


def framed(message: Message) -> bytes:
    """With the prefix of gRPC: not compressed, so long."""
    data = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


def messages(content: bytes, kind: Any) -> tuple[list[Any], bytes]:
    """The whole messages in some content, and what is left of it."""
    found = []
    while len(content) >= 5 and len(content) >= (end := 5 + int.from_bytes(content[1:5], "big")):
        found.append(kind.FromString(content[5:end]))
        content = content[end:]
    return found, content
