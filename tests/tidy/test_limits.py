"""Every fixed limit has its reason beside it, and is used."""

import ast
import re

import pytest

from tests.tidy.tree import SOURCE, parsed, python_files

LIMITS = SOURCE / "cronoq_sansio" / "limits.py"
NAMES = [node.targets[0].id for node in parsed(LIMITS).body if isinstance(node, ast.Assign)]


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_has_a_reason(name):
    (line,) = [line for line in LIMITS.read_text(encoding="utf-8").splitlines() if line.startswith(f"{name} = ")]
    _, found, reason = line.partition("#: ")
    assert found and len(reason) >= 4, f"{name} has no reason after `#:`"


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_is_used(name):
    word = re.compile(rf"\b{name}\b")
    users = [path for path in python_files("src") if path != LIMITS and word.search(path.read_text(encoding="utf-8"))]
    assert users, f"nothing in src uses {name}"
