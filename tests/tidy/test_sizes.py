"""Files fit in the head and functions on a screen."""

import ast

import pytest

from tests.tidy.tree import name_of, parsed, python_files

MAX_FILE = 600
MAX_FUNCTION = 60


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_lengths(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE
    long = [
        f"{node.name}: {length(node)} lines"
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and length(node) > MAX_FUNCTION
    ]
    assert not long


def length(function):
    """Lines from `def` to the end; decorators are not counted, they hold the tables of tests."""
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_every_module_says_what_it_is(path):
    if path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(parsed(path)), f"{path} has no docstring"
    else:
        assert path.name == "__init__.py" and name_of(path).startswith("tests/")
