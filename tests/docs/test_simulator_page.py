"""The page of the simulator shows what its commands print, but for numbers. `--rewrite` writes what they print now."""

import re
import shlex

import pytest

from cronoq_sansio.sim import __main__ as command
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "testing" / "simulator.md"
SHOWN = re.compile(
    r"```console\n\$ (?P<command>python -m cronoq_sansio\.sim [^\n]*)\n```\n\n```text\n(?P<text>.*?)```", re.DOTALL
)
COMMANDS = [found["command"] for found in SHOWN.finditer(PAGE.read_text(encoding="utf-8"))]
WIDTH = 120
"""Characters of a line on the page."""
TRANSCRIPT = re.compile(r"(what happened.*:\n)((?:    .*\n)+)")
LINES = re.compile(r" +(\+\d+ [a-z]|\d+ +[<>] |!! |… [\d,]+ lines before)")
"""How a line of a transcript begins."""


def cut(text):
    return "".join(f"{line[: WIDTH - 1]}…\n" if len(line) > WIDTH else f"{line}\n" for line in text.splitlines())


def bare(text):
    """Without numbers, and what else depends on every rule of the program."""
    text = re.sub(r"refused \(.*?\)", "refused (…)", text, flags=re.DOTALL)
    text = re.sub(r"\d+ of \d+(; not .*)?$", "0 of 0", text, flags=re.MULTILINE)
    text = re.sub(r"hash [0-9a-f]{16}", "hash 0", text)
    text = re.sub(r"(\n  [A-Z]\w+\().*", r"\1", text)
    text = TRANSCRIPT.sub(r"\1", text)
    text = re.sub(r"\b(step|kind|seed|process|line)(es|s)?\b", r"\1", text)
    return re.sub(r" *\d[\d,.:]*", " 0", text)


def test_the_page_shows_commands():
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("shown", COMMANDS)
def test_a_command_prints_what_the_page_shows(shown, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "cpus", lambda: 2)
    assert command.main([*shlex.split(shown)[3:], "--quiet"]) == 0
    printed = cut(capsys.readouterr().out)
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--rewrite"):
        page = SHOWN.sub(
            lambda found: found[0].replace(found["text"], printed) if found["command"] == shown else found[0], page
        )
        PAGE.write_text(page, encoding="utf-8")
    (text,) = [found["text"] for found in SHOWN.finditer(page) if found["command"] == shown]
    assert bare(text) == bare(printed)
    for found in (text, printed):
        lines = [line for _, part in TRANSCRIPT.findall(found) for line in part.splitlines()]
        assert bool(lines) is ("what happened" in found) and all(map(LINES.match, lines))
