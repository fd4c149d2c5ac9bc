"""The file of the SQLite store and its neighbours: what may be opened, and who leads on it.

Every refusal is one sentence that names the file, the cause and the remedy.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable

from cronoq._stores.base import StoreHeld, StoreUnusable

FILE_MODE = 0o600
"""Payloads, outputs and keys are the callers' secrets. SQLite gives `-wal` and `-shm` the mode of the file."""

LONGEST_SUFFIX = len("-journal")
"""Bytes of the longest name that SQLite appends to the file's; it opens that one even where it needs none."""

MAX_PATH = 512 - LONGEST_SUFFIX
"""Bytes of a path that SQLite takes (its `MAX_PATHNAME`)."""

MAX_SHOWN = 80
"""Characters of a path that is too long which a message repeats."""

# fmt: off
NETWORK_TYPES = frozenset((
    "9p", "afs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb", "smb2", "smb3", "smbfs",
))
# fmt: on
"""File systems on which another host may write too: SQLite's locks and its shared memory do not reach that far."""


class DatabaseFile:
    """The file behind `path`, symbolic links resolved, so that one file has one name and one lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given = os.fspath(path)
        self.path = ""
        """Set by `prepare`."""
        self._identity: tuple[int, int] | None = None

    def locate(self) -> str:
        """Resolve the name and check the place; returns the folder. Changes nothing. Raises `StoreUnusable`."""
        _locking(self)
        try:
            self.path = os.path.realpath(self.given)
        except ValueError:
            raise StoreUnusable(f"{self.given!r} contains a NUL character; set another store.path") from None
        folder, name = os.path.split(self.path)
        if not os.path.isdir(folder):
            raise StoreUnusable(
                f"{self.given}: the folder {folder} does not exist; create it, or set another store.path"
            )
        self._check_length("name", len(os.fsencode(name)), _longest_name(folder) - LONGEST_SUFFIX)
        self._check_length("path", len(os.fsencode(self.path)), MAX_PATH)
        network = network_type(folder, _mounts())
        if network:
            raise StoreUnusable(
                f"{self.given} lies on a network file system ({network}), where SQLite's locks do not hold; "
                "set a store.path on a local disk"
            )
        return folder

    def prepare(self) -> None:
        """Check the place and create the file when it is missing. Raises `StoreUnusable`."""
        folder = self.locate()
        self._create(folder)
        try:
            found = os.stat(self.path)
            if stat.S_ISREG(found.st_mode):
                os.close(os.open(self.path, os.O_RDWR))
        except OSError as error:
            raise StoreUnusable(
                f"{self.given} cannot be opened for writing ({_reason(error)}); "
                "make the file and its folder writable for this user, or set another store.path"
            ) from None
        if not stat.S_ISREG(found.st_mode):
            raise StoreUnusable(f"{self.given} is not a regular file; store.path must name one")
        if found.st_nlink > 1:
            raise StoreUnusable(
                f"{self.given} has {found.st_nlink} hard links, and SQLite damages a file that is opened under two "
                "names; delete the others, or copy the file"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreUnusable(
                f"{self.given}: the folder {folder} is not writable for this user, and SQLite keeps its log beside the "
                "file; make it writable, or set another store.path"
            )
        self._identity = (found.st_dev, found.st_ino)

    def rehearse(self, folder: str) -> None:
        """Make a file in the folder that is gone at once. Raises `StoreUnusable` where `prepare` could not make one."""
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise self._uncreatable(folder, error) from None

    def _create(self, folder: str) -> None:
        """Create the file if it is missing, readable for its owner alone, and make its name survive a power loss."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            os.close(os.open(self.path, flags, FILE_MODE))
        except FileExistsError:
            if os.path.isdir(self.path):
                raise StoreUnusable(f"{self.given} is a directory; store.path must name a file") from None
            return
        except OSError as error:
            raise self._uncreatable(folder, error) from None
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _uncreatable(self, folder: str, error: OSError) -> StoreUnusable:
        if error.errno in (errno.EACCES, errno.EPERM):
            cause = f"the folder {folder} is not writable for this user; make it writable"
        elif error.errno == errno.ENOENT:  # the folder is there: /proc and its like answer so
            cause = f"the file system of {folder} takes no new files; use a local disk"
        else:
            cause = f"{_reason(error)} in {folder}; make room or repair that"
        return StoreUnusable(f"{self.given} cannot be created: {cause}, or set another store.path")

    def _check_length(self, what: str, length: int, most: int) -> None:
        if length > most:
            shown = self.given if len(self.given) <= MAX_SHOWN else f"{self.given[: MAX_SHOWN - 1]}…"
            raise StoreUnusable(
                f"{shown}: the {what} of the file has {length} bytes, and SQLite, which appends to it, takes at most "
                f"{most} there; set a shorter store.path"
            )

    def restrict(self) -> None:
        """Take everybody else's access to a file that is about to be filled: `touch` makes one that all can read."""
        os.chmod(self.path, FILE_MODE)

    def unmoved(self) -> bool:
        """True while the name still leads to the file that was opened; writes to a file that is gone are lost."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity


class LeaderLock:
    """An exclusive `flock` on `<path>.leader`, which holds the pid of its owner. The kernel frees it when that dies.

    The file is never deleted by us, because a lock on a deleted file excludes nobody. When somebody else deletes it,
    whoever holds the lock on the file that lies there now leads: the next `acquire` notices and tries for that one.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """True between `acquire` and `release`."""
        return self._descriptor >= 0

    def acquire(self) -> None:
        """Take the lock, or raise `StoreHeld` naming the process that has it. No-op while it is held in its place."""
        while not (self.held and self._in_place()):
            self._drop()
            self._take()

    def _in_place(self) -> bool:
        """True while the file that is locked is the one that the next server would try to lock."""
        mine = os.fstat(self._descriptor)
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def _take(self) -> None:
        flock, how = _locking(self._file)
        path = self._path
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            raise StoreUnusable(f"{path} cannot be opened ({_reason(error)}); make it writable for this user") from None
        try:
            flock(descriptor, how)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).strip().decode("ascii", "replace")
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                who = f"the server with pid {holder}" if holder.isdigit() else "another server"
                raise StoreHeld(
                    f"{self._file.given} is in use by {who}; stop that one first, or set another store.path"
                ) from None
            raise StoreUnusable(
                f"{path} cannot be locked ({_reason(error)}); set a store.path on a local disk"
            ) from None
        self._descriptor = descriptor
        self._say(b"%d\n" % os.getpid())

    def release(self) -> None:
        """Free the lock. Idempotent."""
        if self.held:
            self._say(b"")
            self._drop()

    @property
    def _path(self) -> str:
        return self._file.path + ".leader"

    def _drop(self) -> None:
        if self.held:
            os.close(self._descriptor)
            self._descriptor = -1

    def _say(self, owner: bytes) -> None:
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner, 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only its owner has no name


def _locking(file: DatabaseFile) -> tuple[Callable[[int, int], None], int]:
    """`flock` and its flags; imported late, because the embedded scheduler is imported on Windows too."""
    try:
        import fcntl
    except ImportError:
        raise StoreUnusable(
            f"{file.given}: this platform has no file locks (flock), which the SQLite store needs; use the memory store"
        ) from None
    return fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB


def network_type(folder: str, mounts: str) -> str:
    """The type of the network file system that holds `folder` (resolved), or ''. `mounts` is as /proc/self/mounts."""
    best, found = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        below = folder == point or folder.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):  # of two mounts on one point the later one is on top
            best, found = point, fields[2]
    return found if found in NETWORK_TYPES else ""


def _unescape(field: str) -> str:
    """Undo the octal escapes of proc(5): space, tab, newline, backslash."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, character)
    return field


def _mounts() -> str:
    """The mount table where there is one (Linux); elsewhere network file systems are not detected."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
            return table.read()
    except OSError:
        return ""


def _longest_name(folder: str) -> int:
    """Bytes of the longest name that the file system of `folder` holds."""
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):  # not on every platform, and not on every file system
        return 255


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
