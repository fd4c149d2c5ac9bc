"""Whether the SQLite store would open on a path, asked without opening it for work: nothing stays or is migrated."""

import os
import sqlite3

from cronoq._stores.sqlite_files import DatabaseFile, LeaderLock
from cronoq._stores.sqlite_schema import connect, inspect, open_error


def probe(path: str) -> None:
    """Raise the `StoreError` that an open and a claim would raise now; `StoreHeld`: only another server prevents it.

    A log that a killed server left beside the file is copied into it, as every reader of such a file does.
    """
    file = DatabaseFile(path)
    folder = file.locate()
    if not os.path.lexists(file.path):
        file.rehearse(folder)
        return
    file.prepare()
    try:
        connection = connect(file)
        try:
            inspect(connection, file)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise open_error(error, file) from error
    if os.path.exists(file.path + ".leader"):  # without it nobody has ever led here
        lock = LeaderLock(file)
        lock.acquire()
        lock.release()
