"""The small parts: text for people, the sample configuration, completion, options before the command, imports."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cronoq._cli.failures import explain
from cronoq._cli.main import commands, main
from cronoq._cli.printing import Table, age, moment, pairs, span
from cronoq._cli.sample import sample
from cronoq.config import load
from cronoq.errors import ClientError
from cronoq_sansio.clock import SECOND
from cronoq_sansio.inert import escape
from cronoq_sansio.settings_keys import Kind
from cronoq_sansio.settings_table import INNER_TABLES, TABLES

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Grüße, 世界 🙂", "Grüße, 世界 🙂"),
        ("a\nb\tc", "a\\u{a}b\\u{9}c"),
        ("\x1b]0;title\x07\x7f\x9b", "\\u{1b}]0;title\\u{7}\\u{7f}\\u{9b}"),
        ("\u202eevil\u2069\u200f\u061c", "\\u{202e}evil\\u{2069}\\u{200f}\\u{61c}"),
        ("\u2028\ud800", "\\u{2028}\\u{d800}"),
    ],
)
def test_what_could_act_on_a_terminal_is_escaped(text, shown):
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s ago"),
        (5, "5s ago"),
        (119, "1m ago"),
        (7_200, "2h ago"),
        (3 * 86_400 + 5, "3d ago"),
        (-7_200, "in 2h"),
        (-0.5, "in 1s"),
    ],
)
def test_ages(seconds, shown):
    now = 1_000_000 * SECOND
    assert age(int(now - seconds * SECOND), now) == shown


def test_times_are_utc_to_the_second():
    assert moment(1_700_000_000 * SECOND + 999_999_999) == "2023-11-14T22:13:20Z"
    assert moment(None) == "-"
    assert moment(2**63 - 1) == "2262-04-11T23:47:16Z"


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0ms"), (0.0123, "12.3ms"), (1.5, "1.5s"), (7_200, "2h")])
def test_measured_times(seconds, shown):
    assert span(seconds) == shown


def test_labels():
    assert pairs({"b": "2", "a": "\x1b"}) == "a=\\u{1b},b=2"
    assert pairs({}) == "-"


def test_a_table_in_parts_has_one_heading(capsys):
    table = Table(("ID", "N"), right=("N",))
    table.add(1, 20)
    table.flush()
    table.add("longer", 3)
    table.flush()
    assert capsys.readouterr().out == "ID   N\n1   20\nlonger   3\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("unavailable", 4),
        ("not_found", 3),
        ("unauthenticated", 3),
        ("permission_denied", 3),
        ("resource_exhausted", 3),
        ("unimplemented", 3),
        ("data_loss", 3),
        ("internal", 3),
    ],
)
def test_exit_codes_of_failed_calls(code, exit_code):
    failure = explain(ClientError(code, "why"))
    assert failure.code == exit_code and str(failure).startswith(f"{code}: why")
    assert str(explain(ClientError(code))) != f"{code}: "


# --- init


def test_init_writes_a_file_that_serves_as_no_file_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRONOQ_CONFIG", raising=False)
    built_in = load(None).settings
    assert main(["init"]) == 0
    assert capsys.readouterr().out == "wrote cronoq.toml; start the server with `cronoq-trio serve`\n"
    loaded = load(None)
    assert (loaded.source, loaded.settings) == ("cronoq.toml", built_in)


def test_init_never_overwrites(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    assert main(["init", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err and path.read_text() == "mine"
    assert main(["init", str(tmp_path / "no" / "x.toml")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_sample_names_every_key():
    text = sample()
    for table in (*TABLES, *INNER_TABLES):
        for key in table.keys:
            if key.kind is Kind.NUMBERS:
                assert f"\n# [{table.name}.{key.name}]\n" in text
            elif "table" not in key.kind.value:
                assert re.search(rf"^(# )?{key.name} = ", text, re.MULTILINE), f"{table.name}.{key.name}"
    assert max(map(len, text.splitlines())) <= 120


def test_the_defaults_of_the_sample_are_the_defaults(tmp_path, monkeypatch):
    monkeypatch.setattr("cronoq.config.memory_budget", lambda: 1 << 30)
    text = sample()
    body, _, _ = text.partition("\n# What tasks of all pools share")
    body, _, _ = body.partition("\n# How many tasks of each class")
    examples = r"\[server\.tls\]|cert = .*|key = .*|http_addr = .*"
    examples += r"|await_unknown_dependencies_s = .*|\[pools\.tenant_weights\]|acme = 3"
    without = re.sub(rf"^# ({examples})$", "", body, flags=re.MULTILINE)
    everything = re.sub(r"^# (\[|\w+ = )", r"\1", without, flags=re.MULTILINE)
    assert len(tomllib.loads(everything)["limits"]) > 10
    plain, full = tmp_path / "plain.toml", tmp_path / "full.toml"
    plain.write_text(text)
    full.write_text(everything)
    assert load(str(full)).settings == load(str(plain)).settings


# --- completion, options before the command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in commands():
        assert name.split()[-1] in script


def test_options_of_the_connection_may_stand_before_the_command(capsys, monkeypatch):
    monkeypatch.delenv("CRONOQ_SERVER", raising=False)
    assert main(["--server", "localhost", "--json", "get", "1"]) == 2
    assert "--server: target 'localhost'" in capsys.readouterr().err
    assert main(["--server=localhost", "snapshot"]) == 2
    assert "--server: target 'localhost'" in capsys.readouterr().err


# --- what is imported


@pytest.mark.parametrize(
    ("arguments", "code", "absent"),
    [
        (["--version"], 0, ["trio", "anyio", "asyncio", "google.protobuf", "h2", "sqlite3"]),
        (["get", "x"], 2, ["trio", "anyio", "google.protobuf", "rich.console", "structlog"]),
        (["get", "1"], 4, ["trio", "grpc", "cronoq._runtime", "cronoq_sansio.engine.engine", "sqlite3", "structlog"]),
    ],
)
def test_commands_load_no_more_than_they_need(arguments, code, absent):
    program = (
        "import sys; from cronoq._cli.main import main; code = main(sys.argv[2:]);"
        "print('LOADED', [name for name in sys.argv[1].split(',') if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(absent), *arguments],
        env={"PYTHONPATH": str(SOURCE), "CRONOQ_SERVER": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "LOADED []"), done.stderr
