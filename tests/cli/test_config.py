"""Where the configuration comes from, and what is said when it cannot be used."""

import os

import pytest

from cronoq import config
from cronoq.config import load
from cronoq.errors import ConfigError
from cronoq_sansio.limits import MAX_CONFIG_FILE


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(path, **options):
    with pytest.raises(ConfigError) as caught:
        load(path, environ={}, **options)
    return list(caught.value.problems)


def pool(name):
    return f'[[pools]]\nname = "{name}"\n'


def test_without_a_file_there_is_one_pool_on_loopback_and_a_database():
    loaded = load(None, environ={})
    assert loaded.source == "built-in"
    assert (loaded.settings.store.kind, loaded.settings.store.path) == ("sqlite", "cronoq.db")
    assert loaded.settings.server.grpc_addr == ("127.0.0.1", 7070)
    assert [entry.name for entry in loaded.settings.pools] == ["default"]


def test_the_command_line_goes_before_the_environment_before_the_folder(folder):
    for name in ("one", "two", "cronoq"):
        (folder / f"{name}.toml").write_text(pool(name))
    environ = {"CRONOQ_CONFIG": "two.toml"}
    assert load("one.toml", environ=environ).settings.pools[0].name == "one"
    assert load(None, environ=environ).source == "two.toml"
    assert load(None, environ={}).source == "cronoq.toml"
    assert load(None, environ={"CRONOQ_CONFIG": ""}).source == "cronoq.toml"


def test_a_file_without_a_store_keeps_tasks_in_memory(folder):
    (folder / "c.toml").write_text(pool("a"))
    assert load("c.toml", environ={}).settings.store.kind == "memory"


def test_flags_win_over_the_file(folder):
    (folder / "c.toml").write_text('[server]\ngrpc_addr = "0.0.0.0:7070"\n[store]\nkind = "sqlite"\npath = "x.db"\n')
    settings = load("c.toml", memory=True, insecure_no_auth=True, environ={}).settings
    assert (settings.store.kind, settings.server.insecure_no_auth) == ("memory", True)
    assert load(None, memory=True, environ={}).settings.store.kind == "memory"


def test_a_flag_does_not_hide_a_wrong_table(folder):
    (folder / "c.toml").write_text("server = 3\n")
    assert problems("c.toml", insecure_no_auth=True) == [
        "c.toml:1: server: found 3; allowed is a table, written [server]"
    ]


def test_the_budget_for_payloads_is_half_of_the_memory(monkeypatch):
    pages = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(config.os, "sysconf", pages.__getitem__, raising=False)
    monkeypatch.setattr(config, "_CGROUP_LIMIT", config.Path("missing"))
    assert config.memory_budget() == 2_048_000


@pytest.mark.parametrize(
    ("content", "expected"), [("1000000\n", 500_000), ("max\n", 2_048_000), ("9999999999\n", 2_048_000)]
)
def test_a_container_may_have_less(folder, monkeypatch, content, expected):
    (folder / "limit").write_text(content)
    pages = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(config.os, "sysconf", pages.__getitem__, raising=False)
    monkeypatch.setattr(config, "_CGROUP_LIMIT", folder / "limit")
    assert config.memory_budget() == expected


def test_a_system_without_sysconf_gets_the_default_budget(monkeypatch):
    monkeypatch.delattr(config.os, "sysconf")
    assert config.memory_budget() == 8 << 30


# --- files that cannot be used


def test_a_missing_file_and_a_folder_are_named(folder):
    assert problems("none.toml") == ["none.toml: cannot be read: No such file or directory"]
    assert problems(str(folder)) == [f"{folder}: cannot be read: Is a directory"]
    assert problems("a\0b")[0].startswith("'a\\x00b': cannot be read: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_what_is_no_regular_file_is_not_waited_for(folder):
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/zero"):
        assert problems(path) == [f"{path}: not a regular file; a configuration is read from a file on disk"]


def test_a_file_named_by_the_environment_must_exist():
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read"):
        load(None, environ={"CRONOQ_CONFIG": "gone.toml"})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[server]\ngrpc_addr = \n", "c.toml:2:13: not valid TOML: Invalid value"),
        (b"a = 1\n\xff\n", "c.toml:2: not UTF-8: invalid start byte"),
        (b"a = 1\na = 2\n", "c.toml:2:6: not valid TOML: Cannot overwrite a value"),
        (b"a = " + b"[" * 100_000, "c.toml: nested too deeply"),
        (b" " * (MAX_CONFIG_FILE + 1), f"c.toml: larger than {MAX_CONFIG_FILE} bytes; this is no configuration file"),
    ],
)
def test_syntax_errors_have_file_line_and_column(folder, content, line):
    (folder / "c.toml").write_bytes(content)
    assert problems("c.toml") == [line]


def test_a_file_that_breaks_off_names_its_last_line(folder):
    (folder / "c.toml").write_text("a = 1\n[server")
    (line,) = problems("c.toml")
    assert line.startswith("c.toml:2: not valid TOML: ") and line.endswith(", but the file ends")


def test_an_integer_of_thousands_of_digits_is_no_crash(folder):
    (folder / "c.toml").write_text("a = " + "9" * 10_000)
    (line,) = problems("c.toml")
    assert line.startswith("c.toml: not valid TOML: ") and len(line) < 300


def test_integers_above_every_limit_are_told_the_limit(folder):
    (folder / "c.toml").write_text(f"[limits]\nmax_pending_total = {10**20}\nmax_tags = 0x{'f' * 5_000}\n")
    assert problems("c.toml") == [
        "c.toml:2: limits.max_pending_total: found 100000000000000000000; "
        "allowed is an integer from 1 to 1000000000000",
        "c.toml:3: limits.max_tags: found an integer of 20000 bits; allowed is an integer from 0 to 4294967295",
    ]


def test_a_byte_order_mark_is_ignored(folder):
    (folder / "c.toml").write_bytes(b"\xef\xbb\xbf" + pool("a").encode())
    assert load("c.toml", environ={}).settings.pools[0].name == "a"


def test_each_problem_names_the_line_that_causes_it(folder):
    (folder / "c.toml").write_text(
        "[server] # comment\n"
        "  shutdown_grace_s = -1\n"
        "\n"
        "[[pools]]\n"
        'name = "a"\n'
        "[[ pools ]]\n"
        'name = "b"\n'
        "lease_ttl_s = 0\n"
        "[pools.retry]\n"
        "max_attempts = 0\n"
        "[[pools]]\n"
        "max = 3\n"
        "[store]\n"
        'kind = "sqlite"\n'
    )
    assert [line.rpartition(": ")[0].split(": ")[0] + " " + line.split(": ")[1] for line in problems("c.toml")] == [
        "c.toml:2 server.shutdown_grace_s",
        "c.toml:8 pools[1].lease_ttl_s",
        "c.toml:10 pools[1].retry.max_attempts",
        "c.toml:11 pools[2].name",
        "c.toml:13 store.path",
    ]


def test_no_line_is_claimed_where_text_could_look_like_keys(folder):
    (folder / "c.toml").write_text('[server]\nx = """\nshutdown_grace_s = 1\n"""\nshutdown_grace_s = -1\n')
    assert all(line.startswith("c.toml: ") for line in problems("c.toml"))


def test_inline_tables_are_found_by_the_line_of_their_table(folder):
    (folder / "c.toml").write_text('pools = [{ name = "a", max = 0 }]\n')
    assert problems("c.toml") == ["c.toml:1: pools[0].max: found 0; allowed is an integer from 1 to 4294967295"]


# --- schedules

SCHEDULES = """\
[[resources]]
name = "licences"
kind = "semaphore"
permits = 2

[[recurring]]
name = "nightly"
cron = "0 0 31 2 *"
tz = "Europe/Atlantis"
tags = { "cronoq.x" = "1" }

[[recurring]]
name = "nightly"
cron = "*/5 * * * *"
pool = "mail"
key = "%s"

[recurring.resources]
licences = 3
gpu = 1

[[recurring]]
name = "hourly"
cron = "0 0 * * 8"
"""


def test_everything_that_would_stop_a_schedule_is_found_with_its_line(folder):
    (folder / "c.toml").write_text(SCHEDULES % ("k" * 236))
    found = [line.partition(" ")[::2] for line in problems("c.toml")]
    assert [(place, rest.partition(": ")[0]) for place, rest in found] == [
        ("c.toml:8:", "recurring[0].cron"),
        ("c.toml:9:", "recurring[0].tz"),
        ("c.toml:10:", 'recurring[0].tags."cronoq.x"'),
        ("c.toml:13:", "recurring[1].name"),
        ("c.toml:15:", "recurring[1].pool"),
        ("c.toml:16:", "recurring[1].key"),
        ("c.toml:19:", "recurring[1].resources.licences"),
        ("c.toml:20:", "recurring[1].resources.gpu"),
        ("c.toml:24:", "recurring[2].cron"),
    ]


def test_the_zones_are_those_that_schedules_run_on(folder):
    entry = '[[recurring]]\nname = "{}"\ncron = "30 2 * * *"\ntz = "{}"\n'
    zones = ("", "UTC", "Europe/Helsinki", "America/New_York", "Australia/Lord_Howe")
    (folder / "c.toml").write_text("".join(entry.format(f"s{zone}", zone) for zone in zones))
    assert [found.tz for found in load("c.toml", environ={}).settings.recurring] == list(zones)
    for zone in ("../UTC", "/etc/localtime", "europe/helsinki", "posixrules", "tzdata.zi", "Europe"):
        (folder / "c.toml").write_text(entry.format("s", zone))
        (line,) = problems("c.toml")
        assert line.startswith("c.toml:4: recurring[0].tz: ")


def test_a_schedule_of_the_file_belongs_to_the_file(folder):
    (folder / "c.toml").write_text('[[recurring]]\nname = "s"\ncron = "0 9 * * *"\npayload_json = \'{"a": 1}\'\n')
    (found,) = load("c.toml", environ={}).settings.recurring
    assert found.configured
    assert (found.template.payload, found.template.content_type) == (b'{"a": 1}', "application/json")
