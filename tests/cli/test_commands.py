"""The command line: exit codes, one sentence per error, never a traceback."""

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cronoq import __version__
from cronoq._cli import serving
from cronoq._cli.main import commands, main
from cronoq._stores.base import StoreUnusable
from cronoq._stores.sqlite_probe import probe

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRONOQ_CONFIG", raising=False)
    monkeypatch.delenv("CRONOQ_LOG", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    return tmp_path


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write(port, **store):
    Path("c.toml").write_text(
        f'[server]\ngrpc_addr = "127.0.0.1:{port}"\nhttp_addr = "127.0.0.1:0"\n'
        + ("[store]\n" + "".join(f'{key} = "{text}"\n' for key, text in store.items()) if store else "")
    )


# --- usage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--bogus"], "Error: Unknown option: --bogus. See `cronoq-trio --help`.\n"),
        (["serve", "extra"], "Error: Unexpected argument: extra. See `cronoq-trio --help`.\n"),
        (["check", "-c"], 'Error: Command "check" parameter -c requires an argument. See `cronoq-trio --help`.\n'),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_sentence(run, arguments, sentence):
    assert run(*arguments) == (2, "", sentence)


def test_an_unknown_command_is_answered_with_the_near_one(run):
    code, _, err = run("serv")
    assert code == 2 and 'Did you mean "serve"?' in err and err.count("\n") == 1


def test_no_command_shows_the_help_and_how_to_begin(run):
    code, out, err = run()
    assert code == 2 and "print-proto" in out
    assert err == "Error: no command; begin with `cronoq-trio serve`\n"


def test_every_command_has_help(run):
    for name in commands():
        code, out, err = run(*name.split(), "--help")
        assert (code, err) == (0, "") and name in out


def test_the_version_is_the_package_s(run):
    assert run("--version") == (0, f"cronoq-trio {__version__}\n", "")


def test_a_fault_of_the_program_is_a_sentence_and_a_traceback_only_on_request(monkeypatch, capsys):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("cronoq.config.load", broken)
    assert main(["check"]) == 1
    assert capsys.readouterr().err == (
        "Error: a fault of the program: ZeroDivisionError('oops'); CRONOQ_LOG=debug shows where\n"
    )
    monkeypatch.setenv("CRONOQ_LOG", "debug")
    assert main(["check"]) == 1
    assert "in broken" in capsys.readouterr().err


def test_an_interrupt_ends_without_a_traceback(monkeypatch, run):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("cronoq.config.load", interrupted)
    assert run("check") == (130, "", "")


# --- check


def test_check_says_valid(run):
    write(free_port())
    assert run("check", "--config", "c.toml") == (0, "valid\n", "")
    write(free_port(), kind="sqlite", path="x.db")
    assert run("check", "-c", "c.toml") == (0, "valid\n", "")
    assert not Path("x.db").exists()


def test_check_shows_every_error_of_the_file(run):
    Path("c.toml").write_text("[limits]\nmax_tags = -1\nmax_kind_len = 0\n[shards]\n")
    assert run("check", "-c", "c.toml") == (
        1,
        "",
        "Error: c.toml:2: limits.max_tags: found -1; allowed is an integer from 0 to 4294967295\n"
        "Error: c.toml:3: limits.max_kind_len: found 0; allowed is an integer from 1 to 4294967295\n"
        "Error: c.toml:4: shards: this table is not built in this version; leave it out\n",
    )


def test_check_applies_the_flags(run):
    Path("c.toml").write_text(
        '[server]\ngrpc_addr = "0.0.0.0:0"\nhttp_addr = "127.0.0.1:0"\n[store]\nkind = "sqlite"\npath = "no/x.db"\n'
    )
    assert run("check", "-c", "c.toml")[0] == 1
    code, out, err = run("check", "-c", "c.toml", "--memory", "--insecure-no-auth")
    assert (code, out) == (0, "valid\n") and err.startswith("Note: c.toml: no credentials are asked for")


def test_check_notes_schedules_that_start_together_and_do_not_all_fit(run):
    write(free_port())
    path = Path("c.toml")
    one = '[[recurring]]\nname = "s{}"\ncron = "0 0 * * *"\n'
    whole = path.read_text()
    path.write_text(whole + "".join(map(one.format, range(5))))
    assert run("check", "-c", "c.toml") == (0, "valid\n", "")
    path.write_text(whole + "".join(map(one.format, range(6))))
    code, out, err = run("check", "-c", "c.toml")
    assert (code, out) == (0, "valid\n") and err.count("\n") == 1
    assert err.startswith("Note: c.toml: pool 'default': 6 of the schedules need a slot around ")
    assert "T00:00:00Z, and 5 fit: " in err


def test_check_predicts_every_trouble_of_the_machine(run, folder, monkeypatch):
    monkeypatch.setenv("CRONOQ_LOG", "loud")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write(port, kind="sqlite", path="no/x.db")
        code, out, err = run("check", "-c", "c.toml")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "Error: c.toml: CRONOQ_LOG: 'loud' is not one of debug, info, warning, error, console, json",
        f"Error: c.toml: store.path: no/x.db: the folder {folder.resolve()}/no does not exist; create it,"
        " or set another store.path",
        f"Error: c.toml: server.grpc_addr: cannot listen on 127.0.0.1:{port}: another program listens there;"
        " stop it, or choose another server.grpc_addr",
    ]


def test_check_knows_foreign_and_damaged_files(run):
    connection = sqlite3.connect("foreign.db")
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    Path("damaged.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    for path, words in (
        ("foreign.db", "another program"),
        ("damaged.db", "not an SQLite database"),
        (".", "directory"),
    ):
        write(free_port(), kind="sqlite", path=path)
        code, out, err = run("check", "-c", "c.toml")
        assert (code, out) == (1, "") and words in err and err.count("\n") == 1


def test_check_knows_that_a_file_cannot_be_created(run):
    """To root every folder looks writable; only making a file there tells."""
    write(free_port(), kind="sqlite", path="/proc/x.db")
    code, out, err = run("check", "-c", "c.toml")
    assert (code, out) == (1, "") and err.startswith("Error: c.toml: store.path: /proc/x.db cannot be created: ")


def test_check_neither_makes_nor_changes_a_file(run):
    write(free_port(), kind="sqlite", path="x.db")
    Path("x.db").touch()
    assert run("check", "-c", "c.toml")[:2] == (0, "valid\n")
    assert Path("x.db").stat().st_size == 0
    assert sorted(path.name for path in Path().iterdir()) == ["c.toml", "x.db"]


def test_a_server_that_runs_on_the_file_is_taken_for_the_one_to_be_replaced(run, folder):
    fcntl = pytest.importorskip("fcntl")
    with socket.create_server(("127.0.0.1", 0)) as server, open("x.db.leader", "w") as lock:
        port = server.getsockname()[1]
        Path("x.db").touch()
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        write(port, kind="sqlite", path="x.db")
        code, out, err = run("check", "-c", "c.toml")
        assert (code, out) == (0, "valid\n")
        assert [line.split(": ")[:3] for line in err.splitlines()] == [
            ["Note", "c.toml", "store.path"],
            ["Note", "c.toml", "server.grpc_addr"],
        ]
        assert "pid 4711" in err
        write(port)
        assert run("check", "-c", "c.toml")[0] == 1, "with tasks in memory nothing says whose port it is"
    Path("x.db").unlink()


def test_a_folder_that_is_not_writable(folder):
    if os.geteuid() == 0:
        pytest.skip("everything is writable for root")
    (folder / "d").mkdir(mode=0o500)
    with pytest.raises(StoreUnusable, match="not writable for this user"):
        probe("d/x.db")


# --- serve


def test_serve_hands_over_settings_and_their_source(monkeypatch):
    import types

    seen = []
    fake = types.SimpleNamespace(run=lambda settings, *, config_source: seen.append((settings, config_source)) or 0)
    monkeypatch.setitem(sys.modules, "cronoq._runtime.serve", fake)
    assert serving.serve(memory=True) == 0
    ((settings, source),) = seen
    assert (settings.store.kind, source) == ("memory", "built-in")


def test_serve_with_a_broken_file_ends_with_1(run):
    Path("cronoq.toml").write_text("[server")
    code, out, err = run("serve")
    assert (code, out) == (1, "") and err.startswith("Error: cronoq.toml:1: not valid TOML: ")


# --- as a process


def test_the_version_loads_nothing_of_the_server():
    code = (
        "import sys; from cronoq._cli.main import main; code = main(['--version']);"
        "heavy = 'trio', 'h2', 'google.protobuf', 'structlog', 'sqlite3';"
        "print([name for name in heavy if name in sys.modules]);"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout == f"cronoq-trio {__version__}\n[]\n"


def test_a_reader_that_stops_early_sees_no_complaint():
    read, write_end = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cronoq", "print-proto"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="helper missing: /dev/full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cronoq", "print-proto"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


@pytest.mark.skipif(os.name != "posix", reason="shells of POSIX")
@pytest.mark.parametrize(("redirect", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_streams_that_are_closed_are_no_fault(redirect, code):
    command = f"{sys.executable} -m cronoq print-proto {redirect}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, "")
