"""The page about the simulator: its code runs, and does what it says."""

import re
import runpy
import sys

import pytest
from hypothesis import settings

from tests.docs.test_docs import blocks
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "testing" / "simulator.md"
EXAMPLES = ROOT / "docs" / "examples"


def python_of(words):
    (text,) = [text for _, text in blocks(PAGE, "python") if words in text]
    return text


def test_the_run_from_python(capsys):
    exec(compile(python_of("raise_for_failure()\nprint"), "<page>", "exec"), {})
    assert re.fullmatch(r"3 450 \{.*\} [0-9a-f]{16}\n", capsys.readouterr().out)


def test_the_outbox_of_somebody_else_is_right_and_the_hasty_one_is_found(capsys):
    runpy.run_path(str(EXAMPLES / "own_outbox.py"), run_name="__main__")
    right, hasty = capsys.readouterr().out.splitlines()
    assert right == "OwnOutbox: 8 seeds, nothing was broken"
    assert re.fullmatch(r"HastyOutbox: SAFETY in seed \d: .*not durable", hasty)


@pytest.fixture
def page_test(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    names = {}
    exec(compile(python_of("@given"), "<page>", "exec"), names)
    yield settings(max_examples=5)(names["test_nothing_is_said_too_early"]), names
    sys.modules.pop("own_outbox")


def test_the_property_test_of_the_page(page_test):
    test, _ = page_test
    test()


def test_the_property_test_of_the_page_can_fail(page_test):
    test, names = page_test
    names["OwnOutbox"] = sys.modules["own_outbox"].HastyOutbox
    with pytest.raises(AssertionError, match="not durable"):
        test()
