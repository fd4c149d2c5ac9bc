"""How values, names and rules of a configuration are written in messages and in the reference."""

import json
import re
from collections.abc import Mapping

from cronoq_sansio.settings_keys import Key, Kind

MAX_SHOWN = 60  #: characters of a wrong value that a message repeats: enough to recognise it, and still one line
MAX_SHOWN_BITS = 192  #: an integer of so many bits has as many digits

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML lets stand without quotes
_UNITS = {
    Kind.SECONDS: "a number of seconds",
    Kind.NUMBER: "a number",
    Kind.INTEGER: "an integer",
    Kind.NUMBERS: "a table of numbers",
    Kind.INTEGERS: "a table of integers",
    Kind.TEXTS: "a table of texts",
}


def show(found: object) -> str:
    """A value as it stood in the file, cut to one short line."""
    if isinstance(found, Mapping):
        return "a table"
    if isinstance(found, list):
        return "an array"
    if isinstance(found, int) and found.bit_length() > MAX_SHOWN_BITS:  # Python refuses to write thousands of digits
        return f"an integer of {found.bit_length()} bits"
    text = json.dumps(found, ensure_ascii=False) if isinstance(found, (str, bool)) else str(found)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def show_kind(found: object) -> str:
    """What kind of value stood in the file, where the value itself could be a credential."""
    if isinstance(found, (Mapping, list)):
        return show(found)
    return "text" if isinstance(found, str) else "something else than text"


def allowed(key: Key) -> str:
    """What a key may hold, in words."""
    if key.words:
        return " or ".join(f'"{word}"' for word in key.words)
    if key.allowed_text:
        return key.allowed_text
    text = _UNITS.get(key.kind, "a table" if key.kind is Kind.TABLE else key.kind.value)
    if key.minimum is None or key.maximum is None:
        return text
    return f"{text} from {plain(key.minimum)} to {plain(key.maximum)}"


def plain(number: float) -> str:
    """A number as a person writes it: 0.000000001 and not 1e-09. No range of a key has more places."""
    return str(int(number)) if number == int(number) else f"{number:.9f}".rstrip("0")


def shown_name(name: str) -> str:
    """A name as a part of a path: in quotes when TOML wants them."""
    return name if _BARE.fullmatch(name) else show(name)
