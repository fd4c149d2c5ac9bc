"""From the plain mapping that a configuration file is to checked `Settings`, or to every problem of it at once.

The walk is driven by `settings_table`. A value is never converted silently: an integer may stand for a number, nothing
else may stand for anything else. What the file system or the network would say is not asked here.
"""

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cronoq_sansio.clock import ns
from cronoq_sansio.limits import MAX_POOL_NAME
from cronoq_sansio.settings import (
    DEFAULT_RETRY,
    LimitSettings,
    OutputSettings,
    PoolSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
from cronoq_sansio.settings_table import (
    LIMITS,
    NAME_CHARACTERS,
    NAME_RULE,
    OUTPUTS,
    PATH_RULE,
    POOLS,
    RETRY,
    SERVER,
    STORE,
    TABLES,
    UNBUILT_TABLES,
    UNBUILT_WORDS,
    Key,
    Kind,
    Table,
)
from cronoq_sansio.spec import RetryPolicy
from cronoq_sansio.values import value

MAX_SHOWN = 60  #: characters of a wrong value that a message repeats: enough to recognise it, and still one line
MAX_SHOWN_BITS = 192  #: an integer of so many bits has as many digits

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML lets stand without quotes
_UNITS = {
    Kind.SECONDS: "a number of seconds",
    Kind.NUMBER: "a number",
    Kind.INTEGER: "an integer",
}


@value
class Problem:
    """One thing that is wrong with a configuration."""

    path: str
    """Where: `pools[1].lease_ttl_s`, counted from 0; empty = the whole."""
    message: str
    """What was found and what is allowed."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def check_settings(document: Mapping[str, object], *, payload_budget: int) -> Settings | tuple[Problem, ...]:
    """Check a whole configuration.

    `document` is what a TOML parser returns. `payload_budget` is the default of `limits.max_payload_bytes`: the caller
    knows the machine. Returns every problem, in the order of the file's tables, or the settings.
    """
    return _Checker(document, payload_budget).run()


def parse_address(text: str) -> tuple[str, int] | None:
    """Split `IP:port` or `[IPv6]:port`; None when it is neither. Host names are not resolved, so they are refused."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65_535:
        return None
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    if bracketed != (ip.version == 6) or "%" in host:
        return None
    return str(ip), int(port)


def format_address(address: tuple[str, int]) -> str:
    """The inverse of `parse_address`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True when the IP literal reaches only this machine, also in its IPv4-mapped form."""
    ip = ipaddress.ip_address(host)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


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


def allowed(key: Key) -> str:
    """What a key may hold, in words."""
    if key.words:
        return " or ".join(f'"{word}"' for word in key.words)
    if key.allowed_text:
        return key.allowed_text
    text = _UNITS.get(key.kind, "a table" if key.kind is Kind.RETRY else key.kind.value)
    if key.minimum is None or key.maximum is None:
        return text
    return f"{text} from {key.minimum} to {key.maximum}"


class _Checker:
    """One walk over one document."""

    def __init__(self, document: Mapping[str, object], payload_budget: int) -> None:
        self.document = document
        self.payload_budget = payload_budget
        self.problems: list[Problem] = []

    def run(self) -> Settings | tuple[Problem, ...]:
        self._names(self.document, "", tuple(table.name for table in TABLES), UNBUILT_TABLES, "table")
        server = self._table(SERVER)
        store = self._table(STORE)
        limits = self._table(LIMITS)
        outputs = self._table(OUTPUTS)
        self._check_server(server)
        self._check_store(store)
        self._check_limits(limits)
        self._check_outputs(outputs)
        pools = self._pools(LimitSettings(**limits))
        if self.problems:
            return tuple(self.problems)
        return Settings(
            ServerSettings(**server), StoreSettings(**store), LimitSettings(**limits), OutputSettings(**outputs), pools
        )

    def _wrong(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    # --- the walk

    def _names(
        self, found: Mapping[str, object], path: str, known: Sequence[str], unbuilt: Sequence[str], noun: str
    ) -> None:
        """Refuse what is not known, each with the sentence that helps."""
        for name in found:
            if name in known:
                continue
            shown = name if _BARE.fullmatch(name) else show(name)
            where = f"{path}.{shown}" if path else shown
            if name in unbuilt:
                self._wrong(where, f"this {noun} is not built in this version; leave it out")
                continue
            close = difflib.get_close_matches(name, (*known, *unbuilt), n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
            self._wrong(where, f"unknown {noun}; {hint}")

    def _table(self, table: Table) -> dict[str, Any]:
        """The checked values of a top-level table, by field; only those that the file sets."""
        found = self.document.get(table.name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self._wrong(table.name, f"found {show(found)}; allowed is a table, written [{table.name}]")
            return {}
        return self._keys(found, table.name, table)

    def _keys(self, found: Mapping[str, object], path: str, table: Table) -> dict[str, Any]:
        self._names(found, path, tuple(key.name for key in table.keys), table.unbuilt, "key")
        values: dict[str, Any] = {}
        for key in table.keys:
            where = f"{path}.{key.name}"
            if key.name not in found:
                if key.required:
                    self._wrong(where, f"missing; required is {allowed(key)}")
                continue
            checked = self._value(found[key.name], where, key, UNBUILT_WORDS.get(f"{table.name}.{key.name}", ()))
            if checked is not None:
                values[key.field] = checked
        return values

    def _value(self, found: object, path: str, key: Key, unbuilt: Sequence[str]) -> object:
        """The value in the unit of its value class, or None after noting the problem."""
        if key.kind is Kind.RETRY and isinstance(found, Mapping):
            return self._retry(found, path)
        if isinstance(found, str) and found in unbuilt:
            self._wrong(path, f'"{found}" is not built in this version; allowed is {allowed(key)}')
            return None
        checked = _convert(found, key)
        if checked is None:
            self._wrong(path, f"found {show(found)}; allowed is {allowed(key)}")
        return checked

    def _retry(self, found: Mapping[str, object], path: str) -> RetryPolicy | None:
        before = len(self.problems)
        values = self._keys(found, path, RETRY)
        if len(self.problems) > before:
            return None
        return RetryPolicy(
            **{key.field: values.get(key.field, getattr(DEFAULT_RETRY, key.field)) for key in RETRY.keys}
        )

    # --- rules between keys

    def _check_server(self, server: dict[str, Any]) -> None:
        grpc = server.get("grpc_addr", ServerSettings().grpc_addr)
        http = server.get("http_addr")
        if not server.get("insecure_no_auth", False):
            for name, address in (("grpc_addr", grpc), ("http_addr", http)):
                if address is not None and not is_loopback(address[0]):
                    self._wrong(
                        f"server.{name}",
                        f"{format_address(address)} reaches beyond this machine, and nobody would have to authenticate;"
                        " use a loopback address, or set server.insecure_no_auth = true",
                    )
        if http == grpc and grpc[1] != 0:
            self._wrong("server.http_addr", f"{format_address(http)} is server.grpc_addr already; use another port")

    def _check_store(self, store: dict[str, Any]) -> None:
        found = self.document.get("store")
        kind = store.get("kind")
        if not isinstance(found, Mapping) or kind is None:
            return
        if kind == "sqlite" and "path" not in found:
            self._wrong("store.path", f'missing; kind "sqlite" requires {PATH_RULE}')
        if kind == "memory":
            for name in ("path", "keep_finished_s"):
                if name in found:
                    self._wrong(
                        f"store.{name}", 'has no meaning with kind "memory"; leave it out, or use kind "sqlite"'
                    )

    def _check_limits(self, limits: dict[str, Any]) -> None:
        largest = limits.get("max_message_bytes", LimitSettings().max_message_bytes)
        budget = limits.setdefault("max_payload_bytes", max(self.payload_budget, largest))
        if budget < largest:
            self._wrong(
                "limits.max_payload_bytes",
                f"found {budget}; allowed is at least limits.max_message_bytes, here {largest}: one task must fit",
            )

    def _check_outputs(self, outputs: dict[str, Any]) -> None:
        if outputs.get("cache_bytes") == 0 and outputs.get("cache_entries", OutputSettings().cache_entries) > 0:
            self._wrong("outputs.cache_bytes", "found 0; allowed is more than 0 unless outputs.cache_entries is 0")

    def _pools(self, limits: LimitSettings) -> tuple[PoolSettings, ...]:
        found = self.document.get("pools")
        defaults = {key.field: getattr(limits, key.default_key) for key in POOLS.keys if key.default_key}
        if found is None:
            return (PoolSettings(**defaults),)
        if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
            self._wrong("pools", f"found {show(found)}; allowed is an array of tables, each written [[pools]]")
            return ()
        if not found:
            self._wrong("pools", "found an empty array; allowed is at least one pool, or no key `pools` at all")
        pools: list[PoolSettings] = []
        first: dict[str, int] = {}
        for index, entry in enumerate(found):
            path = f"pools[{index}]"
            values = self._keys(entry, path, POOLS)
            values.pop("overflow", None)
            name = values.get("name")
            if name is None:
                continue
            if name in first:
                self._wrong(f"{path}.name", f'"{name}" is the name of pools[{first[name]}] already; names are unique')
            first.setdefault(name, index)
            pools.append(PoolSettings(**(defaults | values)))
        return tuple(pools)


def _convert(found: object, key: Key) -> object:
    """The value in the unit of its value class, or None when the key does not allow it."""
    if key.kind is Kind.BOOLEAN:
        return found if isinstance(found, bool) else None
    if key.kind is Kind.ADDRESS:
        return parse_address(found) if isinstance(found, str) else None
    if key.kind is Kind.TEXT:
        return found if isinstance(found, str) and _is_text(found, key) else None
    return _number(found, key) if key.kind in _UNITS else None


def _is_text(text: str, key: Key) -> bool:
    if key.words:
        return text in key.words
    if key.allowed_text == NAME_RULE:
        return 1 <= len(text) <= MAX_POOL_NAME and all(character in NAME_CHARACTERS for character in text)
    return bool(text) and "\0" not in text and not text.startswith((":", "file:"))


def _number(found: object, key: Key) -> int | float | None:
    """A number within the key's range, durations in nanoseconds; None when it is not one."""
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, float) and (key.kind is Kind.INTEGER or not math.isfinite(found)):
        return None
    if key.minimum is not None and key.maximum is not None and not key.minimum <= found <= key.maximum:
        return None
    if key.kind is Kind.SECONDS:
        return ns(found)
    return float(found) if key.kind is Kind.NUMBER else int(found)
