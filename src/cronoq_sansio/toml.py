"""TOML of people: the parser of the standard library, behind a bound on what would keep it busy for minutes."""

import re
import tomllib
from typing import Any

from cronoq_sansio.limits import MAX_TOML_DOTS

#: Texts and comments, in which dots cost nothing. One that does not end takes the rest, and the parser refuses it.
_TEXTS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*(?:"|\\?$)'
    r"|'[^'\n]*(?:'|$)"
    r"|#[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """The document; raises `ValueError` with the reason and the line, and `RecursionError` when it is nested too deep.

    The parser takes the square of the parts of a dotted key (TOML 1.0, "Keys"), so there is a bound on these.
    """
    _check_dots(text)
    return tomllib.loads(text)


def _check_dots(text: str) -> None:
    lines = text.split("\n")
    if all(line.count(".") <= MAX_TOML_DOTS for line in lines):
        return
    bare = _TEXTS.sub(lambda found: "-" + "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if max(part.count(".") for part in _BETWEEN_KEYS.split(line)) > MAX_TOML_DOTS:
            raise ValueError(f"more than {MAX_TOML_DOTS} dots in one key (at line {number}, column 1)")
