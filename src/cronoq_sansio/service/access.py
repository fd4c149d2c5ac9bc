"""Who may call what (server.md section 5).

Without configured tokens every caller is an unrestricted admin. With tokens, a call needs the metadata
`authorization: Bearer TOKEN`, and the token's role must be the one of the method, or `admin`. Both are decided from the
metadata alone, when the headers are complete and no byte of a message has been looked at.
"""

from collections.abc import Sequence
from hmac import compare_digest

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.settings import TokenSettings
from cronoq_sansio.settings_tokens import digest_of
from cronoq_sansio.values import value

Metadata = Sequence[tuple[bytes, bytes]]


@value
class Principal:
    """Who a call comes from."""

    name: str
    roles: frozenset[str]
    """Of `client`, `worker`, `metrics`, `admin`; admin passes every check."""


ANYONE = Principal("anyone", frozenset({"admin"}))

METHOD_ROLES = {
    "Tasks.Submit": "client",
    "Tasks.SubmitBatch": "client",
    "Tasks.Cancel": "client",
    "Tasks.Get": "client",
    "Tasks.ListTasks": "client",
    "Tasks.Wait": "client",
    "Tasks.Watch": "client",
    "Workers.Work": "worker",
    "Admin.Snapshot": "metrics",
    "Admin.ListWorkers": "metrics",
    "Admin.ListRecurring": "metrics",
    "Admin.AddRecurring": "admin",
    "Admin.RemoveRecurring": "admin",
}
"""The role that each method of the contract needs. A test compares the names with the contract's descriptor."""

UNAUTHENTICATED = Rejection(Code.UNAUTHENTICATED, "the credentials are missing or unknown; send a valid token")
"""One and the same answer for all that is wrong with credentials, so that nobody learns what it was."""

_SCHEME = b"bearer"


class Authenticator:
    """Knows the tokens of a configuration, as hashes. Without any, every caller is `ANYONE`."""

    def __init__(self, tokens: Sequence[TokenSettings] = ()) -> None:
        self._tokens = tuple(
            (token.digest, Principal(f"auth.tokens[{index}]", frozenset({token.role})))
            for index, token in enumerate(tokens)
        )

    def __call__(self, metadata: Metadata) -> Principal | Rejection:
        """The principal of a call. How long it takes does not depend on which token was sent, or how much of it."""
        if not self._tokens:
            return ANYONE
        values = [text for name, text in metadata if name == b"authorization"]
        if len(values) != 1:
            return UNAUTHENTICATED
        scheme, _, token = values[0].partition(b" ")
        if scheme.lower() != _SCHEME:
            return UNAUTHENTICATED
        sent = digest_of(token.strip())
        found: Principal | None = None
        for digest, principal in self._tokens:
            if compare_digest(digest, sent):
                found = principal
        return found or UNAUTHENTICATED


authenticate = Authenticator()
"""Of a configuration without tokens."""


def allows(principal: Principal, role: str) -> bool:
    """Whether the principal may call what needs `role`."""
    return role in principal.roles or "admin" in principal.roles
