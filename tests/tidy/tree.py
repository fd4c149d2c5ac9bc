"""The checkout as the tidy tests see it: which files there are, and what each module imports."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
GENERATED = ("src/cronoq/_proto/", "src/cronoq_sansio/wire/pb/")


@cache
def tracked():
    """Every file that belongs to the project: what git would commit; without git, everything outside hidden folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        top = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
        paths = [file for path in top for file in ([path] if path.is_file() else path.rglob("*"))]
        paths = [path for path in paths if "__pycache__" not in path.parts and "_build" not in path.parts]
    return sorted(path for path in paths if path.is_file())


def name_of(path):
    """The path below the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def generated(path):
    """True for files that tools write."""
    return name_of(path).startswith(GENERATED)


def python_files(*folders, with_generated=False):
    """The Python files below these folders of the root, all of them without an argument."""
    return [
        path
        for path in tracked()
        if path.suffix == ".py"
        and (not folders or name_of(path).startswith(tuple(f"{folder}/" for folder in folders)))
        and (with_generated or not generated(path))
    ]


@cache
def parsed(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_of(path):
    """`cronoq.config` for src/cronoq/config.py."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def only_for_types(tree):
    """The nodes inside `if TYPE_CHECKING:`."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }


def imports(path, *, for_types=True):
    """(line, module) for each import; `from package import module` counts as the module when there is one."""
    tree = parsed(path)
    left_out = set() if for_types else only_for_types(tree)
    found = []
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                place = SOURCE / inner.replace(".", "/")
                is_module = place.with_suffix(".py").exists() or (place / "__init__.py").exists()
                found.append((node.lineno, inner if is_module else node.module))
    return found
