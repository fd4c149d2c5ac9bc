"""Everything can be imported where Unix modules are missing: the client and the pure core run on Windows too."""

import subprocess
import sys

from tests.tidy.tree import SOURCE, module_of, python_files

UNIX_ONLY = ("fcntl", "resource", "pwd", "grp", "termios", "syslog", "pty")


def test_every_module_imports_without_unix(tmp_path):
    modules = [module_of(path) for path in python_files("src") if path.name != "__main__.py"]
    code = (
        "import importlib, os, signal, sys\n"
        # What third parties need of these they may keep: they know their platforms.
        "import trio, anyio, structlog, sqlite3, google.protobuf, h2.connection, cyclopts\n"
        f"for name in {UNIX_ONLY!r}: sys.modules[name] = None\n"
        "for name in ('sysconf', 'getuid', 'geteuid', 'O_CLOEXEC', 'fork'): vars(os).pop(name, None)\n"
        "for name in ('SIGHUP', 'SIGUSR1', 'SIGUSR2'): vars(signal).pop(name, None)\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
