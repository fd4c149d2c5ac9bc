"""The state hash: what it sees, what it leaves out, and that no field of the engine was forgotten."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import (
    AttemptFailed,
    AttemptSucceeded,
    GroupCapacitySet,
    LeasesReleased,
    RecurringPut,
    TaskCancelled,
    TaskSubmitted,
    TimerFired,
)
from cronoq_sansio.recording import state_fields
from cronoq_sansio.recording.digests import Digested, digest_of
from cronoq_sansio.recording.state_hash import state_hash
from cronoq_sansio.service.service import Service
from cronoq_sansio.settings import PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Dependency, RecurringSpec, Scheduling, TaskSpec

ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000 * SECOND
SPEC = TaskSpec(b"payload", "", "", "default", 2, "", None, None, (), 40)
SETTINGS = Settings(
    pools=(PoolSettings(), PoolSettings("fair", fair_share=True, await_unknown_dependencies=60 * SECOND)),
    resources=(
        ResourceSettings("db", "semaphore", permits=2),
        ResourceSettings("api", "token_bucket", rate=0.5, burst=3),
    ),
)


def busy(seed: int = 7) -> Engine:
    """An engine with something of everything."""
    engine = Engine.fresh(SETTINGS, now=NOW, seed=seed)
    engine.handle([GroupCapacitySet("default", (), 3), GroupCapacitySet("fair", (("os", "linux"),), 1)], NOW)
    asked = Scheduling(resources=(("api", 1), ("db", 1)))
    specs = [
        *(replace(SPEC, key=f"k{index}", scheduling=asked) for index in range(3)),
        replace(SPEC, pool="fair", scheduling=Scheduling(tenant="acme", deadline=NOW + 60 * SECOND)),
        replace(SPEC, pool="fair", scheduling=Scheduling(dependencies=(Dependency("later", 1),))),
        replace(SPEC, scheduling=Scheduling(start=NOW + 3_600 * SECOND)),
    ]
    engine.handle([TaskSubmitted(index, spec) for index, spec in enumerate(specs)], NOW + SECOND)
    engine.handle([LeasesReleased((1, 2))], NOW + SECOND)
    engine.handle([AttemptSucceeded(1, b"", ""), AttemptFailed(2, "no", False, 0)], NOW + 2 * SECOND)
    return engine


CHANGES = {
    "a task": [TaskSubmitted(9, SPEC)],
    "an end": [TaskCancelled(9, 3)],
    "a slot": [GroupCapacitySet("default", (("os", "mac"),), 1)],
    "a schedule": [RecurringPut(9, RecurringSpec("nightly", "0 3 * * *", "", SPEC))],
    "a payload": [TaskSubmitted(9, replace(SPEC, payload=b"PAYLOAD"))],
    "another key": [TaskSubmitted(9, replace(SPEC, key="a"))],
}


def test_equal_engines_have_equal_hashes() -> None:
    assert state_hash(busy()) == state_hash(busy())
    assert state_hash(busy(), counters=False) == state_hash(busy(), counters=False)


@pytest.mark.parametrize("counters", [True, False])
def test_each_change_is_seen_and_told_from_the_others(counters: bool) -> None:
    hashes = {"nothing": state_hash(busy(), counters=counters), "a seed": state_hash(busy(8), counters=counters)}
    for name, events in CHANGES.items():
        engine = busy()
        engine.handle(events, NOW + 2 * SECOND)
        hashes[name] = state_hash(engine, counters=counters)
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize("report", [AttemptSucceeded(1, b"x", ""), AttemptFailed(1, "x", True, 0)])
def test_a_stale_report_changes_nothing_but_what_is_counted(report: object) -> None:
    engine = busy()
    before, light = state_hash(engine), state_hash(engine, counters=False)
    engine.handle([report], NOW + 7 * SECOND)  # type: ignore[list-item]
    assert state_hash(engine, counters=False) == light
    assert state_hash(engine) != before


def test_looking_changes_nothing() -> None:
    engine = busy()
    before = state_hash(engine)
    engine.next_timeout()
    engine.snapshot(engine.now)
    engine.list_recurring()
    assert state_hash(engine) == before


def test_checks_change_nothing_also_when_figures_are_due() -> None:
    """As after a recovery that took seconds: nothing was handled since."""
    engine = Engine.recover(SETTINGS, first_task_id=1, first_lease_id=1, seed=7, now=NOW, wall_offset=0)
    while engine.settle(NOW):
        pass
    engine.begin(NOW + 60 * SECOND)
    service = Service(engine, SETTINGS, NOW + 60 * SECOND)
    before = state_hash(engine)
    service.check_invariants()
    assert state_hash(engine) == before


def test_a_timer_that_acts_is_seen() -> None:
    engine = busy()
    before = state_hash(engine, counters=False)
    engine.handle([TimerFired()], NOW + 120 * SECOND)
    assert state_hash(engine, counters=False) != before


def test_length_and_digest_of_a_payload_are_all_that_counts() -> None:
    left_out = replace(SPEC, payload=Digested(len(SPEC.payload), digest_of(SPEC.payload)))
    hashes = []
    for spec in (SPEC, left_out):
        engine = Engine.fresh(SETTINGS, now=NOW)
        engine.handle([TaskSubmitted(1, spec)], NOW)
        hashes.append(state_hash(engine))
    assert hashes[0] == hashes[1]


def test_it_is_the_same_in_another_process() -> None:
    code = "from tests.recording.test_state_hash import busy, state_hash; print(state_hash(busy()))"
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "5"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environ
    )
    assert done.stdout.strip() == state_hash(busy())


KINDS = {*state_fields.PLAIN, *state_fields.TAKEN, *state_fields.LEFT_OUT}


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_each_field_is_taken_once_or_left_out_with_a_reason(kind: type) -> None:
    if kind is Engine:
        fields = set(vars(Engine.fresh(SETTINGS, now=NOW)))
    else:
        fields = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    tables = (state_fields.PLAIN, state_fields.TAKEN, state_fields.LEFT_OUT)
    named = [name for table in tables for name in table.get(kind, ())]
    assert sorted(named) == sorted(fields)
