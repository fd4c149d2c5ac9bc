"""Examples that bring their own server print what their pages show, and pages configure what their examples use."""

import re
import runpy
import shlex
import tomllib

import pytest

from cronoq._cli.main import main as command_line
from tests.docs.test_docs import blocks
from tests.tidy.tree import ROOT

HOW_TO = ROOT / "docs" / "howto"
EXAMPLES = ROOT / "docs" / "examples"

PAGES = {
    "overload": "overload",
    "priorities-and-deadlines": "priorities",
    "labels": "labels",
    "resources": "resources",
    "tenants": "tenants",
    "fixed-starts": "fixed_start",
    "recurring": "recurring",
    "autoscaling": "autoscaling",
}
"""Page → its example."""


@pytest.mark.parametrize(("page", "example"), PAGES.items())
def test_the_example_prints_what_its_page_shows(page, example, capsys):
    path = HOW_TO / f"{page}.md"
    assert f"{{literalinclude}} ../examples/{example}.py" in path.read_text(encoding="utf-8")
    runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    printed = [line for line in capsys.readouterr().out.splitlines() if not is_log(line)]
    assert printed == blocks(path, "text")[-1][1].splitlines()


def test_the_previews_are_real(capsys):
    shown = [text for _, text in blocks(HOW_TO / "recurring.md", "console") if text.startswith("$ ")]
    assert shown
    for text in shown:
        command, _, printed = text.partition("\n")
        assert command_line(shlex.split(command)[2:]) == 0
        table, _, rules = capsys.readouterr().out.partition("\n\n")
        assert f"{table}\n" == printed and "tzdata" in rules


def is_log(line):
    """A line of the server's log: it begins with the time."""
    return re.match(r"(\x1b\[\d+m)?\d{4}-\d\d-\d\d ", line) is not None


@pytest.mark.parametrize(
    ("page", "table", "name"),
    [
        ("overload", "pools", "POOLS"),
        ("resources", "resources", "RESOURCES"),
        ("tenants", "pools", "POOLS"),
        ("fixed-starts", "pools", "POOLS"),
        ("autoscaling", "pools", "POOLS"),
    ],
)
def test_the_example_uses_what_the_page_configures(page, table, name):
    ((_, toml),) = blocks(HOW_TO / f"{page}.md", "toml")
    example = runpy.run_path(str(EXAMPLES / f"{PAGES[page]}.py"))
    assert tomllib.loads(toml)[table] == example[name]
