"""From the plain mapping that a configuration file is to checked `Settings`, or to every problem of it at once.

The walk, which `settings_table` drives, is in `settings_walk`. What the file system or the network would say is not
asked here; the environment is an argument.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from cronoq_sansio.limits import MAX_SCHEDULES
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
    PATH_RULE,
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
from cronoq_sansio.settings_text import show, show_kind
from cronoq_sansio.settings_tokens import TokenReader
from cronoq_sansio.settings_walk import Problem, Walk
from cronoq_sansio.spec import RecurringSpec, RetryOverride, RetryPolicy


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


class _Checker(Walk):
    """One walk over one document."""

    inner: ClassVar = {table.name: table for table in INNER_TABLES}
    make = _MAKE
    unbuilt_words = UNBUILT_WORDS

    def __init__(
        self,
        document: Mapping[str, object],
        payload_budget: int,
        variables: Mapping[str, str],
        cron_check: CronCheck | None,
    ) -> None:
        super().__init__(document)
        self.payload_budget = payload_budget
        self.variables = variables
        self.cron_check = cron_check

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

    # --- the walk

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

    def _tables(self, found: object, path: str, _place: str) -> tuple[TokenSettings, ...] | None:
        """The only such array holds tokens."""
        if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
            self._wrong(path, f"found {show_kind(found)}; allowed is an array of tables, each written [[{path}]]")
            return None
        reader = TokenReader(self.variables, self._wrong)
        read = [
            reader.read(index, entry, self._keys(entry, f"{path}[{index}]", TOKENS))
            for index, entry in enumerate(found)
        ]
        return tuple(token for token in read if token is not None)

    def _convert(self, found: object, key: Key) -> object:
        if key.kind is Kind.ADDRESS:
            return parse_address(found) if isinstance(found, str) else None
        return super()._convert(found, key)

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
