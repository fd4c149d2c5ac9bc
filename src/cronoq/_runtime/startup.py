"""Which store the settings ask for, and what a person sees when the server has started."""

import os
from collections import Counter
from collections.abc import Callable, Sequence

from cronoq._stores.base import Store
from cronoq._stores.memory import MemoryStore
from cronoq_sansio.limits import GOOD_TOKEN
from cronoq_sansio.settings import Settings
from cronoq_sansio.settings_check import format_address, is_loopback

ONLY_FOR_DIAGNOSIS = "for diagnosis only: slower, and does not count floods; take `http2` out of [server] afterwards"


def make_store(settings: Settings) -> Store:
    """The store, not opened yet."""
    limits = settings.limits
    if settings.store.kind == "memory":
        return MemoryStore(key_retention=limits.key_retention, key_retention_max=limits.key_retention_max)
    from cronoq._stores.sqlite import SqliteStore

    return SqliteStore(settings.store.path, key_retention_max=limits.key_retention_max)


def announce(
    line: Callable[[str], None],
    settings: Settings,
    source: str,
    version: str,
    bound: list[tuple[str, int]],
    crowded: Sequence[str] = (),
) -> None:
    """Print the start-up lines. `bound`: the real addresses, gRPC's and then, if there is one, HTTP's.

    `crowded`: what `crowds` has found.

    The last line, `ready: grpc ADDRESS http ADDRESS`, is stable: programs wait for it.
    """
    addresses = [format_address(address) for address in bound]
    for text in lines(settings, source, version, *addresses):
        line(text)
    for text in crowded:
        line(_warning(text))
    listening = " ".join(f"{name} {address}" for name, address in zip(("grpc", "http"), addresses, strict=False))
    line(f"ready: {listening}")


def lines(settings: Settings, source: str, version: str, grpc: str, http: str | None = None) -> list[str]:
    """What runs, where everything is, who may call, how to submit and how to run a worker."""
    if settings.store.kind == "memory":
        store = "memory: tasks are lost when the server ends"
    else:
        store = f"SQLite file {os.path.abspath(settings.store.path)}"
    pools = ", ".join(pool.name for pool in settings.pools[:8])
    if len(settings.pools) > 8:
        pools += f" and {len(settings.pools) - 8} more"
    transport, scheme = ("cleartext", "http") if settings.server.tls is None else ("TLS", "https")
    result = [
        f"cronoq-trio {version}",
        f"  configuration  {source}",
        f"  store          {store}",
        f"  pools          {pools}",
        f"  access         {_access(settings)}",
        f"  serves         cronoq.v1 over gRPC on {grpc}, {transport}, for clients and workers of any language",
        "  submit         cronoq-trio submit PAYLOAD, or cronoq.client in Python",
        "  work           cronoq-trio worker MODULE:HANDLERS, or cronoq.handlers in Python; README.md has both",
        "  contract       cronoq-trio print-proto",
    ]
    if http is not None:
        result.append(f"  health         {scheme}://{http}/readyz and /healthz")
    result += [_warning(text) for text in warnings(settings)]
    return result


def _warning(text: str) -> str:
    return f"  WARNING        {text}"


def _access(settings: Settings) -> str:
    tokens = settings.auth.tokens
    if not tokens:
        return "no credentials: whoever reaches the address may do everything"
    counts = Counter(token.role for token in tokens)
    return "tokens: " + ", ".join(f"{count} {role}" for role, count in sorted(counts.items()))


def warnings(settings: Settings) -> tuple[str, ...]:
    """What an operator should know about how far the server is open. Also shown by `check`."""
    server, tokens = settings.server, settings.auth.tokens
    result = []
    beyond = not is_loopback(server.grpc_addr[0])
    if beyond and not tokens:
        result.append("no credentials are asked for, and the address is reachable from other hosts")
    if beyond and tokens and server.tls is None:
        result.append("tokens travel in clear, and the address is reachable from other hosts; set [server.tls]")
    if server.http2 == "h2":
        result.append(f"HTTP/2 is served by the library h2, {ONLY_FOR_DIAGNOSIS}")
    short = [f"auth.tokens[{index}]" for index, token in enumerate(tokens) if token.short]
    if short:
        result.append(f"{', '.join(short)}: fewer than {GOOD_TOKEN} characters; a longer token is harder to guess")
    return tuple(result)
