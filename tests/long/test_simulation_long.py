"""Very many simulated events; the short form is part of CI (`.ci/run`)."""

import json
import os
import subprocess
import sys

import pytest

from tests.acceptance.ledger import record

EVENTS = int(os.environ.get("CRONOQ_SIM_EVENTS", "50000000"))


@pytest.mark.long
def test_very_many_events_break_nothing(tmp_path):
    command = [sys.executable, "-m", "cronoq_sansio.sim", "--events", str(EVENTS), "--coverage", "pairs"]
    run = subprocess.run(
        [*command, "--json", "--trace-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False
    )
    report = json.loads(run.stdout)
    record("simulation, long", **{name: found for name, found in report.items() if name not in ("coverage", "hashes")})
    assert run.returncode == 0, run.stdout[-10_000:]
    assert report["events"] >= EVENTS
