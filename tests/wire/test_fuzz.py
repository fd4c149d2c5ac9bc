"""Fuzz targets in short: their kept inputs, some changed ones, and that a broken invariant is found and kept."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fuzz import engine

ROOT = Path(__file__).parents[2]
TARGETS = sorted(path.name for path in engine.CORPUS.iterdir())
HELPERS = {"bounds", "engine", "frames"}
TRIES = 200


def invariant(target: str) -> str:
    found = ast.get_docstring(ast.parse((ROOT / "fuzz" / f"{target}.py").read_text(encoding="utf-8")))
    assert found is not None
    return found.splitlines()[0]


def test_each_file_is_a_target_with_a_corpus() -> None:
    assert {path.stem for path in (ROOT / "fuzz").glob("*.py")} == {*TARGETS, *HELPERS}
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs/testing/index.md").read_text(), re.MULTILINE)
    assert rows == [(target, invariant(target)) for target in TARGETS]


@pytest.mark.parametrize("target", TARGETS)
def test_the_invariant_holds(target: str) -> None:
    module = importlib.import_module(f"fuzz.{target}")
    kept = engine.corpus(target)
    assert kept
    for data in kept:
        module.check(data)
    random = Random(target)
    mutate = getattr(module, "mutate", engine.change)
    for _ in range(TRIES):
        engine.attempt(module.check, mutate(random.choice(kept), random))


def test_what_breaks_an_invariant_is_found_and_told() -> None:
    def check(data: bytes) -> None:
        assert b"\x80" not in data

    with pytest.raises(engine.Failure) as found:
        engine.explore(check, [b"some bytes"], engine.change, 30.0, Random(1))
    assert b"\x80" in found.value.data


def test_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "fuzz" / "hpack_decode.py", "--seconds", "0.2", "--seed", "5"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"hpack_decode: \d+ inputs .* and [1-9]\d* others, no finding \(seed 5\)\n", done.stdout)
