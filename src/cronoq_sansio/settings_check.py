"""From the plain mapping that a configuration file is to checked `Settings`, or to every problem of it at once.

The walk is driven by `settings_table`. A value is never converted silently: an integer may stand for a number, nothing
else may stand for anything else. What the file system or the network would say is not asked here; the environment is
an argument.
"""

import difflib
import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cronoq_sansio.clock import ns
from cronoq_sansio.limits import MAX_POOL_NAME, MAX_SCHEDULES
from cronoq_sansio.settings import (
    DEFAULT_RETRY,
    AuthSettings,
    ClassAims,
    ClassBounds,
    LimitSettings,
    OutputSettings,
    PoolSettings,
    ResourceSettings,
    ScalerSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TlsSettings,
    TokenSettings,
)
from cronoq_sansio.settings_keys import (
    NAME_CHARACTERS,
    NAME_RULE,
    NAMED,
    PATH_RULE,
    VARIABLE_RULE,
    Key,
    Kind,
    Table,
)
from cronoq_sansio.settings_recurring import RECURRING
from cronoq_sansio.settings_scheduling import POOLS, RESOURCES
from cronoq_sansio.settings_table import (
    AUTH,
    INNER_TABLES,
    LIMITS,
    OUTPUTS,
    SERVER,
    STORE,
    TABLES,
    TOKENS,
    UNBUILT_TABLES,
    UNBUILT_WORDS,
)
from cronoq_sansio.settings_templates import CronCheck, Known, TemplateReader
from cronoq_sansio.settings_text import allowed, show, show_kind, shown_name
from cronoq_sansio.settings_tokens import TokenReader, is_variable
from cronoq_sansio.spec import RecurringSpec, RetryOverride, RetryPolicy
from cronoq_sansio.values import value


@value
class Problem:
    """One thing that is wrong with a configuration."""

    path: str
    """Where: `pools[1].lease_ttl_s`, counted from 0; empty = the whole."""
    message: str
    """What was found and what is allowed."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def check_settings(
    document: Mapping[str, object],
    *,
    payload_budget: int,
    variables: Mapping[str, str] = MappingProxyType({}),
    cron_check: CronCheck | None = None,
) -> Settings | tuple[Problem, ...]:
    """Check a whole configuration.

    `document` is what a TOML parser returns. `payload_budget` is the default of `limits.max_payload_bytes`: the caller
    knows the machine. `variables` is the environment, from which the keys that end in `_env` are read. `cron_check` is
    `engine.cron.compile_cron`; without it expressions and zones are not looked at. Returns every problem, in the order
    of the file's tables, or the settings.
    """
    return _Checker(document, payload_budget, variables, cron_check).run()


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


_INNER = {table.name: table for table in INNER_TABLES}
_ENTRIES = {Kind.NUMBERS: Kind.NUMBER, Kind.INTEGERS: Kind.INTEGER, Kind.TEXTS: Kind.TEXT}


def _retry(values: Mapping[str, Any]) -> RetryPolicy:
    return replace(DEFAULT_RETRY, **values)


def _retry_override(values: Mapping[str, Any]) -> RetryOverride | None:
    """A table that says nothing is as good as none."""
    unset = dict.fromkeys(("max_attempts", "initial_backoff", "multiplier", "max_backoff", "jitter"))
    return RetryOverride(**{**unset, **values}) if values else None


def _by_class(found: ClassBounds | ClassAims) -> tuple[int | None, ...]:
    return found.critical, found.high, found.normal, found.low


#: From what a table within a table sets, by field, to the value of its key.
_MAKE: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "server.tls": lambda values: TlsSettings(**values),
    "pools.retry": _retry,
    "pools.scaler": lambda values: ScalerSettings(**values),
    "pools.max_pending_by_class": lambda values: _by_class(ClassBounds(**values)),
    "pools.slo_s": lambda values: _by_class(ClassAims(**values)),
    "recurring.retry": _retry_override,
}


class _Checker:
    """One walk over one document."""

    def __init__(
        self,
        document: Mapping[str, object],
        payload_budget: int,
        variables: Mapping[str, str],
        cron_check: CronCheck | None,
    ) -> None:
        self.document = document
        self.payload_budget = payload_budget
        self.variables = variables
        self.cron_check = cron_check
        self.limits = LimitSettings()
        """Those of the document, once they were looked at."""
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
        self.limits = LimitSettings(**limits)
        pools = self._pools()
        resources = self._resources()
        recurring = self._recurring(pools, resources)
        auth = self._table(AUTH)
        if self.problems:
            return tuple(self.problems)
        return Settings(
            ServerSettings(**server),
            StoreSettings(**store),
            LimitSettings(**limits),
            OutputSettings(**outputs),
            pools,
            resources,
            recurring=recurring,
            auth=AuthSettings(**auth),
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
            where = f"{path}.{shown_name(name)}" if path else shown_name(name)
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
            shown = show_kind(found) if table is AUTH else show(found)
            self._wrong(table.name, f"found {shown}; allowed is a table, written [{table.name}]")
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
            checked = self._value(found[key.name], where, key, f"{table.name}.{key.name}")
            if checked is not None:
                values[key.field] = checked
        return values

    def _value(self, found: object, path: str, key: Key, place: str) -> object:
        """The value in the unit of its value class, or None after noting the problem. `place`: table and key."""
        if key.kind is Kind.TABLE and isinstance(found, Mapping):
            return self._inner(found, path, place)
        if key.kind in NAMED and isinstance(found, Mapping):
            return self._named(found, path, key)
        if key.kind is Kind.TABLES:
            return self._tokens(found, path)
        if isinstance(found, str) and found in UNBUILT_WORDS.get(place, ()):
            self._wrong(path, f'"{found}" is not built in this version; allowed is {allowed(key)}')
            return None
        checked = _convert(found, key)
        if checked is None:
            shown = show_kind(found) if key.secret else show(found)
            self._wrong(path, f"found {shown}; allowed is {allowed(key)}")
        return checked

    def _inner(self, found: Mapping[str, object], path: str, place: str) -> object:
        """What a table within a table says, when all of it is right."""
        before = len(self.problems)
        values = self._keys(found, path, _INNER[place])
        return _MAKE[place](values) if len(self.problems) == before else None

    def _named(self, found: Mapping[str, object], path: str, key: Key) -> tuple[tuple[str, Any], ...]:
        """A table whose names are the caller's, as pairs sorted by name; what is wrong is left out and told."""
        one = replace(key, kind=_ENTRIES[key.kind], own_rule=True)
        longest = self.limits.max_tag_len if key.kind is Kind.TEXTS else self.limits.max_key_len
        pairs: list[tuple[str, object]] = []
        for name, entry in found.items():
            where = f"{path}.{shown_name(name)}"
            size = len(name.encode("utf-8", "surrogatepass"))
            what = f"the name has {size} bytes" if size > longest else _fault_of_name(name)
            if what:
                self._wrong(where, f"{what}; allowed are names of at most {longest} bytes without NUL characters")
                continue
            value = self._value(entry, where, one, "")
            if value is not None:
                pairs.append((name, value))
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    def _tokens(self, found: object, path: str) -> tuple[TokenSettings, ...] | None:
        if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
            self._wrong(path, f"found {show_kind(found)}; allowed is an array of tables, each written [[{path}]]")
            return None
        reader = TokenReader(self.variables, self._wrong)
        read = [
            reader.read(index, entry, self._keys(entry, f"{path}[{index}]", TOKENS))
            for index, entry in enumerate(found)
        ]
        return tuple(token for token in read if token is not None)

    # --- rules between keys

    def _check_server(self, server: dict[str, Any]) -> None:
        defaults = ServerSettings()
        grpc = server.get("grpc_addr", defaults.grpc_addr)
        http = server.get("http_addr", defaults.http_addr)
        if not server.get("insecure_no_auth", False) and not self._has_tokens():
            for name, address in (("grpc_addr", grpc), ("http_addr", http)):
                if address is not None and not is_loopback(address[0]):
                    self._wrong(
                        f"server.{name}",
                        f"{format_address(address)} reaches beyond this machine, and nobody would have to authenticate;"
                        " add [[auth.tokens]], use a loopback address, or set server.insecure_no_auth = true",
                    )
        if http is not None and http == grpc and grpc[1] != 0:
            self._wrong("server.http_addr", f"{format_address(http)} is server.grpc_addr already; use another port")

    def _has_tokens(self) -> bool:
        """Whether the file has tokens, right or wrong: what is wrong with them is told by itself."""
        auth = self.document.get("auth")
        return isinstance(auth, Mapping) and bool(auth.get("tokens"))

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

    def _entries(self, name: str) -> list[Mapping[str, object]]:
        """The tables of a top-level array of tables, after telling when it is none."""
        found = self.document.get(name)
        if found is None:
            return []
        if isinstance(found, list) and all(isinstance(entry, Mapping) for entry in found):
            return found
        self._wrong(name, f"found {show(found)}; allowed is an array of tables, each written [[{name}]]")
        return []

    def _unique(self, name: str, path: str, first: dict[str, str]) -> None:
        """`first`: the names so far, and where each stands."""
        if name in first:
            self._wrong(f"{path}.name", f'"{name}" is the name of {first[name]} already; names are unique')
        first.setdefault(name, path)

    def _pools(self) -> tuple[PoolSettings, ...]:
        defaults = {key.field: getattr(self.limits, key.default_key) for key in POOLS.keys if key.default_key}
        if self.document.get("pools") is None:
            return (PoolSettings(**defaults),)
        if self.document["pools"] == []:
            self._wrong("pools", "found an empty array; allowed is at least one pool, or no key `pools` at all")
        pools: list[PoolSettings] = []
        first: dict[str, str] = {}
        for index, entry in enumerate(self._entries("pools")):
            path = f"pools[{index}]"
            values = self._keys(entry, path, POOLS)
            if "name" in values:
                self._unique(values["name"], path, first)
                pools.append(PoolSettings(**(defaults | values)))
                self._check_min(path, pools[-1])
        return tuple(pools)

    def _check_min(self, path: str, pool: PoolSettings) -> None:
        if pool.min > pool.max:
            self._wrong(f"{path}.min", f"found {pool.min}; allowed is at most the pool's max, here {pool.max}")

    def _resources(self) -> tuple[ResourceSettings, ...]:
        resources: list[ResourceSettings] = []
        first: dict[str, str] = {}
        for index, entry in enumerate(self._entries("resources")):
            path = f"resources[{index}]"
            values = self._keys(entry, path, RESOURCES)
            self._check_kind(entry, path, values.get("kind"), RESOURCES)
            if "name" in values:
                self._unique(values["name"], path, first)
                resources.append(ResourceSettings(**({"kind": ""} | values)))
        return tuple(resources)

    def _recurring(
        self, pools: Sequence[PoolSettings], resources: Sequence[ResourceSettings]
    ) -> tuple[RecurringSpec, ...]:
        known = Known(
            self.limits,
            tuple(pool.name for pool in pools),
            {resource.name: resource.capacity for resource in resources},
        )
        reader = TemplateReader(known, self.cron_check, self._wrong)
        entries = self._entries("recurring")
        if len(entries) > MAX_SCHEDULES:
            self._wrong("recurring", f"found {len(entries)} schedules; allowed are at most {MAX_SCHEDULES}")
        schedules: list[RecurringSpec] = []
        first: dict[str, str] = {}
        for index, entry in enumerate(entries[:MAX_SCHEDULES]):
            path = f"recurring[{index}]"
            values = self._keys(entry, path, RECURRING)
            if values.get("name"):
                self._unique(values["name"], path, first)
            schedules.append(reader.read(path, values))
        size = sum(schedule.template.size for schedule in schedules)
        if size > self.limits.max_payload_bytes:
            most = f"at most limits.max_payload_bytes, here {self.limits.max_payload_bytes}, are allowed"
            self._wrong("recurring", f"the tasks of all schedules have up to {size} bytes as encoded; {most}")
        return tuple(schedules)

    def _check_kind(self, entry: Mapping[str, object], path: str, kind: str | None, table: Table) -> None:
        """Keys that belong to one kind of the table are required with it, and refused with another."""
        for key in table.keys:
            belongs = key.kind_of_table
            if not belongs or kind is None:
                continue
            if belongs == kind and key.name not in entry:
                self._wrong(f"{path}.{key.name}", f'missing; kind "{kind}" requires {allowed(key)}')
            if belongs != kind and key.name in entry:
                self._wrong(
                    f"{path}.{key.name}", f'has no meaning with kind "{kind}"; leave it out, or use kind "{belongs}"'
                )


def _convert(found: object, key: Key) -> object:
    """The value in the unit of its value class, or None when the key does not allow it."""
    if key.kind is Kind.BOOLEAN:
        return found if isinstance(found, bool) else None
    if key.kind is Kind.ADDRESS:
        return parse_address(found) if isinstance(found, str) else None
    if key.kind is Kind.TEXT:
        return found if isinstance(found, str) and _is_text(found, key) else None
    return _number(found, key) if key.kind in (Kind.INTEGER, Kind.NUMBER, Kind.SECONDS) else None


def _is_text(text: str, key: Key) -> bool:
    if key.words:
        return text in key.words
    if key.own_rule:
        return _is_unicode(text)
    if key.allowed_text == NAME_RULE:
        return 1 <= len(text) <= MAX_POOL_NAME and all(character in NAME_CHARACTERS for character in text)
    if key.allowed_text == VARIABLE_RULE:
        return is_variable(text)
    return bool(text) and "\0" not in text and not (key.allowed_text == PATH_RULE and text.startswith((":", "file:")))


def _fault_of_name(name: str) -> str:
    if "\0" in name:
        return "the name contains a NUL character"
    return "" if _is_unicode(name) else "the name is not Unicode"


def _is_unicode(text: str) -> bool:
    """A lone half of a surrogate pair is none; a TOML parser gives no such text, other callers may."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
