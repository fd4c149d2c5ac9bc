"""A store that stalls for 40 s with workers connected, and a server that is stopped for as long: both at once."""

from tests.acceptance.stalls import POOLS, both_at_once

SECONDS = 40


def test_forty_seconds_without_store_or_process_cost_no_lease(start):
    both_at_once(start("sqlite", pools=POOLS), start("sqlite", pools=POOLS), SECONDS)
