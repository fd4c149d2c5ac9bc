"""Each transcript in `tests/scenarios` still says what happens. `pytest --rewrite` writes down what happens now."""

from pathlib import Path

import pytest

from tests.service.transcript import replay

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript(path, request):
    text = path.read_text(encoding="utf-8")
    now = replay(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now, encoding="utf-8")
        return
    assert now == text


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript_says_what_it_is_about(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# "), "prose comes first"
    commands = [line for line in lines if line.startswith("> ")]
    printed = [line for line in lines if line and line[0] not in "#>"]
    assert commands and printed


def test_there_is_one_transcript_per_protocol_rule():
    names = {path.stem for path in SCENARIOS}
    assert {f"rule_{number:02}" for number in range(1, 11)} <= {name[:7] for name in names}


def test_the_language_refuses_what_it_does_not_know():
    with pytest.raises(AssertionError, match="unknown command"):
        replay("> dance w1\n")
    with pytest.raises(AssertionError, match="not a duration"):
        replay("> advance soon\n")


def test_a_replay_corrects_wrong_output():
    text = replay("# prose\n\n> submit a\nnonsense\n")
    assert text == "# prose\n\n> submit a\nstep 1 writes: task 1 inserted\n"
