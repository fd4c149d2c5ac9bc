"""`__all__` is the public API: it names what exists, nothing public is missing, and each name has one home."""

import ast
import importlib

import pytest

from tests.tidy.tree import module_of, name_of, parsed, python_files


def exported(path):
    """The names in `__all__`, None without one."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and [target.id for target in node.targets if isinstance(target, ast.Name)] == [
            "__all__"
        ]:
            return ast.literal_eval(node.value)
    return None


def defined(path):
    """Public names that the module itself makes."""
    names = []
    for node in parsed(path).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


def imported(path):
    """Public names that a facade imports from our packages: at its top level, in a `try`, or for types when lazy."""
    body = parsed(path).body
    for node in list(body):
        for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if for_types or isinstance(node, ast.Try):
            body = body + node.body
    return [
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("cronoq")
        for alias in node.names
        if not alias.name.startswith("_")
    ]


#: Modules that give names of others a home for users.
FACADES = ("src/cronoq/client.py", "src/cronoq/testing.py", "src/cronoq/worker.py")
#: Reachable in a facade without being part of it.
ASIDE = {"src/cronoq/client.py": {"log"}}
PUBLIC = [path for path in python_files("src") if exported(path) is not None]


def is_public(path):
    return not any(part.startswith("_") for part in module_of(path).split("."))


@pytest.mark.parametrize("path", PUBLIC, ids=name_of)
def test_all_is_sorted_and_true(path):
    names = exported(path)
    by_kind = sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert names == by_kind and len(names) == len(set(names)), "constants, classes, then the rest, each by name"
    module = importlib.import_module(module_of(path))
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing


@pytest.mark.parametrize("path", PUBLIC, ids=name_of)
def test_nothing_public_is_left_out(path):
    is_facade = path.name == "__init__.py" or name_of(path) in FACADES
    public = set(defined(path)) - ASIDE.get(name_of(path), set()) | (set(imported(path)) if is_facade else set())
    public |= {"__version__"} & set(exported(path))
    assert set(exported(path)) == public


def test_every_public_module_of_the_runtime_has_one():
    without = [
        name_of(path)
        for path in python_files("src/cronoq")
        if is_public(path) and exported(path) is None and path.name != "__main__.py"
    ]
    assert not without


def test_each_public_name_has_one_home():
    homes = {}
    for path in PUBLIC:
        for name in set(exported(path)) & set(defined(path)):
            homes.setdefault(name, []).append(name_of(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_the_facade_of_the_core_is_its_table_of_contents():
    path = next(path for path in PUBLIC if module_of(path) == "cronoq_sansio")
    facade = importlib.import_module("cronoq_sansio")
    for name in exported(path):
        home = getattr(getattr(facade, name), "__module__", None)
        assert home is None or home.startswith("cronoq_sansio.") or home in ("typing", "types"), name
