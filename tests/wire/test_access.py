"""Every method of the contract × every kind of credentials, decided at the end of the headers.

What is allowed is said here once more, as a rule of its own: a method that the rule does not know fails.
"""

from typing import Any

import pytest

from cronoq_sansio.service.access import UNAUTHENTICATED, Authenticator
from cronoq_sansio.service.messages import WorkerConnected
from cronoq_sansio.settings import TokenSettings
from cronoq_sansio.settings_tokens import digest_of
from cronoq_sansio.wire import pb
from tests.wire.peer import START, Peer

OK_SO_FAR, PERMISSION_DENIED, REFUSED = None, 7, 16
ROLES = ("client", "worker", "metrics", "admin")
TOKENS = {role: f"{role}-".ljust(32, "x") for role in ROLES}
AUTHENTICATE = Authenticator([TokenSettings(role, digest_of(token.encode())) for role, token in TOKENS.items()])
CREDENTIALS: dict[str, str | None] = {"none": None, "wrong": "Bearer " + "w" * 32, "basic": "Basic abc"}
CREDENTIALS |= {role: f"bearer {token}" for role, token in TOKENS.items()}
METHODS = [
    f"/cronoq.v1.{service.name}/{method.name}"
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def needed(path: str) -> str:
    """The role of server.md section 5."""
    service, _, method = path.removeprefix("/cronoq.v1.").partition("/")
    if service == "Tasks":
        return "client"
    if service == "Workers":
        return "worker"
    assert service == "Admin", f"no rule for {path}"
    if method in ("Snapshot", "ListWorkers", "ListRecurring"):
        return "metrics"
    assert method in ("AddRecurring", "RemoveRecurring"), f"no rule for {path}"
    return "admin"


@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize("path", METHODS)
def test_the_matrix(path: str, credentials: str) -> None:
    peer = Peer(auth=AUTHENTICATE)
    stream_id = peer.headers(path, authorization=CREDENTIALS[credentials])
    events = peer.exchange()  # nothing but headers was sent
    seen = peer.streams[stream_id]
    if credentials not in ROLES:
        assert seen.status == REFUSED and seen.message == UNAUTHENTICATED.message
        assert set(seen.headers) == {":status", "content-type", "grpc-status", "grpc-message"}
    elif credentials not in ("admin", needed(path)):
        assert seen.status == PERMISSION_DENIED and needed(path) in seen.message
    else:
        assert seen.status is OK_SO_FAR
        assert [type(event) for event in events] == ([WorkerConnected] if path.endswith("/Work") else [])
        return
    assert events == [] and seen.ended


@pytest.mark.parametrize("path", METHODS)
def test_no_byte_of_a_refused_call_is_kept(path: str) -> None:
    peer = Peer(auth=AUTHENTICATE)
    stream_id = peer.headers(path)
    peer.data(stream_id, b"\0\0\1\0\0" + bytes(60_000))
    events = peer.exchange()
    server: Any = peer.server
    assert events == [] and not server._streams
    assert peer.streams[stream_id].status == REFUSED


def test_the_answers_to_missing_and_wrong_credentials_are_the_same_bytes() -> None:
    answers = set()
    for authorization in (None, "Bearer " + "w" * 32, "Bearer", "Basic " + TOKENS["admin"], TOKENS["admin"]):
        peer = Peer(auth=AUTHENTICATE)
        peer.headers(METHODS[0], authorization=authorization)
        answers.add(peer.server.take(1 << 20) + _sent(peer))
    assert len(answers) == 1


def _sent(peer: Peer) -> bytes:
    peer.server.receive(peer.client.data_to_send(), START)
    return peer.server.take(1 << 20)
