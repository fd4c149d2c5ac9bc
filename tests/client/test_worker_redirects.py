"""Which redirects a worker follows (client.md section 3)."""

import pytest

from cronoq._client.worker_redirects import judge, safe
from cronoq._client.worker_run import Plan

FOLLOWED = [
    # endpoint, secure, token, opt-in, where to
    ("http://127.0.0.1:7071", False, False, False, "http://127.0.0.1:7071"),
    ("http://127.0.0.1:7071", False, True, False, "http://127.0.0.1:7071"),
    ("http://127.9.9.9:7071", False, True, False, "http://127.9.9.9:7071"),
    ("http://localhost:7071", False, True, False, "http://localhost:7071"),
    ("http://[::1]:7071", False, True, False, "http://[::1]:7071"),
    ("http://far.example:7071", False, False, False, "http://far.example:7071"),
    ("http://far.example:7071", False, True, True, "http://far.example:7071"),
    ("https://far.example:7071", False, True, False, "https://far.example:7071"),
    ("https://far.example:7071/", True, True, False, "https://far.example:7071"),
    ("HTTPS://far.example", True, True, False, "https://far.example:443"),
]
REFUSED = [
    ("http://127.0.0.1:7071", True, False, True, "not TLS"),
    ("http://far.example:7071", False, True, False, "insecure_redirect_http"),
    ("http://localhost.far.example:7071", False, True, False, "insecure_redirect_http"),
    ("http://127.0.0.1.far.example:7071", False, True, False, "insecure_redirect_http"),
    ("http://128.0.0.1:7071", False, True, False, "insecure_redirect_http"),
    ("http://[::2]:7071", False, True, False, "insecure_redirect_http"),
    ("grpc://far.example:7071", False, False, True, "neither"),
    ("far.example:7071", False, False, True, "neither"),
    ("ftp://far.example:7071", False, False, True, "neither"),
    ("", False, False, True, "neither"),
    ("http://user@far.example:7071", False, False, True, "user names"),
    ("http://user:password@127.0.0.1:7071", False, False, True, "user names"),
    ("http://far.example", False, False, True, "no port"),
    ("http://far.example:0", False, False, True, "not a port"),
    ("http://far.example:99999", False, False, True, "not a port"),
    ("http://far.example:7071/path", False, False, True, "not a port"),
    ("http://far.example:7071?x=1", False, False, True, "not a port"),
    ("http://[::1]x:7071", False, False, True, "not a port"),
    ("http://x[::1]:7071", False, False, True, "host:port"),
    ("http://[127.0.0.1]:7071", False, False, True, "IPv6"),
    ("http://[::1:7071", False, False, True, "IPv6"),
    ("http://far example:7071", False, False, True, "host:port"),
    ("http://far.example\n:7071", False, False, True, "host:port"),
    ("http://:7071", False, False, True, "host:port"),
    ("http://http://127.0.0.1:7071", False, False, True, "not a port"),
]


@pytest.mark.parametrize(("endpoint", "secure", "token", "opt_in", "target"), FOLLOWED)
def test_followed(endpoint, secure, token, opt_in, target):
    redirect = judge(endpoint, secure=secure, token=token, insecure_http=opt_in)
    assert (redirect.target, redirect.refusal) == (target, "")


@pytest.mark.parametrize(("endpoint", "secure", "token", "opt_in", "reason"), REFUSED)
def test_refused_with_a_reason(endpoint, secure, token, opt_in, reason):
    redirect = judge(endpoint, secure=secure, token=token, insecure_http=opt_in)
    assert reason in redirect.refusal and repr(endpoint) in redirect.refusal


@pytest.mark.parametrize(
    ("target", "expected"),
    [("https://far.example:1", True), ("http://localhost:1", True), ("http://far.example:1", False)],
)
def test_safe(target, expected):
    assert safe(target) is expected


def test_credentials_and_token_go_along_and_what_names_one_server_does_not():
    options = (("grpc.default_authority", "home"), ("grpc.keepalive_time_ms", 60_000))
    plan = Plan("localhost:1", "default", print, 1, "secret", "", True, None, True, (0.1, 5.0), options, {}, False)
    home, shard = plan.channel("localhost:1"), plan.channel("https://other.example:2")
    assert home._settings.authority == "home" and shard._settings.authority == "other.example:2"
    assert home._secure and shard._secure and not plan.channel("http://localhost:2")._secure
    assert home._token == shard._token == "secret"
    assert shard._settings.ping_interval == home._settings.ping_interval == 60 * 10**9
