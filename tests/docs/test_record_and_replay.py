"""The page about recordings: what a replay prints, its exit codes, and the code for programs of one's own."""

import re

import pytest

from cronoq_sansio.engine.cron import TZDATA_VERSION
from cronoq_sansio.recording import replay
from cronoq_sansio.sim import __main__ as command
from tests.docs.test_docs import blocks
from tests.recording.recorded import Term
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "howto" / "record-and-replay.md"


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """A recording by the name that the page gives it, in the folder where its commands run."""
    monkeypatch.chdir(tmp_path)
    term = Term()
    term.submit()
    term.commit()
    text = "".join(term.end(why="the server was stopped"))
    (tmp_path / "term.jsonl").write_text(text.replace('"2026.1"', f'"{TZDATA_VERSION}"'))


def bare(text):
    return re.sub(r"[0-9a-f]{64}|\d+", "0", text)


def test_a_replay_prints_what_the_page_shows(recording, capsys):
    (shown,) = [text for _, text in blocks(PAGE, "text") if text.startswith("same after")]
    assert command.main(["--replay", "term.jsonl"]) == 0
    assert bare(capsys.readouterr().out) == bare(shown)


def test_the_code_of_the_page_does_the_same(recording, capsys):
    (code,) = [text for _, text in blocks(PAGE, "python")]
    exec(compile(code, "<page>", "exec"), {})
    assert capsys.readouterr().out.startswith("same after 2 steps with 2 events, line 7\n")


def test_every_exit_code_is_in_the_table():
    table = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(replay.EXIT_CODES.values())) == sorted(map(int, table))
