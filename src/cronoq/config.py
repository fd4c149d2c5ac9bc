"""Where the configuration comes from: a TOML file, or what is built in.

The first of these that exists counts: the path given on the command line, the environment variable `CRONOQ_CONFIG`,
`./cronoq.toml`, and else the built-in configuration: one pool `default`, loopback only, SQLite in `./cronoq.db`.
What a file may hold is decided by `cronoq_sansio.settings_check`; this module adds file names and line numbers.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cronoq.errors import ConfigError
from cronoq_sansio.engine.cron import compile_cron
from cronoq_sansio.limits import MAX_CONFIG_FILE
from cronoq_sansio.settings import LimitSettings, Settings
from cronoq_sansio.settings_check import check_settings
from cronoq_sansio.settings_walk import Problem
from cronoq_sansio.toml import parse_toml
from cronoq_sansio.values import value

__all__ = ["CONFIG_VARIABLE", "DEFAULT_DATABASE", "DEFAULT_FILE", "Loaded", "load", "memory_budget"]

CONFIG_VARIABLE = "CRONOQ_CONFIG"
DEFAULT_FILE = "cronoq.toml"
DEFAULT_DATABASE = "cronoq.db"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@value
class Loaded:
    """Settings and where they came from."""

    settings: Settings
    source: str
    """The file's path as the user gave it, or `built-in`."""


def load(
    path: str | None,
    *,
    memory: bool = False,
    insecure_no_auth: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """Find, read and check the configuration.

    `path` is the one of the command line. `memory` replaces the store by the one in memory, `insecure_no_auth` allows
    addresses beyond loopback, whatever the file says. `environ` has `CRONOQ_CONFIG` and the variables that keys ending
    in `_env` name. Raises `ConfigError` with every problem.
    """
    source = path if path is not None else environ.get(CONFIG_VARIABLE) or None
    if source is None and os.path.exists(DEFAULT_FILE):
        source = DEFAULT_FILE
    if source is None:
        document: dict[str, Any] = {"store": {"kind": "sqlite", "path": DEFAULT_DATABASE}}
        text = ""
    else:
        text = _read(source)
        document = _parse(text, source)
    if memory:
        document["store"] = {"kind": "memory"}
    if insecure_no_auth and isinstance(document.setdefault("server", {}), dict):
        document["server"]["insecure_no_auth"] = True
    checked = check_settings(document, payload_budget=memory_budget(), variables=environ, cron_check=compile_cron)
    if isinstance(checked, tuple):
        raise ConfigError(_sentences(source or "built-in configuration", text, checked))
    return Loaded(checked, source or "built-in")


def memory_budget() -> int:
    """Half of the memory that this process may use, in bytes; on a system that does not tell, the settings' default."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, others may lack the names
        return LimitSettings().max_payload_bytes
    try:
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no cgroup, or its limit is the word "max"
        pass
    return total // 2


def _read(source: str) -> str:
    try:
        with open(source, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError((f"{source}: not a regular file; a configuration is read from a file on disk",))
            content = file.read(MAX_CONFIG_FILE + 1)
    except OSError as error:
        raise ConfigError((f"{source}: cannot be read: {error.strerror or error}",)) from error
    except ValueError as error:  # a NUL in the path
        raise ConfigError((f"{source!r}: cannot be read: {error}",)) from error
    if len(content) > MAX_CONFIG_FILE:
        raise ConfigError((f"{source}: larger than {MAX_CONFIG_FILE} bytes; this is no configuration file",))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError((f"{source}:{line}: not UTF-8: {error.reason}",)) from error


def _open_at_once(path: str, flags: int) -> int:
    """Without this a named pipe would keep the program waiting for whoever writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except RecursionError as error:
        raise ConfigError((f"{source}: nested too deeply",)) from error
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        message, _, place = str(error).rpartition(" (at ")
        found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
        if found:
            raise ConfigError((f"{source}:{found[1]}:{found[2]}: not valid TOML: {message}",)) from error
        if place == "end of document)":
            line = len(text.splitlines())
            raise ConfigError((f"{source}:{line}: not valid TOML: {message}, but the file ends",)) from error
        raise ConfigError((f"{source}: not valid TOML: {error}",)) from error


def _sentences(source: str, text: str, problems: tuple[Problem, ...]) -> tuple[str, ...]:
    """One line per problem, in the order of the file; first those whose line cannot be told."""
    placed = sorted(((_line(text, problem.path), problem) for problem in problems), key=lambda pair: pair[0])
    return tuple(f"{source}:{line}: {problem}" if line else f"{source}: {problem}" for line, problem in placed)


def _line(text: str, path: str) -> int:
    """The line that sets `path`, 0 when it cannot be told. The parser gives no positions, so the text is scanned.

    Only the plain forms are recognised: `[table]`, `[[array]]`, and `key = value` at the start of a line. A path that
    is missing in the file finds the line of its table.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if '"""' in line or "'''" in line:  # what follows may be text and not keys
            return 0
        if array := re.match(r"\s*\[\[\s*([\w.-]+)\s*\]\]", line):
            name = array[1]
            prefix = f"{name}[{counts.get(name, 0)}]"
            counts[name] = counts.get(name, 0) + 1
            lines.setdefault(name, number)
        elif table := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            first, dot, rest = table[1].partition(".")
            prefix = f"{first}[{counts[first] - 1}]{dot}{rest}" if first in counts else table[1]
        elif key := re.match(r"\s*([\w-]+)\s*=", line):
            lines.setdefault(f"{prefix}.{key[1]}" if prefix else key[1], number)
            continue
        else:
            continue
        lines.setdefault(prefix, number)
    while path:
        if path in lines:
            return lines[path]
        path = path[: path.rindex("[")] if path.endswith("]") else path.rpartition(".")[0]
    return 0
