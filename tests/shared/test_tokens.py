"""The tokens of a configuration: one source, long enough, unique; and no message ever shows one."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.settings import Settings, TokenSettings
from cronoq_sansio.settings_check import check_settings

A, B = "a" * 32, "b" * 31


def check(tokens, **variables):
    return check_settings({"auth": {"tokens": tokens}}, payload_budget=1 << 32, variables=variables)


def accepted(tokens, **variables):
    settings = check(tokens, **variables)
    assert isinstance(settings, Settings), [str(problem) for problem in settings]
    return settings.auth.tokens


def refused(tokens, **variables):
    problems = check(tokens, **variables)
    assert isinstance(problems, tuple)
    return [str(problem) for problem in problems]


def kept(role, token, short=False):
    return TokenSettings(role, hashlib.sha256(token.encode()).digest(), short)


def test_tokens_come_from_the_file_and_from_the_environment_and_only_hashes_are_kept():
    found = accepted([{"token": f" {A}\n", "role": "client"}, {"token_env": "T", "role": "admin"}], T=f"\t{B} ")
    assert found == (kept("client", A), kept("admin", B, short=True))
    assert A not in repr(found) and B not in repr(found)


def test_without_tokens_there_is_no_authentication():
    assert accepted([]) == ()
    assert check_settings({"auth": {}}, payload_budget=1 << 32).auth.tokens == ()


def test_lengths():
    assert accepted([{"token": "x" * 16, "role": "client"}])[0].short
    assert not accepted([{"token": "x" * 32, "role": "client"}])[0].short
    for length in (0, 1, 15):
        assert refused([{"token": "x" * length, "role": "client"}]) == [
            f"auth.tokens[0].token: the token has {length} characters; allowed are at least 16"
        ]
    assert refused([{"token": " " * 40, "role": "client"}]) == [
        "auth.tokens[0].token: the token has 0 characters; allowed are at least 16"
    ]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"role": "client"}, "auth.tokens[0]: neither is set; required is exactly one of `token` and `token_env`"),
        (
            {"role": "client", "token": A, "token_env": "T"},
            "auth.tokens[0]: both are set; required is exactly one of `token` and `token_env`",
        ),
        ({"role": "client", "token_env": "U"}, "auth.tokens[0].token_env: the environment variable U is not set"),
        (
            {"role": "client", "token_env": "E"},
            "auth.tokens[0].token_env: the token has 0 characters; allowed are at least 16",
        ),
        (
            {"role": "client", "token": "ä" * 40},
            "auth.tokens[0].token: the token has a character that cannot travel in metadata;"
            " allowed is printable ASCII",
        ),
        (
            {"role": "client", "token": "a" * 20 + "\n" + "b" * 20},
            "auth.tokens[0].token: the token has a character that cannot travel in metadata;"
            " allowed is printable ASCII",
        ),
        ({"token": A}, 'auth.tokens[0].role: missing; required is "client" or "worker" or "metrics" or "admin"'),
        (
            {"role": "client", "token": A, "pools": ["default"]},
            "auth.tokens[0].pools: this key is not built in this version; leave it out",
        ),
        (
            {"role": "client", "token": A, "tenant": ""},
            "auth.tokens[0].tenant: this key is not built in this version; leave it out",
        ),
        ({"role": "client", "tokn": A}, "auth.tokens[0].tokn: unknown key; did you mean `token`?"),
    ],
)
def test_problems_read_well(entry, line):
    assert line in refused([entry], T=A, E="")


def test_each_token_is_unique_wherever_it_comes_from():
    entries = [{"token": A, "role": "client"}, {"token": B, "role": "worker"}, {"token_env": "T", "role": "admin"}]
    assert refused(entries, T=f" {A}") == [
        "auth.tokens[2].token_env: the same token as in auth.tokens[0]; each token is unique"
    ]


CANARY = "canary-canary-canary"


@pytest.mark.parametrize(
    "document",
    [
        {"auth": CANARY},
        {"auth": [CANARY]},
        {"auth": {"tokens": CANARY}},
        {"auth": {"tokens": [CANARY]}},
        {"auth": {"tokens": {"token": CANARY}}},
        {"auth": {"tokens": [{"token": CANARY, "role": CANARY}]}},
        {"auth": {"tokens": [{"token": [CANARY], "role": "admin"}]}},
        {"auth": {"tokens": [{"token_env": CANARY, "role": "admin"}]}},
        {"auth": {"tokens": [{"token": CANARY, "token_env": CANARY, "role": "admin"}]}},
        {"auth": {"tokens": [{"token": CANARY, "role": "admin"}] * 2}},
        {"auth": {"tokens": [{"token": CANARY + "\0", "role": "admin"}]}},
        {"auth": {"tokens": [{"token_env": "T", "role": CANARY}], "certs": CANARY}},
    ],
)
def test_no_message_shows_what_could_be_a_token(document):
    problems = check_settings(document, payload_budget=1 << 32, variables={"T": CANARY})
    assert isinstance(problems, tuple) and problems
    assert not any("canary" in str(problem) for problem in problems)


@given(st.text("#$%&ä\0\n ~", max_size=50), st.sampled_from(["token", "token_env"]))
def test_any_text_is_a_token_or_a_sentence_without_it(text, source):
    result = check([{source: text if source == "token" else "T", "role": "worker"}], T=text)
    if isinstance(result, Settings):
        assert result.auth.tokens[0].digest == hashlib.sha256(text.strip().encode()).digest()
    else:
        assert len(result) == 1 and (not text.strip() or text.strip() not in str(result[0]))


def test_addresses_beyond_loopback_need_tokens_or_a_word():
    document = {"server": {"grpc_addr": "0.0.0.0:1", "http_addr": "[::]:2"}}
    assert len(check_settings(document, payload_budget=1 << 32)) == 2
    assert len(check_settings({**document, "auth": {"tokens": []}}, payload_budget=1 << 32)) == 2
    tokens = {"auth": {"tokens": [{"token": A, "role": "admin"}]}}
    assert isinstance(check_settings({**document, **tokens}, payload_budget=1 << 32), Settings)
