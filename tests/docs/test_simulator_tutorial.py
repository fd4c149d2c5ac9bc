"""The tutorial of the simulator shows what its example prints. `--rewrite` writes what it prints now into the page."""

import re
import runpy

from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "testing" / "simulator-tutorial.md"
EXAMPLE = ROOT / "docs" / "examples" / "plant_a_bug.py"
SHOWN = re.compile(r"(?<=```text\n).*?(?=\n```)", re.DOTALL)


def test_the_tutorial_shows_what_its_example_prints(capsys, request):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.rstrip()
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--rewrite"):
        page = SHOWN.sub(lambda _: printed, page, count=1)
        PAGE.write_text(page, encoding="utf-8")
    shown = SHOWN.search(page)
    assert shown is not None and shown[0] == printed


def test_the_copied_rule_is_a_copy():
    """All but the line with the mistake, and what only watchers see, stands in the rule as it is."""
    rule = (ROOT / "src" / "cronoq_sansio" / "engine" / "lifecycle.py").read_text(encoding="utf-8")
    copy = EXAMPLE.read_text(encoding="utf-8").partition("def retry_or_bury")[2].partition("\n\n\n")[0]
    lines = [line.strip().replace("lifecycle.", "") for line in copy.splitlines()[2:]]
    assert [line for line in lines if line not in rule] == ["if task.attempt >= task.max_attempts + 1:"]
