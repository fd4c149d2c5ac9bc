"""The page about the command line: its worker runs, and its lines do what it says."""

import shlex
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.realtime
def test_the_lines_about_tasks_run_as_they_stand(cli):
    text = (DOCS / "howto" / "command-line.md").read_text(encoding="utf-8")
    lines = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("cronoq-trio ")]
    (worker,) = [line for line in lines if line[0] == "worker"]
    shutil.copy(DOCS / "examples" / "greetings.py", cli.folder)
    with cli.start(*worker) as running:
        running.until(lambda it: "ready: worker" in it.err)
        schedules = [line for line in lines if line[0] == "recurring" or "tea" in line or "party" in line]
        planned = [cli(*line) for line in schedules]
        lines = [line for line in lines if line[0] in ("submit", "get", "wait", "cancel") and line not in schedules]
        first, second, get, wait, cancel = (cli(*line) for line in lines[:5])
        asking = [cli(*line) for line in lines[5:]]
        assert running.interrupt().code == 0
    assert [done.code for done in (first, second, get, wait, cancel)] == [0] * 5
    assert first.out.split("\n")[1] == '"hello you, hello you"'
    assert f"id: {second.out}" in get.out
    assert (wait.out, cancel.out) == ("3", "already finished\n")
    assert [(done.code, done.err) for done in planned] == [(0, "")] * 5
    assert "nightly" in planned[3].out and planned[4].out == "removed\n"
    assert [done.code for done in asking] == [3] * 4, "the tasks and resources that they name are not there"
    for done, missing in zip(asking, ("12345", "greeting-1", "gpu", "2031"), strict=True):
        assert done.err.startswith("Error: not_found: ") and missing in done.err
