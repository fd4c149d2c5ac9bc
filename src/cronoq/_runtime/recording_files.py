"""The files that recordings are written to, one per term, and the thread that writes them.

The loop never waits for a disk: it appends lines to a queue, and a thread of each file writes what has gathered every
`limits.RECORDING_PAUSE`. Files are made anew and never written over: NAME, then NAME with `.2`, `.3`, … before its
suffix, whichever is free next. Only their owner may read them.
"""

import os
import threading
from collections import deque

from cronoq._observe.logs import get_logger
from cronoq.errors import StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import seconds

log = get_logger("recording")

FILE_MODE = 0o600
"""Keys, kinds, tags and messages of tasks are their callers' business."""
PORTION = 1 << 20
"""Bytes of one write."""


class RecordingFile:
    """One file, open for writing. Everything but `close` is called by the loop, and waits for nothing."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.size = 0
        """Bytes, of which some may still wait."""
        self.trouble = ""
        """Why nothing is written any more; empty while all is well."""
        self._descriptor = descriptor
        self._written = 0
        self._lines: deque[str] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Bytes that the disk has not taken yet."""
        return self.size - self._written

    def add(self, line: str) -> None:
        """Write a line, of ASCII characters, soon."""
        self._lines.append(line)
        self.size += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what waits, and close the file. This may take as long as the disk does."""
        self._closing.set()
        self._wake.set()
        if self._thread is None:
            os.close(self._descriptor)
        else:
            self._thread.join()

    def _run(self) -> None:
        pause = seconds(limits.RECORDING_PAUSE)
        last = False
        while not last:
            self._wake.wait()
            self._closing.wait(pause)
            self._wake.clear()
            last = self._closing.is_set()  # not before: whoever closes after this wakes the thread once more
            try:
                self._write()
            except OSError as error:
                self.trouble = self.trouble or (error.strerror or type(error).__name__)
            if not self.trouble and not self.in_place():
                self.trouble = "its file was deleted, moved or replaced"
            if self.trouble:
                self._lines.clear()
        os.close(self._descriptor)

    def in_place(self) -> bool:
        """Whether the name still leads to the file that is open; what is written to one that was deleted is lost."""
        mine = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return mine.st_nlink > 0 and (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def _write(self) -> None:
        lines = self._lines
        while lines and not self.trouble:
            portion, size = [], 0
            while lines and size < PORTION:
                portion.append(lines.popleft())
                size += len(portion[-1])
            rest = memoryview("".join(portion).encode("ascii"))
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            self._written += size


class Recordings:
    """The files of one process, under one name."""

    def __init__(self, path: str, limit: int, store: str = "") -> None:
        """Make the first file; `limit`: bytes of each. Raises `StartError` when it cannot be made.

        `store`: path of the store's file, if it has one. SQLite makes files beside it when it is opened, and would take
        one that is there already for its own.
        """
        self.limit = limit
        self._path = path
        self._number = 1
        self._store = os.path.realpath(store) if store else ""
        if os.path.exists(path) and not os.path.isfile(path):
            raise StartError(f"--record {path}: it is there and is no file; name a file that is to be made")
        try:
            if self._is_of_store(path):
                raise StartError(
                    f"--record {path}: the store {store} may have a file of that name; name one that begins otherwise"
                )
            self._ready: RecordingFile | None = self._make()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StartError(
                f"--record {path}: the file cannot be made: {reason}; name one in a folder where this user may"
            ) from error
        if self._ready is None:
            raise StartError(f"--record {path}: {self._all_taken()}")

    def next(self) -> RecordingFile | None:
        """The file of the next term; None, which the log explains, when there is none."""
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        try:
            made = self._make()
        except OSError as error:
            log.warning("this term is not recorded", file=self._path, cause=error.strerror)
            return None
        if made is None:
            log.warning("this term is not recorded", file=self._path, cause=self._all_taken())
        return made

    def discard(self) -> None:
        """No term comes any more: remove a file that was made and not used."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ours = ready.in_place()
            ready.close()
            if ours:
                os.unlink(ready.path)

    def _make(self) -> RecordingFile | None:
        root, suffix = os.path.splitext(self._path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        while self._number <= limits.MAX_RECORDING_FILES:
            path = self._path if self._number == 1 else f"{root}.{self._number}{suffix}"
            self._number += 1
            if self._is_of_store(path):
                continue
            try:
                return RecordingFile(path, os.open(path, flags, FILE_MODE))
            except FileExistsError:
                continue
        return None

    def _is_of_store(self, path: str) -> bool:
        """The store's file, or one that may be beside it: `-wal`, `-shm`, `-journal`, `.leader`, or a copy."""
        if not self._store:
            return False
        folder, name = os.path.split(os.path.abspath(path))
        real = os.path.join(os.path.realpath(folder), name)
        return any(
            found == self._store or found.startswith((f"{self._store}-", f"{self._store}."))
            for found in (
                real,
                os.path.realpath(path),
            )
        )

    def _all_taken(self) -> str:
        return f"there are {limits.MAX_RECORDING_FILES} files of that name already; remove some, or name another"
