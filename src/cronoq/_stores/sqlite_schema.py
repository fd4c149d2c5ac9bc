"""Opening the SQLite file: whose it is, which version, migrations; connections, and what their errors mean.

`application_id` says that a file is ours, `user_version` is the number of the last migration that ran on it. Migrations
are the files `sql/sqlite/NNNN_name.sql`; those that are missing run at open, in one transaction.
"""

import sqlite3
from functools import cache
from importlib.resources import files
from pathlib import Path

from cronoq._stores.base import StoreError, StoreUnavailable, StoreUnusable
from cronoq._stores.sqlite_files import DatabaseFile

APPLICATION_ID = 0x43515472
"""`CQTr`, in the header of the file; `file(1)` and SQLite's tools show it."""

BUSY_TIMEOUT_MS = 1_000
"""How long a statement waits for another process's lock before the batch is reported as unavailable."""

CHECKPOINT_PAGES = 4_000
"""Pages of the log that are copied into the file at once: 16 MiB, so that a busy server does it every few seconds."""

KEPT_LOG_BYTES = 64 << 20
"""A log that grew beyond this, under a long copy for example, is cut back."""

CACHE_KIB = 64 << 10
"""Pages that the writer keeps in memory; the upper levels of every index stay there."""

CHECKED_BYTES = 32 << 20
"""A file up to this size is checked whole when it is opened (tens of milliseconds); a larger one when it is read."""

TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)

WORDS = {
    sqlite3.SQLITE_BUSY: "another process holds the lock of the database",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed",
    sqlite3.SQLITE_CORRUPT: "the database is damaged; stop the server and restore a copy",
    sqlite3.SQLITE_NOTADB: "the database is damaged; stop the server and restore a copy",
    sqlite3.SQLITE_READONLY: "the database is not writable any more",
}


@cache
def statement(name: str) -> str:
    """The text of `sql/sqlite/<name>.sql`."""
    return (files(__package__) / "sql" / "sqlite" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Number and text of every migration, in order: 1, 2, … without a gap."""
    folder = files(__package__) / "sql" / "sqlite"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[:4].isdigit())
    return tuple((int(name[:4]), statement(name.removesuffix(".sql"))) for name in names)


def connect(file: DatabaseFile, *, readonly: bool = False) -> sqlite3.Connection:
    """Open a connection to a file that exists; usable from any one thread at a time."""
    uri = f"{Path(file.path).as_uri()}?mode={'ro' if readonly else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def open_writer(file: DatabaseFile) -> sqlite3.Connection:
    """A connection whose COMMIT returns when the transaction survives a power loss."""
    connection = connect(file)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnusable(
                f"{file.given}: its file system cannot hold a write-ahead log; set a store.path on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the disk's cache
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {KEPT_LOG_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def inspect(connection: sqlite3.Connection, file: DatabaseFile) -> int:
    """The number of migrations that ran on this file, 0 for an empty one. Changes nothing. Raises `StoreUnusable`."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute(statement("list_tables"))}
    if application != APPLICATION_ID:
        if application == 0 and version == 0 and not tables:
            return 0
        raise StoreUnusable(
            f"{file.given} is the database of another program (application id {application}, {len(tables)} tables); "
            "set another store.path"
        )
    latest = migrations()[-1][0]
    if version > latest:
        raise StoreUnusable(
            f"{file.given} was written by a newer version of cronoq-trio (schema {version}, this one knows {latest}); "
            "upgrade, or restore a copy made before the upgrade"
        )
    if version == latest and not tables >= TABLES:
        raise damaged(file, f"it lacks the table {min(TABLES - tables)}")
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if pages * size <= CHECKED_BYTES:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise damaged(file, " ".join(str(verdict).split()))
    return version


NAMES = ("edges", "fired", "leader", "live", "outputs", "recurring", "states", "tasks")
TABLES = frozenset(f"cronoq_trio_{name}" for name in NAMES)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Run the migrations above `version` in one transaction: the file is old or new, whatever happens."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, text in migrations():
            if number > version:
                for part in split_statements(text):
                    connection.execute(part)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def split_statements(text: str) -> list[str]:
    """Cut a script into its statements (`executescript` would commit the open transaction)."""
    parts: list[str] = []
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            parts.append(pending.strip())
            pending = ""
    return parts


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; `SQLITE_ERROR` for errors of the sqlite3 module itself."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def store_error(error: sqlite3.Error, file: DatabaseFile) -> StoreError:
    """What an error of SQLite means for a batch or a query."""
    code = primary_code(error)
    kind = StoreUnavailable if code in TRANSIENT else StoreError
    words = WORDS.get(code)
    return kind(f"{file.given}: {words} ({error})" if words else f"{file.given}: {error}")


def open_error(error: sqlite3.Error, file: DatabaseFile) -> StoreError:
    """What an error of SQLite means while the file is opened."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnusable(
            f"{file.given} is not an SQLite database, or its header is damaged; "
            "set another store.path, or restore a copy"
        )
    if code == sqlite3.SQLITE_READONLY:
        return StoreUnusable(f"{file.given} is read-only for this user; make the file and its folder writable")
    if code in TRANSIENT:
        return store_error(error, file)
    return damaged(file, str(error))


def damaged(file: DatabaseFile, reason: str) -> StoreUnusable:
    """A file that is ours and cannot be trusted."""
    return StoreUnusable(f"{file.given} is damaged ({reason}); restore a copy, or set another store.path")
