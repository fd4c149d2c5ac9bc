"""A configuration to begin with: everything there is, explained, with the defaults as comments."""

import textwrap
from typing import Any

from cronoq.config import DEFAULT_DATABASE
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import DEFAULT_RETRY, LimitSettings
from cronoq_sansio.settings_check import format_address
from cronoq_sansio.settings_keys import NAMED, Key, Kind, Table
from cronoq_sansio.settings_scheduling import RETRY
from cronoq_sansio.settings_table import INNER_TABLES, TABLES
from cronoq_sansio.settings_text import allowed

WIDTH = 110
HEAD = """\
# Configuration of a cronoq-trio server. Lines that begin with `#` and a key show the default, or an example where
# there is none; remove the `#` to change them. `cronoq-trio check` says whether the server would start with this file.
"""
#: What is not left at its default: the server keeps its tasks, as it does without any file.
CHOSEN = {("store", "kind"): "sqlite", ("store", "path"): DEFAULT_DATABASE, ("pools", "name"): "default"}
#: Shown although they are the defaults, because they are the first that people look for.
SHOWN = {("server", "grpc_addr")}
#: Arrays of tables that are empty by default: credentials, schedules, and what only some have.
NOT_ACTIVE = {"auth", "resources", "recurring"}
#: Where there is no default to show.
EXAMPLES: dict[tuple[str, str], Any] = {
    ("server", "http_addr"): "127.0.0.1:7071",
    ("limits", "max_payload_bytes"): 1 << 30,
    ("pools", "await_unknown_dependencies_s"): 60,
    ("pools", "tenant_weights"): {"acme": 3},
    ("pools.max_pending_by_class", "critical"): 1_000,
    ("pools.max_pending_by_class", "high"): 10_000,
    ("pools.max_pending_by_class", "normal"): 100_000,
    ("pools.max_pending_by_class", "low"): 0,
    ("pools.slo_s", "critical"): 10,
    ("pools.slo_s", "high"): 60,
    ("pools.slo_s", "normal"): 600,
    ("pools.slo_s", "low"): 86_400,
    ("resources", "name"): "licences",
    ("resources", "kind"): "semaphore",
    ("resources", "permits"): 4,
    ("resources", "rate"): 10,
    ("resources", "burst"): 20,
    ("recurring", "name"): "nightly-report",
    ("recurring", "cron"): "30 2 * * *",
    ("recurring", "tz"): "Europe/Helsinki",
    ("recurring", "pool"): "default",
    ("recurring", "kind"): "report",
    ("recurring", "payload"): "text for the worker",
    ("recurring", "payload_json"): '{"day": "yesterday"}',
    ("recurring", "payload_b64"): "AAECAw==",
    ("recurring", "content_type"): "text/csv",
    ("recurring", "key"): "report",
    ("recurring", "tenant"): "acme",
    ("recurring", "timeout_s"): 3_600,
    ("recurring", "deadline_in_s"): 7_200,
    ("recurring", "duration_hint_s"): 600,
    ("recurring", "tolerance_s"): 1,
    ("recurring", "tags"): {"team": "billing"},
    ("recurring", "labels"): {"zone": "eu"},
    ("recurring", "resources"): {"licences": 1},
    ("recurring.retry", "max_attempts"): 3,
    ("recurring.retry", "initial_backoff_s"): 1,
    ("recurring.retry", "multiplier"): 2,
    ("recurring.retry", "max_backoff_s"): 60,
    ("recurring.retry", "jitter"): True,
    ("server.tls", "cert"): "server.pem",
    ("server.tls", "key"): "server-key.pem",
    ("auth.tokens", "token"): "REPLACE THIS",
    ("auth.tokens", "token_env"): "CRONOQ_ADMIN_TOKEN",
    ("auth.tokens", "role"): "admin",
}


def sample() -> str:
    """The text of the file."""
    text = HEAD
    for table in TABLES:
        parts = [table, *(other for other in INNER_TABLES if other.name.startswith(f"{table.name}."))]
        for part in parts:
            if any(_is_plain(key) for key in part.keys):
                text += "\n" + _section(part, active=part is table and table.name not in NOT_ACTIVE)
            text += "".join("\n" + _named(part, key) for key in part.keys if key.kind in NAMED)
    return text


def _section(table: Table, active: bool) -> str:
    heading = f"[[{table.name}]]" if table.repeated else f"[{table.name}]"
    text = _comment(table.meaning) + (heading if active else f"# {heading}") + "\n"
    for key in table.keys:
        if not _is_plain(key):
            continue
        place = (table.name, key.name)
        chosen = active and (place in CHOSEN or place in SHOWN)
        line = f"{key.name} = {_toml(_value(table, key))}"
        text += "\n" + _comment(_explain(key)) + (line if chosen else f"# {line}") + "\n"
    return text


def _named(table: Table, key: Key) -> str:
    """A table whose names the reader chooses, with an example."""
    text = f"\n# [{table.name}.{key.name}]\n"
    for name, entry in EXAMPLES[table.name, key.name].items():
        text += f"# {name} = {_toml(entry)}\n"
    return _comment(_explain(key)).rstrip() + text


def _explain(key: Key) -> str:
    """What it means, what it may hold, and what holds without it where the line does not show that."""
    meaning = key.meaning.rstrip(".")
    rule = "" if key.kind is Kind.BOOLEAN else f" Allowed: {allowed(key)}."
    shown = key.default_text if key.default_text != "none" else ""
    default = f" Default: {shown.replace('`', '')}." if shown else ""
    only = f" Only with kind `{key.kind_of_table}`, and required there." if key.kind_of_table else ""
    return f"{meaning}.{rule}{only}{default}"


def _value(table: Table, key: Key) -> Any:
    """The default in the unit of the file; an example where there is none."""
    place = (table.name, key.name)
    if place in CHOSEN:
        return CHOSEN[place]
    if place in EXAMPLES:
        return EXAMPLES[place]
    if key.default_key:
        return getattr(LimitSettings(), key.default_key)
    if key.default_text and key.words:
        return key.default_text.strip("`")
    found = getattr(DEFAULT_RETRY if table is RETRY else table.target(), key.field)
    if key.kind is Kind.ADDRESS:
        return format_address(found)
    return found / SECOND if key.kind is Kind.SECONDS else found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return str(int(value)) if float(value).is_integer() else str(value)


def _comment(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False) + "\n"


def _is_plain(key: Key) -> bool:
    """It holds a value and not a table."""
    return "table" not in key.kind.value
