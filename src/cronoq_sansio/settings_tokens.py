"""The tokens of a configuration: exactly one source each, long enough, unique. What is kept of them is their SHA-256.

No message repeats what was found, because it is a credential, or could be one that stands in the wrong place.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from cronoq_sansio.limits import GOOD_TOKEN, MIN_TOKEN
from cronoq_sansio.settings import TokenSettings

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_variable(text: str) -> bool:
    """Whether an environment variable may have that name; anything else could be a token in the wrong place."""
    return _VARIABLE.fullmatch(text) is not None


def digest_of(token: bytes) -> bytes:
    """What is kept and compared of a token: its SHA-256."""
    return hashlib.sha256(token).digest()


class TokenReader:
    """Reads one entry of `[[auth.tokens]]` after the other, and knows those before."""

    def __init__(self, variables: Mapping[str, str], wrong: Callable[[str, str], None]) -> None:
        """`variables` is the environment; `wrong` takes the path and the sentence of each problem."""
        self._variables = variables
        self._wrong = wrong
        self._first: dict[bytes, int] = {}

    def read(self, index: int, entry: Mapping[str, object], values: Mapping[str, Any]) -> TokenSettings | None:
        """The token, or None after telling what is wrong.

        `entry` is the table as it stands in the file, `values` has those of its keys that have the right form.
        """
        path = f"auth.tokens[{index}]"
        sources = [name for name in ("token", "token_env") if name in entry]
        if len(sources) != 1:
            found = "both are set" if sources else "neither is set"
            self._wrong(path, f"{found}; required is exactly one of `token` and `token_env`")
            return None
        (source,) = sources
        if "digest" not in values:
            return None
        path = f"{path}.{source}"
        text: str | None = values["digest"]
        if source == "token_env":
            name, text = text or "", self._variables.get(text or "")
            if text is None:
                self._wrong(path, f"the environment variable {name} is not set")
                return None
        token = (text or "").strip()
        problem = _problem(token)
        if problem:
            self._wrong(path, problem)
            return None
        digest = digest_of(token.encode())
        if digest in self._first:
            self._wrong(path, f"the same token as in auth.tokens[{self._first[digest]}]; each token is unique")
            return None
        self._first[digest] = index
        role = values.get("role")
        return None if role is None else TokenSettings(role, digest, len(token) < GOOD_TOKEN)


def _problem(token: str) -> str:
    """What is wrong with the token itself, without showing it."""
    if len(token) < MIN_TOKEN:
        return f"the token has {len(token)} characters; allowed are at least {MIN_TOKEN}"
    if not (token.isascii() and token.isprintable()):
        return "the token has a character that cannot travel in metadata; allowed is printable ASCII"
    return ""
