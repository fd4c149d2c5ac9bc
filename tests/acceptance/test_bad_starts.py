"""A start that cannot succeed: one sentence on stderr that says what and what to do, exit code 1, no traceback."""

import os
import socket
import sqlite3
import subprocess
import sys

import pytest

from tests.acceptance.clients import connect
from tests.acceptance.server import START_BOUND, Server, environment, run_cli

UNPRIVILEGED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for capability in range(64):  # PR_CAPBSET_DROP: after the exec not even root has any
    libc.prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "cronoq", *sys.argv[1:]])
"""


def write_config(folder, path="tasks.db", port=0):
    config = folder / "cronoq.toml"
    config.write_text(
        f'[server]\ngrpc_addr = "127.0.0.1:{port}"\nhttp_addr = "127.0.0.1:0"\n'
        f'[store]\nkind = "sqlite"\npath = "{path}"\n'
    )
    return config


def fails(folder, *words, run=run_cli, config=None):
    """The start fails in the promised form, and its sentence holds all the words."""
    done = run("serve", "--config", str(config or folder / "cronoq.toml"), folder=folder)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "Traceback" not in done.stdout
    assert "ready" not in done.stdout
    for word in words:
        assert str(word) in line
    return line


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write_config(tmp_path, port=port)
        fails(tmp_path, f"127.0.0.1:{port}", "grpc_addr")
    assert not (tmp_path / "tasks.db").exists()


def test_a_folder_that_is_missing(tmp_path):
    write_config(tmp_path, path=tmp_path / "not" / "here" / "tasks.db")
    fails(tmp_path, tmp_path / "not" / "here", "does not exist")


def run_unprivileged(*arguments, folder):
    return subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=START_BOUND,
    )


@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root may write everywhere")
def test_what_is_not_writable(tmp_path, what):
    folder = tmp_path / "locked"
    folder.mkdir()
    path = folder / "tasks.db"
    if what == "folder":
        folder.chmod(0o555)
    else:
        path.touch()
        path.chmod(0o444)
    write_config(tmp_path, path=path)
    run = run_unprivileged if os.geteuid() == 0 else run_cli
    try:
        fails(tmp_path, path, "writable", run=run)
    finally:
        folder.chmod(0o755)


def test_a_folder_instead_of_a_file(tmp_path):
    (tmp_path / "tasks.db").mkdir()
    write_config(tmp_path)
    fails(tmp_path, "tasks.db", "directory")


def foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()


def other_application(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 4711")
    connection.close()


def text(path):
    path.write_text("This is a letter and not a database.\n" * 50)


@pytest.mark.parametrize(
    ("make", "word"), [(foreign, "another program"), (other_application, "another program"), (text, "not an SQLite")]
)
def test_a_file_of_somebody_else_is_left_alone(tmp_path, make, word):
    path = tmp_path / "tasks.db"
    make(path)
    before = path.read_bytes()
    write_config(tmp_path)
    fails(tmp_path, "tasks.db", word)
    assert path.read_bytes() == before


@pytest.fixture
def used(tmp_path):
    """The folder of a server that has run: its database holds tasks and is closed."""
    with Server(tmp_path, "sqlite") as server:
        with connect(server.address) as client:
            for number in range(50):
                client.submit(key=f"k{number}", payload=bytes(2_000))
        assert server.stop() == 0
    return tmp_path


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def scribble(path):
    """Overwrite pages in the middle."""
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xa5" * 20_000)


def behead(path):
    with path.open("r+b") as file:
        file.write(b"\xa5" * 100)


@pytest.mark.parametrize("damage", [cut, scribble, behead])
def test_a_damaged_file(used, damage):
    damage(used / "tasks.db")
    fails(used, "tasks.db", "damaged", "restore")


def test_a_file_of_a_newer_version(used):
    with sqlite3.connect(used / "tasks.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    fails(used, "tasks.db", "newer", "999")


def test_a_second_server_on_the_same_file_names_the_first(start, tmp_path):
    server = start("sqlite")
    write_config(tmp_path, path=server.database)
    fails(tmp_path, server.database, f"pid {server.pid}")
    link = tmp_path / "link.db"
    link.symlink_to(server.database)
    write_config(tmp_path, path=link)
    fails(tmp_path, link, f"pid {server.pid}")
    with connect(server.address) as client:
        assert client.submit().id


def test_the_file_can_be_used_at_once_when_the_first_was_killed(start, tmp_path):
    server = start("sqlite")
    with connect(server.address) as client:
        client.submit(key="left")
    server.kill()
    server.start()
    with connect(server.address) as client:
        assert client.submit(key="left").duplicate


def test_a_configuration_with_several_mistakes_names_them_all(tmp_path):
    config = tmp_path / "cronoq.toml"
    config.write_text('[server]\ngrpc_adr = "127.0.0.1:0"\nshutdown_grace_s = -1\n[pools]\n')
    done = run_cli("serve", "--config", str(config), folder=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith(f"Error: {config}") for line in lines)
    assert "Traceback" not in done.stderr + done.stdout


def test_an_address_beyond_loopback_needs_a_word(tmp_path):
    config = tmp_path / "cronoq.toml"
    config.write_text('[server]\ngrpc_addr = "0.0.0.0:0"\n')
    line = fails(tmp_path, "insecure_no_auth", "0.0.0.0:0")
    assert str(config) in line


def test_check_predicts_the_start(used, tmp_path):
    config = write_config(used)
    assert run_cli("check", "--config", str(config), folder=used).stdout == "valid\n"
    write_config(used, path=used / "missing" / "tasks.db")
    done = run_cli("check", "--config", str(config), folder=used)
    assert (done.returncode, done.stdout) == (1, "")
    assert "missing" in done.stderr
