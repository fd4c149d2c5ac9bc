"""The payload of a task and the output of a worker: from Python to bytes and a content type (client.md section 2)."""

import json
from typing import Any

OCTETS = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


def encode_payload(payload: Any) -> tuple[bytes, str]:
    """Bytes-like as it is, `str` as UTF-8, None as nothing, anything else as JSON; with the content type of that.

    TypeError for what JSON does not know, ValueError for cycles, NaN and infinity.
    """
    if payload is None:
        return b"", ""
    if isinstance(payload, bytes):
        return payload, OCTETS
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload), OCTETS
    if isinstance(payload, str):
        return payload.encode(), TEXT
    try:
        return json.dumps(payload, allow_nan=False).encode("ascii"), JSON
    except RecursionError:
        raise ValueError("the value cannot be written as JSON: it is nested too deeply") from None
    except TypeError as error:
        raise TypeError(f"the value cannot be written as JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"the value cannot be written as JSON: {error}") from None


def text(name: str, value: object) -> str:
    """A str that can be sent. TypeError for another type, ValueError for halves of characters (lone surrogates)."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name}: a str is needed, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {value!r} cannot be sent, it is not valid Unicode") from None
    return value
