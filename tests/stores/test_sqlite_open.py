"""What the SQLite store refuses to open: each with one sentence that names the file, the cause and the remedy."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from cronoq._stores import sqlite_files
from cronoq._stores.base import StoreUnavailable, StoreUnusable
from cronoq._stores.sqlite import SqliteStore
from cronoq._stores.sqlite_files import network_type
from cronoq._stores.sqlite_probe import probe
from cronoq._stores.sqlite_schema import APPLICATION_ID, CHECKED_BYTES, migrations, split_statements
from tests.stores.support import UNIX, commit, find, finished, inserted, loaded

SENTENCE = re.compile(r"^[^\n]{20,400}$")


def refusal(path):
    """The sentence with which `path` is refused."""

    async def body():
        store = SqliteStore(path, key_retention_max=10)
        try:
            await store.open()
            await store.claim(UNIX)
        finally:
            await store.close()

    with pytest.raises(StoreUnusable) as caught:
        anyio.run(body, backend="trio")
    sentence = str(caught.value)
    assert SENTENCE.match(sentence), sentence
    return sentence


def fill(path, count=3):
    """A database of ours with `count` tasks, closed."""

    async def body():
        store = SqliteStore(path, key_retention_max=10)
        await store.open()
        first = (await store.claim(UNIX)).first_task_id
        await commit(store, *(inserted(first + n, f"key-{n}", b"p" * 2_000) for n in range(count)))
        await store.close()
        return first

    return anyio.run(body, backend="trio")


def test_a_missing_folder(tmp_path):
    path = tmp_path / "nowhere" / "cronoq.db"
    assert refusal(path) == (
        f"{path}: the folder {tmp_path / 'nowhere'} does not exist; create it, or set another store.path"
    )


def test_a_directory(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path} is a directory; store.path must name a file"
    assert list(tmp_path.iterdir()) == []


def test_something_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == f"{tmp_path / 'pipe'} is not a regular file; store.path must name one"


def test_a_name_with_nul():
    assert refusal("a\0b") == r"'a\x00b' contains a NUL character; set another store.path"


def test_a_text_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)
    assert refusal(path) == (
        f"{path} is not an SQLite database, or its header is damaged; set another store.path, or restore a copy"
    )
    assert path.read_text() == "Dear diary, " * 100


def test_a_short_text_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    refusal(path)
    assert path.read_text() == "hello\n"


@pytest.mark.parametrize("statement", ["CREATE TABLE cronoq_tasks(id)", "PRAGMA user_version = 7"])
def test_the_database_of_another_program(tmp_path, statement):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    assert "is the database of another program (application id 0, " in refusal(path)
    assert path.read_bytes() == before


def test_a_foreign_application_id(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 77")
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    assert refusal(path) == (
        f"{path} is the database of another program (application id 77, 1 tables); set another store.path"
    )


def test_a_newer_version(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    latest = migrations()[-1][0]
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {latest + 1}")
    connection.close()
    assert refusal(path) == (
        f"{path} was written by a newer version of cronoq-trio (schema {latest + 1}, this one knows {latest}); "
        "upgrade, or restore a copy made before the upgrade"
    )


def test_a_table_that_is_gone(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE cronoq_trio_states")
    connection.close()
    assert refusal(path) == (
        f"{path} is damaged (it lacks the table cronoq_trio_states); restore a copy, or set another store.path"
    )


def test_a_truncated_file(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    os.truncate(path, path.stat().st_size // 2)
    assert f"{path} is damaged (" in refusal(path)


def test_garbage_in_the_middle(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path, 50)
    with path.open("r+b") as file:
        for page in range(3, path.stat().st_size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    assert f"{path} is damaged (" in refusal(path)


def test_a_large_damaged_file_is_found_out_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("cronoq._stores.sqlite_schema.CHECKED_BYTES", 0)
    assert CHECKED_BYTES > 0
    path = tmp_path / "cronoq.db"
    fill(path, 500)
    with path.open("r+b") as file:
        for page in range(30, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)

    async def body():
        store = SqliteStore(path, key_retention_max=10)
        await store.open()
        try:
            await store.claim(UNIX)
            await loaded(store)
        finally:
            await store.close()

    with pytest.raises(Exception, match="the database is damaged; stop the server and restore a copy") as caught:
        anyio.run(body, backend="trio")
    assert not isinstance(caught.value, StoreUnavailable)


def test_a_second_hard_link(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    os.link(path, tmp_path / "backup.db")
    assert f"{path} has 2 hard links, and SQLite damages" in refusal(path)
    os.unlink(tmp_path / "backup.db")
    fill(path)


def test_a_folder_where_nothing_can_be_created():
    assert refusal("/proc/cronoq.db") == (
        "/proc/cronoq.db cannot be created: the file system of /proc takes no new files; use a local disk, or set "
        "another store.path"
    )


def test_a_name_that_is_too_long_for_the_files_beside_it(tmp_path):
    assert (
        "…: the name of the file has 248 bytes, and SQLite, which appends to it, takes at most 247 there; "
        in refusal(tmp_path / ("é" * 124))
    )
    fill(tmp_path / ("é" * 123 + "x"))


@pytest.mark.parametrize("name", ["/proc/x.db", "x" * 300, "d/" + "x" * 250, "d/e/x.db", "d", "pipe", "notes.txt"])
def test_the_probe_says_what_an_open_says_and_leaves_nothing(tmp_path, name):
    (tmp_path / "d").mkdir()
    (tmp_path / "notes.txt").write_text("Dear diary, " * 100)
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreUnusable) as caught:
        probe(str(tmp_path / name))
    assert sorted(tmp_path.rglob("*")) == before
    assert str(caught.value) == refusal(tmp_path / name)


def test_a_path_that_is_too_long_for_sqlite(tmp_path):
    folder = tmp_path
    while len(str(folder)) < 400:
        folder = folder / ("d" * 49)
    folder.mkdir(parents=True)
    fill(folder / ("x" * (503 - len(str(folder)))))
    assert "the path of the file has 505 bytes, and SQLite, which appends to it, takes at most 504 there; " in refusal(
        folder / ("x" * (504 - len(str(folder))))
    )


UNPRIVILEGED = """
import os, sys, anyio
from cronoq._stores.sqlite import SqliteStore
from cronoq._stores.base import StoreUnusable
async def body(path):
    store = SqliteStore(path, key_retention_max=10)
    try:
        await store.open()
        await store.claim(1)
    except StoreUnusable as error:
        print(error)
    finally:
        await store.close()
anyio.run(body, sys.argv[1])  # everything that is imported late is imported now
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
anyio.run(body, sys.argv[2])
"""


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "words"),
    [
        (0o444, 0o777, "cannot be opened for writing (permission denied); make the file and its folder writable"),
        (0o666, 0o555, "is not writable for this user, and SQLite keeps its log beside the file; make it writable"),
    ],
)
def test_a_place_that_is_not_writable(tmp_path, file_mode, folder_mode, words):
    with tempfile.TemporaryDirectory(prefix="cronoq-readonly-") as name:
        folder = Path(name)
        path = folder / "cronoq.db"
        fill(path)
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        try:
            run = subprocess.run(
                [sys.executable, "-c", UNPRIVILEGED, str(tmp_path / "good.db"), str(path)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            folder.chmod(0o700)
    assert run.stderr == ""
    assert run.stdout.startswith(f"{path}")
    assert words in run.stdout


def test_a_network_file_system(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_files, "_mounts", lambda: f"server:/x {tmp_path} nfs4 rw 0 0\n")
    path = tmp_path / "cronoq.db"
    assert refusal(path) == (
        f"{path} lies on a network file system (nfs4), where SQLite's locks do not hold; "
        "set a store.path on a local disk"
    )
    assert not path.exists()


MOUNTS = """\
/dev/root / ext4 rw 0 0
server:/home /home nfs rw 0 0
/dev/sdb /home/local xfs rw 0 0
a@b:/c /mnt/with\\040space fuse.sshfs rw 0 0
tmpfs /over tmpfs rw 0 0
//host/share /over cifs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", ""),
        ("/var/lib", ""),
        ("/home", "nfs"),
        ("/home/me", "nfs"),
        ("/homestead", ""),
        ("/home/local", ""),
        ("/home/local/x", ""),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/over/x", "cifs"),
    ],
)
def test_the_mount_that_holds_a_folder(folder, kind):
    assert network_type(folder, MOUNTS) == kind


def test_a_platform_without_file_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert "this platform has no file locks (flock), which the SQLite store needs" in refusal(tmp_path / "cronoq.db")


def test_the_modules_import_without_fcntl_and_without_trio():
    code = (
        "import sys; sys.modules['fcntl'] = None; import cronoq._stores.sqlite, cronoq._stores.memory; "
        "print('trio' in sys.modules, 'asyncio' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split()[0] == "False"


# --- what is opened


def test_files_are_for_their_owner_alone(tmp_path):
    old = os.umask(0)
    try:
        path = tmp_path / "cronoq.db"
        path.touch(0o666)

        async def body():
            store = SqliteStore(path, key_retention_max=10)
            await store.open()
            first = (await store.claim(UNIX)).first_task_id
            await commit(store, inserted(first))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
            await store.close()
            return modes

        modes = anyio.run(body, backend="trio")
        fresh = tmp_path / "fresh.db"
        fill(fresh)
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o600
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(["cronoq.db", "cronoq.db-shm", "cronoq.db-wal", "cronoq.db.leader"], 0o600)


def test_a_clean_close_leaves_one_database_file(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cronoq.db", "cronoq.db.leader"]
    assert (tmp_path / "cronoq.db.leader").read_bytes() == b""
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT epoch, holder, pid FROM cronoq_trio_leader").fetchall() == [(1, "", 0)]
    connection.close()


def test_strange_names_work(tmp_path):
    path = tmp_path / "a b?c#d%20é'.db"
    first = fill(path)

    async def body():
        store = SqliteStore(path, key_retention_max=10)
        await store.open()
        answer = await find(store, first)
        await store.close()
        return answer

    assert anyio.run(body, backend="trio") is not None
    assert path.exists()


def test_the_header_names_the_program_and_the_schema(tmp_path):
    path = tmp_path / "cronoq.db"
    fill(path)
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert header[68:72] == b"CQTr"
    assert int.from_bytes(header[60:64], "big") == migrations()[-1][0]


def test_migrations_are_numbered_without_a_gap():
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))
    for _, text in migrations():
        assert all(sqlite3.complete_statement(part) for part in split_statements(text))


def test_an_older_file_is_migrated_with_its_tasks(tmp_path, monkeypatch):
    path = tmp_path / "cronoq.db"
    first = fill(path)
    path.chmod(0o640)
    added = (
        len(migrations()) + 1,
        "-- a comment\nCREATE TABLE cronoq_trio_more (id);\nINSERT INTO cronoq_trio_more VALUES (';');\n",
    )
    longer = (*migrations(), added)
    for module in ("sqlite", "sqlite_schema"):
        monkeypatch.setattr(f"cronoq._stores.{module}.migrations", lambda: longer)

    async def body():
        store = SqliteStore(path, key_retention_max=10)
        await store.open()
        assert (await store.claim(UNIX)).epoch == 2
        await commit(store, finished(first))
        records = await loaded(store)
        await store.close()
        return records

    assert len(anyio.run(body, backend="trio")) == 3
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (added[0],)
    assert connection.execute("SELECT * FROM cronoq_trio_more").fetchall() == [(";",)]
    connection.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640  # whoever chose it keeps it


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "cronoq.db"
    fill(path)
    number = len(migrations()) + 1
    broken = (*migrations(), (number, "CREATE TABLE cronoq_trio_more (id);\nCREATE TABLE cronoq_trio_tasks (id);\n"))
    for module in ("sqlite", "sqlite_schema"):
        monkeypatch.setattr(f"cronoq._stores.{module}.migrations", lambda: broken)
    refusal(path)
    monkeypatch.undo()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (number - 1,)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE '%more%'").fetchone() == (0,)
    connection.close()
    fill(path)  # the lock is free again


def test_a_file_whose_lock_is_held_at_open_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr("cronoq._stores.sqlite_schema.BUSY_TIMEOUT_MS", 20)
    path = tmp_path / "cronoq.db"
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    store = SqliteStore(path, key_retention_max=10)
    with pytest.raises(StoreUnavailable, match="another process holds the lock"):
        anyio.run(store.open, backend="trio")
    other.execute("ROLLBACK")
    other.close()
    fill(path)
