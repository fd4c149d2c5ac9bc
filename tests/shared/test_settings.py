"""The settings checker: every key, every rule, all problems at once."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import PoolSettings, ServerSettings, Settings, TlsSettings
from cronoq_sansio.settings_check import (
    check_settings,
    format_address,
    is_loopback,
    parse_address,
)
from cronoq_sansio.settings_keys import NAMED, Key, Kind
from cronoq_sansio.settings_recurring import RECURRING, RECURRING_RETRY
from cronoq_sansio.settings_scheduling import CLASSES, POOLS, RESOURCES, RETRY, SCALER, SLO
from cronoq_sansio.settings_table import (
    INNER_TABLES,
    TABLES,
    TLS,
    TOKENS,
    UNBUILT_TABLES,
    UNBUILT_WORDS,
)
from cronoq_sansio.settings_text import allowed, show, show_kind
from cronoq_sansio.settings_walk import Problem
from cronoq_sansio.spec import RetryPolicy

BUDGET = 1 << 32
NUMERIC = (Kind.INTEGER, Kind.NUMBER, Kind.SECONDS)
KEYS = [(table, key) for table in (*TABLES, *INNER_TABLES) for key in table.keys]
TOKEN = "0123456789abcdef"
IDS = [f"{table.name}.{key.name}" for table, key in KEYS]


def check(document):
    return check_settings(document, payload_budget=BUDGET)


def accepted(document):
    settings = check(document)
    assert isinstance(settings, Settings), [str(problem) for problem in settings]
    return settings


def refused(document):
    problems = check(document)
    assert isinstance(problems, tuple)
    return [str(problem) for problem in problems]


def holding(table, key, found):
    """The smallest document in which `key` has this value, and its path in there."""
    if table is RETRY:
        return {"pools": [{"name": "p", "retry": {"max_attempts": 1, key.name: found}}]}, f"pools[0].retry.{key.name}"
    if table in (CLASSES, SLO, SCALER):
        within = table.name.removeprefix("pools.")
        return {"pools": [{"name": "p", within: {key.name: found}}]}, f"pools[0].{within}.{key.name}"
    if table is RECURRING:
        entry = {"name": "s", "cron": "* * * * *", "pool": "default"}
        return {"recurring": [entry | {key.name: found}]}, f"recurring[0].{key.name}"
    if table is RECURRING_RETRY:
        entry = {"name": "s", "cron": "* * * * *", "retry": {key.name: found}}
        return {"recurring": [entry]}, f"recurring[0].retry.{key.name}"
    if table is RESOURCES:
        entry = {"name": "r", "kind": key.kind_of_table or "semaphore"}
        entry |= {other.name: 1 for other in RESOURCES.keys if other.kind_of_table == entry["kind"]}
        return {"resources": [entry | {key.name: found}]}, f"resources[0].{key.name}"
    if table is POOLS:
        return {"pools": [{"name": "p", key.name: found}]}, f"pools[0].{key.name}"
    if table is TLS:
        return {"server": {"tls": {"cert": "c", "key": "k", key.name: found}}}, f"server.tls.{key.name}"
    if table is TOKENS:
        token = {} if key.name == "token_env" else {"token": TOKEN}
        return {"auth": {"tokens": [token | {"role": "client", key.name: found}]}}, f"auth.tokens[0].{key.name}"
    if table.name == "store":
        return {"store": {"kind": "sqlite", "path": "x.db", key.name: found}}, f"store.{key.name}"
    return {table.name: {key.name: found}}, f"{table.name}.{key.name}"


def paths(document):
    return [problem.path for problem in check(document)]


# --- the table itself


def test_every_field_of_a_value_class_has_a_key_and_the_reverse():
    for table in (*TABLES, *INNER_TABLES):
        fields = {field.name for field in dataclasses.fields(table.target)} - {"short"}
        keys = {key.field for key in table.keys}
        assert keys == fields, table.name


def test_top_level_tables_are_the_fields_of_settings():
    assert [table.name for table in TABLES] == [field.name for field in dataclasses.fields(Settings)]


@pytest.mark.parametrize(("table", "key"), KEYS, ids=IDS)
def test_defaults_lie_within_their_range(table, key):
    if key.kind not in NUMERIC or key.required or key.kind_of_table or table in (CLASSES, SLO):
        return
    if table in (RECURRING, RECURRING_RETRY):
        assert key.default_text, "the value class has none, or it is none"
        return
    if key.name == "await_unknown_dependencies_s":
        assert PoolSettings().await_unknown_dependencies is None, "off is no number"
        return
    default = getattr(RetryPolicy(3, SECOND, 2.0, 60 * SECOND, True) if table is RETRY else table.target(), key.field)
    assert key.minimum <= (default / SECOND if key.kind is Kind.SECONDS else default) <= key.maximum


# --- one key at a time


@pytest.mark.parametrize(("table", "key"), KEYS, ids=IDS)
def test_values_of_a_wrong_type_are_refused_with_path_and_rule(table, key):
    wrong = [[], {}, "", "text"]
    wrong += [True, math.nan, math.inf] if key.kind in NUMERIC else [1, 2.5, math.nan, math.inf]
    if key.kind is Kind.INTEGER:
        wrong.append(1.0)
    if key.kind is Kind.TABLE or key.kind in NAMED:
        wrong.remove({})
    if key.kind is Kind.TABLES:
        wrong.remove([])
    if key.own_rule:
        wrong = wrong[:2] + wrong[4:]  # any text is read, and its own sentence says what is wrong with it
    elif key.name in ("path", "name", "cert", "key", "token_env"):
        wrong.remove("text")
    rule = "an array of tables, each written [[auth.tokens]]" if key.kind is Kind.TABLES else allowed(key)
    for found in wrong:
        document, path = holding(table, key, found)
        shown = show_kind(found) if key.secret else show(found)
        assert f"{path}: found {shown}; allowed is {rule}" in refused(document)


@pytest.mark.parametrize(("table", "key"), [pair for pair in KEYS if pair[1].kind in NUMERIC])
def test_the_ends_of_a_range_are_allowed_and_what_lies_beyond_is_not(table, key: Key):
    for found in (key.minimum, key.maximum):
        document, path = holding(table, key, found)
        result = check(document)
        assert (
            isinstance(result, Settings)
            or path not in [p.path for p in result]
            or key.name in ("max_payload_bytes", "cache_bytes", "min")
        )
    step = 1 if key.kind is Kind.INTEGER else 0.01
    for found in (key.minimum - step, key.maximum + step):
        if found == key.maximum:
            continue  # a float of that size has no hundredths
        document, path = holding(table, key, found)
        assert path in paths(document)


@pytest.mark.parametrize(
    ("path", "found"),
    [(path, word) for path, words in UNBUILT_WORDS.items() for word in words],
)
def test_words_that_are_not_built_say_so(path, found):
    table = next(table for table in (*TABLES, *INNER_TABLES) if table.name == path.rpartition(".")[0])
    key = next(key for key in table.keys if key.name == path.rpartition(".")[2])
    document, where = holding(table, key, found)
    assert any(
        line.startswith(f'{where}: "{found}" is not built in this version; allowed is ') for line in refused(document)
    )


@pytest.mark.parametrize("table", [*TABLES, *INNER_TABLES], ids=lambda table: table.name)
def test_keys_that_are_not_built_say_so(table):
    for name in table.unbuilt:
        document, path = holding(table, Key(name, name, Kind.TEXT, ""), "anything")
        assert refused(document) == [f"{path}: this key is not built in this version; leave it out"]


def test_tables_that_are_not_built_say_so():
    for name in UNBUILT_TABLES:
        assert refused({name: {}}) == [f"{name}: this table is not built in this version; leave it out"]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"pools": [{"name": "a", "lease_ttl": 3}]}, "pools[0].lease_ttl: unknown key; did you mean `lease_ttl_s`?"),
        ({"pool": []}, "pool: unknown table; did you mean `pools`?"),
        ({"limits": {"max_dep": 3}}, "limits.max_dep: unknown key; did you mean `max_deps`?"),
        ({"outputs": {"zzz": 1}}, "outputs.zzz: unknown key; known are cache_entries, cache_bytes, info_entries"),
        ({"outputs": {"a\nb": 1}}, r'outputs."a\nb": unknown key; known are cache_entries, cache_bytes, info_entries'),
        ({"server": 3}, "server: found 3; allowed is a table, written [server]"),
        ({"server": [{}]}, "server: found an array; allowed is a table, written [server]"),
        ({"pools": {"name": "a"}}, "pools: found a table; allowed is an array of tables, each written [[pools]]"),
        ({"pools": [1]}, "pools: found an array; allowed is an array of tables, each written [[pools]]"),
        ({"pools": []}, "pools: found an empty array; allowed is at least one pool, or no key `pools` at all"),
        ({"pools": [{}]}, "pools[0].name: missing; required is 1 to 64 characters of A-Z a-z 0-9 _ . : -"),
        (
            {"pools": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
            'pools[2].name: "a" is the name of pools[0] already; names are unique',
        ),
        (
            {"pools": [{"name": "a b"}]},
            'pools[0].name: found "a b"; allowed is 1 to 64 characters of A-Z a-z 0-9 _ . : -',
        ),
        ({"pools": [{"name": "ä"}]}, 'pools[0].name: found "ä"; allowed is 1 to 64 characters of A-Z a-z 0-9 _ . : -'),
        (
            {"pools": [{"name": "a", "retry": {}}]},
            "pools[0].retry.max_attempts: missing; required is an integer from 1 to 4294967295",
        ),
        ({"store": {}}, 'store.kind: missing; required is "memory" or "sqlite"'),
        (
            {"store": {"kind": "sqlite"}},
            'store.path: missing; kind "sqlite" requires the path of a file,'
            " not empty, not beginning with `:` or `file:`",
        ),
        (
            {"store": {"kind": "memory", "path": "x"}},
            'store.path: has no meaning with kind "memory"; leave it out, or use kind "sqlite"',
        ),
        (
            {"outputs": {"cache_bytes": 0}},
            "outputs.cache_bytes: found 0; allowed is more than 0 unless outputs.cache_entries is 0",
        ),
        (
            {"limits": {"max_payload_bytes": 4096}},
            "limits.max_payload_bytes: found 4096; allowed is at least limits.max_message_bytes,"
            " here 16777216: one task must fit",
        ),
        (
            {"server": {"grpc_addr": "0.0.0.0:7070"}},
            "server.grpc_addr: 0.0.0.0:7070 reaches beyond this machine, and nobody would have to authenticate;"
            " add [[auth.tokens]], use a loopback address, or set server.insecure_no_auth = true",
        ),
        (
            {"server": {"http_addr": "[::]:0"}},
            "server.http_addr: [::]:0 reaches beyond this machine, and nobody would have to authenticate;"
            " add [[auth.tokens]], use a loopback address, or set server.insecure_no_auth = true",
        ),
        (
            {"server": {"http_addr": "127.0.0.1:7070"}},
            "server.http_addr: 127.0.0.1:7070 is server.grpc_addr already; use another port",
        ),
        (
            {"server": {"grpc_addr": "127.0.0.1:7071"}},
            "server.http_addr: 127.0.0.1:7071 is server.grpc_addr already; use another port",
        ),
    ],
)
def test_problems_read_well(document, line):
    assert refused(document) == [line]


@pytest.mark.parametrize("path", [":memory:", "file:x.db", "", "a\0b"])
def test_paths_that_sqlite_would_read_as_something_else_are_refused(path):
    assert paths({"store": {"kind": "sqlite", "path": path}}) == ["store.path"]


def test_all_problems_come_at_once_in_the_order_of_the_tables():
    document = {
        "pools": [{"name": "a", "lease_ttl_s": -1}, {"name": "a", "max": 0, "retry": {"max_attempts": 0, "jitter": 1}}],
        "limits": {"max_tags": -1, "colour": "red"},
        "store": {"kind": "postgres"},
        "server": {"shutdown_grace_s": -0.1, "tls": {"cert": "", "client_ca": "x"}},
        "auth": {"tokens": [{"token": "short", "role": "boss"}, {"role": "client"}]},
        "shards": [],
        "resources": [{"kind": "semaphore", "rate": "fast", "shard": "eu"}],
        "recurring": [{"name": "r", "overlap": "both", "retry": {"jitter": 1}, "tags": {"cronoq.x": ""}}, {}],
    }
    assert paths(document) == [
        "shards",
        "server.shutdown_grace_s",
        "server.tls.client_ca",
        "server.tls.cert",
        "server.tls.key",
        "store.kind",
        "limits.colour",
        "limits.max_tags",
        "pools[0].lease_ttl_s",
        "pools[1].max",
        "pools[1].retry.max_attempts",
        "pools[1].retry.jitter",
        "pools[1].name",
        "resources[0].shard",
        "resources[0].name",
        "resources[0].rate",
        "resources[0].permits",
        "resources[0].rate",
        "recurring[0].cron",
        "recurring[0].overlap",
        "recurring[0].retry.jitter",
        "recurring[0].pool",
        'recurring[0].tags."cronoq.x"',
        "recurring[1].name",
        "recurring[1].cron",
        "recurring[1].pool",
        "auth.tokens[0].role",
        "auth.tokens[0].token",
        "auth.tokens[1]",
    ]


# --- what comes out


def test_an_empty_document_gives_the_defaults():
    settings = accepted({})
    assert settings.server == ServerSettings()
    assert settings.store.kind == "memory"
    assert settings.pools == (PoolSettings(),)
    assert settings.limits.max_payload_bytes == BUDGET


def test_a_full_document_arrives_whole_and_in_nanoseconds():
    settings = accepted(
        {
            "server": {
                "grpc_addr": "[::1]:0",
                "http_addr": "127.0.0.1:0",
                "insecure_no_auth": False,
                "shutdown_grace_s": 2.5,
                "tls": {"cert": "file:c.pem", "key": "k.pem"},
            },
            "store": {"kind": "sqlite", "path": "d/x.db", "keep_finished_s": 60},
            "limits": {
                "max_pending_per_pool": 7,
                "max_slots_per_worker": 8,
                "max_wait_s": 0,
                "keepalive_timeout_s": 0.1,
            },
            "outputs": {"cache_entries": 0, "cache_bytes": 0, "info_entries": 1},
            "pools": [
                {"name": "a.B:c-_9", "lease_ttl_s": 0.1, "overflow": "wait"},
                {
                    "name": "b",
                    "max": 3,
                    "max_pending": 2,
                    "max_slots_per_worker": 5,
                    "retry": {"max_attempts": 9, "multiplier": 1},
                },
            ],
        }
    )
    assert settings.server == ServerSettings(
        ("::1", 0), ("127.0.0.1", 0), False, 2_500_000_000, TlsSettings("file:c.pem", "k.pem")
    )
    assert (settings.store.path, settings.store.keep_finished) == ("d/x.db", 60 * SECOND)
    assert (settings.limits.max_wait, settings.limits.keepalive_timeout) == (0, SECOND // 10)
    assert settings.pools == (
        PoolSettings("a.B:c-_9", lease_ttl=SECOND // 10, max_pending=7, max_slots_per_worker=8, overflow="wait"),
        PoolSettings(
            "b", 3, max_pending=2, max_slots_per_worker=5, retry=RetryPolicy(9, SECOND, 1.0, 60 * SECOND, True)
        ),
    )


def test_the_payload_budget_of_a_small_machine_still_fits_one_task():
    settings = check_settings({"limits": {"max_message_bytes": 8192}}, payload_budget=10)
    assert settings.limits.max_payload_bytes == 8192


def test_exposure_is_allowed_when_it_is_said():
    assert accepted({"server": {"grpc_addr": "0.0.0.0:1", "insecure_no_auth": True}}).server.grpc_addr == ("0.0.0.0", 1)


# --- addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", ("127.0.0.1", 7070)),
        ("[::1]:0", ("::1", 0)),
        ("[0:0::1]:65535", ("::1", 65535)),
        ("localhost:7070", None),
        ("127.0.0.1", None),
        ("::1:7070", None),
        ("[127.0.0.1]:1", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:-1", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:٣", None),
        ("[fe80::1%eth0]:1", None),
        (":7070", None),
        ("127.0.0.1:000001", None),
    ],
)
def test_addresses_are_literals(text, address):
    assert parse_address(text) == address


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_an_address_survives_being_written(ip, port):
    assert parse_address(format_address((str(ip), port))) == (str(ip), port)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback(host, local):
    assert is_loopback(host) is local


# --- anything at all

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    sorted({key.name for _, key in KEYS} | {name for table in TABLES for name in table.unbuilt} | {"x"})
)
TABLE = st.dictionaries(NAMES, ANYTHING | st.dictionaries(NAMES, ANYTHING, max_size=3), max_size=4)


@given(
    st.dictionaries(
        st.sampled_from(["server", "store", "limits", "outputs", "pools", "resources", "recurring", "auth", "x"]),
        ANYTHING | TABLE | st.lists(TABLE, max_size=3),
    )
)
def test_no_document_breaks_the_checker(document):
    result = check(document)
    if isinstance(result, Settings):
        assert result.pools
    else:
        assert result and all(
            isinstance(problem, Problem) and problem.message and "\n" not in problem.path for problem in result
        )


def test_a_long_value_is_cut_to_one_line():
    (line,) = refused({"store": {"kind": "x" * 10_000 + "\n"}})
    assert len(line) < 150 and "\n" not in line
