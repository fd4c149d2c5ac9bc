"""Which store the settings ask for, and what a person sees when the server has started."""

import os
from collections.abc import Callable

from cronoq._stores.base import Store
from cronoq._stores.memory import MemoryStore
from cronoq_sansio.settings import Settings
from cronoq_sansio.settings_check import format_address, is_loopback


def make_store(settings: Settings) -> Store:
    """The store, not opened yet."""
    limits = settings.limits
    if settings.store.kind == "memory":
        return MemoryStore(key_retention=limits.key_retention, key_retention_max=limits.key_retention_max)
    from cronoq._stores.sqlite import SqliteStore

    return SqliteStore(settings.store.path, key_retention_max=limits.key_retention_max)


def announce(
    line: Callable[[str], None], settings: Settings, source: str, version: str, bound: list[tuple[str, int]]
) -> None:
    """Print the start-up lines. The last one, `ready: grpc ADDRESS`, is stable: programs wait for it."""
    address = format_address(bound[0])
    for text in lines(settings, source, version, address):
        line(text)
    line(f"ready: grpc {address}")


def lines(settings: Settings, source: str, version: str, address: str) -> list[str]:
    """What runs, where everything is, how to submit and how to run a worker."""
    if settings.store.kind == "memory":
        store = "memory: tasks are lost when the server ends"
    else:
        store = f"SQLite file {os.path.abspath(settings.store.path)}"
    pools = ", ".join(pool.name for pool in settings.pools[:8])
    if len(settings.pools) > 8:
        pools += f" and {len(settings.pools) - 8} more"
    result = [
        f"cronoq-trio {version}",
        f"  configuration  {source}",
        f"  store          {store}",
        f"  pools          {pools}",
        f"  submit         any gRPC client, cleartext: cronoq.v1.Tasks/Submit on {address}",
        f"  work           any gRPC client: cronoq.v1.Workers/Work on {address}; README.md has a worker in a few lines",
        "  contract       cronoq-trio print-proto",
    ]
    if settings.server.http_addr is not None:
        given = format_address(settings.server.http_addr)
        result.append(f"  http_addr      {given} is accepted in the configuration but not served yet")
    if not is_loopback(settings.server.grpc_addr[0]):
        result.append("  WARNING        no credentials are asked for, and the address is reachable from other hosts")
    return result
