"""Stalls that outlast every keepalive and stall timeout; those of 40 s are in `tests/acceptance`."""

import pytest

from tests.acceptance.server import Server
from tests.acceptance.stalls import POOLS, both_at_once

SECONDS = 120


@pytest.mark.long
def test_two_minutes_without_store_or_process_cost_no_lease(tmp_path):
    folders = [tmp_path / "locked", tmp_path / "frozen"]
    for folder in folders:
        folder.mkdir()
    locked, frozen = (Server(folder, "sqlite", pools=POOLS) for folder in folders)
    with locked, frozen:
        both_at_once(locked, frozen, SECONDS)
    for server in (locked, frozen):
        server.check_log()
