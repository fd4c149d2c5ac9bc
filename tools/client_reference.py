"""The reference page of `cronoq.client`: names, parameters with defaults, fields, docstrings, as the code has them."""

import dataclasses
import inspect
from typing import Any

from cronoq import client

HEAD = """# Python client

Everything that `cronoq.client` exports. [How to use the client](../howto/client.md) explains it with examples. Times
are seconds, sizes bytes; what a call raises stands with `Client`.

"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(section(name) for name in sorted(client.__all__, key=str.lower))


def section(name: str) -> str:
    """One exported name."""
    found = getattr(client, name)
    if inspect.isclass(found):
        return class_section(name, found)
    if callable(found):
        return f"## `{name}{signature(found)}`\n\n{text(found)}\n"
    return f"## `{name}`\n\n`{found!r}`\n"


def class_section(name: str, found: type) -> str:
    """A class: how it is made, its fields, properties and methods."""
    lines = [f"## `{name}`", "", text(found), ""]
    if dataclasses.is_dataclass(found):
        lines += ["| field | default |", "|---|---|"]
        lines += [f"| `{field.name}` | {default(field.default)} |" for field in dataclasses.fields(found)] + [""]
    elif "__init__" in vars(found):
        lines += [f"`{name}{signature(found.__init__)}`", ""]
    for member, value in sorted(vars(found).items()):
        if member.startswith("_"):
            continue
        value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(value, property):
            lines += [f"- `{member}`: {one_line(value)}"]
        elif inspect.isfunction(value):
            lines += [f"- `{member}{signature(value)}`: {one_line(value)}"]
    return "\n".join(lines).rstrip() + "\n"


def signature(function: Any) -> str:
    """The parameters with their defaults, without types: those print differently from one Python to the next."""
    parts, keyword_only = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        star = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        given = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{star}{parameter.name}{given}")
    return f"({', '.join(parts)})"


def default(value: object) -> str:
    """A default, or nothing."""
    return "" if value is dataclasses.MISSING else f"`{value!r}`"


def text(found: object) -> str:
    """The docstring."""
    return inspect.getdoc(found) or ""


def one_line(found: object) -> str:
    """The docstring in a list."""
    return " ".join(text(found).split())
