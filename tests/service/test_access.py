"""Credentials: which metadata is whom, and that every method of the contract has its role."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.errors import Code
from cronoq_sansio.service.access import ANYONE, METHOD_ROLES, UNAUTHENTICATED, Authenticator, allows
from cronoq_sansio.settings import TokenSettings
from cronoq_sansio.settings_tokens import digest_of
from cronoq_sansio.wire import pb

ROLES = ("client", "worker", "metrics", "admin")
SECRETS = {role: f"{role}-".ljust(32, "x").encode() for role in ROLES}
KNOWN = Authenticator([TokenSettings(role, digest_of(secret)) for role, secret in SECRETS.items()])


def bearer(token, scheme=b"Bearer "):
    return [(b"user-agent", b"x"), (b"authorization", scheme + token)]


def test_every_method_of_the_contract_has_a_role_and_nothing_else_has():
    services = pb.DESCRIPTOR.services_by_name.values()
    methods = [f"{service.name}.{method.name}" for service in services for method in service.methods]
    assert sorted(METHOD_ROLES) == sorted(methods)
    assert set(METHOD_ROLES.values()) == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER ", b"bEaReR  \t"])
def test_a_token_is_found_whatever_the_case_of_the_scheme(role, scheme):
    principal = KNOWN(bearer(SECRETS[role] + b" ", scheme))
    assert principal.roles == {role}
    assert principal.name == f"auth.tokens[{ROLES.index(role)}]"


SECRET = SECRETS["client"]
WRONG = {
    "nothing": [],
    "other metadata": [(b"x-authorization", b"Bearer " + SECRET)],
    "an unknown token": bearer(b"y" * 32),
    "an empty value": [(b"authorization", b"")],
    "no token": bearer(b""),
    "no scheme": bearer(SECRET, b""),
    "another scheme": bearer(SECRET, b"Basic "),
    "no blank": bearer(SECRET, b"Bearer"),
    "the beginning of a token": bearer(SECRET[:-1]),
    "more than a token": bearer(SECRET + b"x"),
    "another case": bearer(SECRET.upper()),
    "two headers": bearer(SECRET) + bearer(SECRET),
    "the digest": bearer(digest_of(SECRET)),
    "the digest in hexadecimal": bearer(digest_of(SECRET).hex().encode()),
    "no text": bearer(bytes(range(256))),
}


@pytest.mark.parametrize("metadata", WRONG.values(), ids=WRONG)
def test_whatever_is_wrong_has_one_and_the_same_answer(metadata):
    assert KNOWN(metadata) is UNAUTHENTICATED
    assert UNAUTHENTICATED.code is Code.UNAUTHENTICATED and not UNAUTHENTICATED.details


@given(st.binary(max_size=80))
def test_no_bytes_but_a_token_get_in(text):
    if text.partition(b" ")[2].strip() not in SECRETS.values():
        assert KNOWN([(b"authorization", text)]) is UNAUTHENTICATED


def test_without_tokens_everybody_is_an_admin():
    for metadata in WRONG.values():
        assert Authenticator()(metadata) is ANYONE
    assert all(allows(ANYONE, role) for role in ROLES)


def test_every_token_is_compared_also_after_one_fits(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "cronoq_sansio.service.access.compare_digest", lambda one, other: compared.append(one) or one == other
    )
    KNOWN(bearer(SECRETS["client"]))
    first = len(compared)
    KNOWN(bearer(b"nobody" * 6))
    assert (first, len(compared)) == (4, 8)


@pytest.mark.parametrize("role", ROLES)
def test_admin_passes_every_check_others_only_their_own(role):
    assert [needed for needed in ROLES if allows(KNOWN(bearer(SECRETS[role])), needed)] == (
        list(ROLES) if role == "admin" else [role]
    )
