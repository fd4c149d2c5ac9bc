"""The scenarios of the how-to: their reports are what the page shows, and they are what the reference describes."""

import tomllib

import pytest

from cronoq_sansio.sim.scenario.load import load_scenario
from cronoq_sansio.sim.scenario.run import run_scenario
from cronoq_sansio.sim.scenario.words import Scenario
from tests.docs.test_docs import blocks
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "howto" / "try-a-configuration.md"
SCENARIOS = ROOT / "docs" / "examples" / "scenarios"
SHOWN = ("evening", "fleet", "spring")
"""In the order of the page."""


def checked(name):
    path = SCENARIOS / f"{name}.toml"
    loaded = load_scenario(path.read_text(encoding="utf-8"))
    scenario = loaded.with_config(tomllib.loads((path.parent / loaded.config).read_text(encoding="utf-8")))
    assert isinstance(scenario, Scenario), scenario
    return scenario


@pytest.mark.parametrize(("index", "name"), list(enumerate(SHOWN)), ids=SHOWN)
def test_the_report_is_the_one_that_is_shown(index, name):
    assert f"{{literalinclude}} ../examples/scenarios/{name}.toml" in PAGE.read_text(encoding="utf-8")
    assert run_scenario(checked(name)).text(100) == blocks(PAGE, "text")[index][1]


def test_every_example_is_shown_or_tried_by_one_that_is():
    configurations = {load_scenario((SCENARIOS / f"{name}.toml").read_text()).config for name in SHOWN}
    assert {path.name for path in SCENARIOS.iterdir()} == {f"{name}.toml" for name in SHOWN} | configurations
