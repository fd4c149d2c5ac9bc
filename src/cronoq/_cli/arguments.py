"""From words of the command line to arguments of calls; everything that is wrong ends the command as a usage error."""

import json
import math
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from cyclopts import Parameter

from cronoq._cli.failures import usage
from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND

MAX_ID = 2**64 - 1
MAX_UNITS = 2**32 - 1
LONGEST = MAX_CLIENT_DURATION // SECOND
MAX_INPUT = 64 << 20
"""Bytes read from a file or stdin; four times what a server takes by default, so that it can say its own limit."""

Status = Literal[
    "blocked",
    "scheduled",
    "ready",
    "running",
    "retrying",
    "succeeded",
    "failed",
    "dead_lettered",
    "cancelled",
    "skipped",
    "missed",
    "shed",
]
Priority = Literal["critical", "high", "normal", "low"]


def _word(hint: Any, tokens: Sequence[Any]) -> str:
    """One of the words of a `Literal`; `-` stands for `_` too, as elsewhere on command lines."""
    text: str = tokens[0].value
    if text.replace("-", "_") not in get_args(hint):
        raise ValueError(f"{text!r} is not one of {', '.join(get_args(hint))}")
    return text.replace("-", "_")


OnMiss = Annotated[Literal["run_late", "skip", "fail"], Parameter(converter=_word)]
Overlap = Annotated[Literal["skip", "allow", "queue", "queue_on_success"], Parameter(converter=_word)]

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Text = Annotated[str | None, Parameter(show_default=False)]
Seconds = Annotated[float | None, Parameter(show_default=False)]
Texts = Annotated[list[str] | None, Parameter(negative="", show_default=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]


def task_reference(text: str, key: bool) -> int | str:
    """TASK: a key with `--key`, else an id."""
    if key:
        if not text:
            usage("TASK: a key cannot be empty")
        return text
    return task_id(text, "TASK", "; for the key of a task add --key")


def task_id(text: str, name: str, remedy: str = "") -> int:
    """An id in decimal digits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_ID):
        usage(f"{name}: {text!r} is not an id, a number from 0 to 2^64 - 1{remedy}")
    return int(text)


def any_reference(option: str, text: str, *, keys: bool) -> int | str:
    """A number is an id, anything else a key; with `keys` a number is a key too."""
    if not text:
        usage(f"{option}: a key cannot be empty")
    sendable(option, text)
    is_id = text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_ID
    return int(text) if is_id and not keys else text


def sendable(name: str, text: str) -> str:
    """A text of the contract is UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        usage(f"{name}: what is not UTF-8 cannot be sent")
    return text


def span(name: str, value: float | None) -> float | None:
    """Seconds from 0 to 100 years, which is what servers take."""
    if value is not None and not 0 <= value <= LONGEST:  # false for NaN
        usage(f"{name}: {value:g} is not a number of seconds from 0 to {LONGEST:.0f} (100 years)")
    return value


def time_limit(name: str, value: float | None) -> float | None:
    """Seconds from 0."""
    if value is not None and (math.isnan(value) or value < 0):
        usage(f"{name}: {value:g} is not a number of seconds from 0")
    return value


def time_at(name: str, text: str) -> datetime | int | float:
    """A moment: Unix seconds, or ISO 8601 with a zone."""
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,20}\.[0-9]{1,20}", text):
        return float(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        usage(f"{name}: {text!r} is not a time like 2027-03-14T07:00:00Z, and no Unix seconds, a number from 0")
    if found.utcoffset() is None:
        usage(f"{name}: {text!r} has no time zone; Z at its end means UTC")
    return found


def named_values(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """`NAME=VALUE`, several times."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            usage(f"{option}: {text!r} is not NAME=VALUE")
        if name in found:
            usage(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


def amounts(option: str, texts: Sequence[str] | None) -> dict[str, int]:
    """`NAME=UNITS`, several times."""
    found: dict[str, int] = {}
    for name, text in named_values(option, texts).items():
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_UNITS):
            usage(f"{option}: {name}={text}: the units must be a whole number from 1 to {MAX_UNITS}")
        found[name] = int(text)
    return found


def payload(text: str | None, file: str | None, data: str | None) -> tuple[Any, str | None]:
    """The payload, and its content type where it is not that of the Python type."""
    given = [name for name, value in (("PAYLOAD", text), ("--file", file), ("--data", data)) if value is not None]
    if len(given) > 1:
        usage(f"{' and '.join(given)}: only one of them can be the payload")
    if file == "-":
        return _bounded("stdin", sys.stdin.buffer.read(MAX_INPUT + 1)), None
    if file is not None:
        return _read_file(file), None
    if data is not None:
        return _json_bytes(data), "application/json"
    if text is not None:
        try:
            text.encode()
        except UnicodeEncodeError:
            usage("PAYLOAD: not UTF-8; hand it in with --file, or through stdin with `-`")
    return text, None


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return _bounded(path, file.read(MAX_INPUT + 1))
    except (OSError, ValueError) as error:
        usage(f"--file: {path}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _bounded(path: str, content: bytes) -> bytes:
    if len(content) > MAX_INPUT:
        usage(f"{path}: larger than {MAX_INPUT} bytes; no server takes that")
    return content


def _json_bytes(text: str) -> bytes:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        json.loads(text, parse_constant=refuse)
        return text.encode()
    except RecursionError:
        usage("--data: nested too deeply")
    except ValueError as error:  # JSONDecodeError, an integer of thousands of digits, or not UTF-8
        usage(f"--data: not JSON: {error}")
