"""The pure core: no I/O, no clock, no randomness of its own, no order that depends on hashing. Proven over the AST."""

import ast

import pytest

from tests.tidy.tree import imports, name_of, parsed, python_files

ALL_FILES = python_files("src/cronoq_sansio")
#: Modules of the standard library that neither do I/O nor know the time. Anything else must be argued for here.
PURE_STDLIB = (
    *(
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "difflib",
        "fractions",
    ),
    *("enum", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools", "json", "math", "operator", "random"),
    *("re", "string", "struct", "sys", "tomllib", "types", "typing", "zlib"),
)
#: The facade imports what it names when somebody asks for it.
LAZY = "src/cronoq_sansio/__init__.py"
#: The rules of time zones are data that comes as a package: one module reads them, through importlib.resources.
ZONES = ("src/cronoq_sansio/engine/cron.py", ("croniter", "importlib", "tzdata", "zoneinfo"))
#: The command of the simulator: the one module that has files, processes, clocks and a terminal. Nobody imports it.
IO = "src/cronoq_sansio/sim/__main__.py"
FORBIDDEN_CALLS = ("open", "print", "input", "exec", "eval", "hash", "breakpoint", "__import__", "compile")
FORBIDDEN_ATTRIBUTES = ("now", "utcnow", "today", "fromtimestamp")  # of datetime and date
SETS = ("set", "frozenset")
FILES = [path for path in ALL_FILES if name_of(path) != IO]
ORDERED_BY = ("list", "tuple", "iter", "enumerate", "deque", "zip", "map", "reversed", "dict")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_are_pure(path):
    for line, module in imports(path):
        top = module.partition(".")[0]
        third = top in ("cronoq_sansio", "google", "h2", "hpack", "hyperframe")  # test_layers says who may have which
        lazy = top == "importlib" and name_of(path) == LAZY
        zones = name_of(path) == ZONES[0] and top in ZONES[1]
        assert third or lazy or zones or top in PURE_STDLIB, f"{path}:{line}: {module} is not pure"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_impure_is_called(path):
    assert impure_calls(parsed(path)) == []


@pytest.mark.parametrize("path", python_files("src"), ids=name_of)
def test_nobody_imports_the_module_with_io(path):
    assert "cronoq_sansio.sim.__main__" not in [module for _, module in imports(path)]


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_no_order_depends_on_hashing(path):
    assert hashed_orders(parsed(path)) == []


def impure_calls(tree):
    found = []
    has_random = any(isinstance(node, ast.Import) and node.names[0].name == "random" for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            found += [(node.lineno, f"random.{alias.name}") for alias in node.names if alias.name != "Random"]
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
            found.append((node.lineno, called.id))
        if isinstance(called, ast.Name) and called.id == "Random" and not node.args:
            found.append((node.lineno, "Random without a seed"))
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            owner = called.value.id
            if owner == "random" and has_random and (called.attr != "Random" or not node.args):
                found.append((node.lineno, f"random.{called.attr}"))
            if owner in ("datetime", "date") and called.attr in FORBIDDEN_ATTRIBUTES:
                found.append((node.lineno, f"{owner}.{called.attr}"))
    return found


def hashed_orders(tree):
    """Where the members of a set come out one after another: loops, comprehensions, `list(s)`, `s.pop()`, `*s`."""
    names = set_names(tree)

    def is_set(node):
        if isinstance(node, (ast.Set, ast.SetComp)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in SETS
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
            return is_set(node.left) or is_set(node.right)
        return name(node) in names

    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and is_set(node.iter):
            found.append((node.iter.lineno, "iterates over a set"))
        elif isinstance(node, ast.Starred) and is_set(node.value):
            found.append((node.lineno, "unpacks a set"))
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in ORDERED_BY and any(is_set(value) for value in node.args):
                found.append((node.lineno, f"{called.id}() of a set"))
            if isinstance(called, ast.Attribute) and called.attr in ("pop", "join", "extend"):
                if called.attr == "pop" and is_set(called.value) and not node.args:
                    found.append((node.lineno, "pop() from a set"))
                if called.attr != "pop" and any(is_set(value) for value in node.args):
                    found.append((node.lineno, f"{called.attr}() of a set"))
    return found


def name(node):
    """`x` and `self.x`, the two forms under which a set is remembered."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f".{node.attr}"
    return None


def set_names(tree):
    """Names and attributes that are annotated as a set, or assigned one, anywhere in the module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _annotated(node.annotation):
            found.add(name(node.target))
        elif isinstance(node, ast.arg) and node.annotation is not None and _annotated(node.annotation):
            found.add(node.arg)
        elif isinstance(node, ast.Assign) and (
            isinstance(node.value, (ast.Set, ast.SetComp))
            or (isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) in SETS)
        ):
            found.update(name(target) for target in node.targets)
    return found - {None}


def _annotated(annotation):
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(base, ast.Name) and base.id in (*SETS, "Set", "AbstractSet")


@pytest.mark.parametrize(
    "code",
    [
        "print(1)",
        "open('x')",
        "hash('x')",
        "import random\nrandom.random()",
        "import random\nrandom.Random()",
        "from random import Random\nRandom()",
        "from random import randint",
        "datetime.now()",
    ],
)
def test_impure_calls_are_seen(code):
    assert impure_calls(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
        "s: set[int] = f()\nlist(s)",
        "self.s = set()\nfor x in self.s: pass",
        "def f(s: frozenset[str]): return tuple(s)",
        "s = {1}\ns.pop()",
        "s = {1}\nprint(*s)",
        "for x in a | {1}: pass",
        "', '.join({'a'})",
    ],
)
def test_hashed_orders_are_seen(code):
    assert hashed_orders(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["for x in sorted({1}): pass", "s = {1}\nlen(s), 1 in s", "d = {}\nfor x in d: pass\nd.pop(1)"]
)
def test_orders_that_are_fixed_pass(code):
    assert not hashed_orders(ast.parse(code))
