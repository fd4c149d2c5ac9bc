"""Who may call what. Without configured credentials every caller is an unrestricted admin (server.md section 5)."""

from collections.abc import Sequence

from cronoq_sansio.values import value


@value
class Principal:
    """Who a call comes from."""

    name: str
    roles: frozenset[str]
    """Of `client`, `worker`, `metrics`, `admin`; admin passes every check."""


ANYONE = Principal("anyone", frozenset({"admin"}))


def authenticate(metadata: Sequence[tuple[bytes, bytes]]) -> Principal:
    """The principal of a call, from its metadata alone, so that it is known before any message byte is buffered."""
    return ANYONE


def allows(principal: Principal, role: str) -> bool:
    """Whether the principal may call what needs `role`."""
    return role in principal.roles or "admin" in principal.roles
