"""Scenarios of the tests: short ways to write one and to run it."""

import tomllib

from cronoq_sansio.sim.scenario.load import load_scenario
from cronoq_sansio.sim.scenario.run import Run
from cronoq_sansio.sim.scenario.words import Scenario


def scenario(text, config=None):
    """The checked scenario."""
    found = load_scenario(text).with_config(None if config is None else tomllib.loads(config))
    assert isinstance(found, Scenario), [str(problem) for problem in found]
    return found


def problems(text, config=None):
    """Everything that is wrong, as sentences."""
    loaded = load_scenario(text)
    found = loaded if isinstance(loaded, tuple) else loaded.with_config(config and tomllib.loads(config))
    assert isinstance(found, tuple), "nothing is wrong"
    return [str(problem) for problem in found]


def ran(text, config=None):
    """A run that is over."""
    run = Run(scenario(text, config))
    run.run()
    assert not run.stopped
    return run


def waits(run, name):
    """The waits of an entry of `[[arrivals]]`, in the order of the starts, in seconds."""
    return [wait / 1e9 for wait in run.count.tallies[("arrivals", name)].waits]
