"""A store that stalls for 40 s with workers connected, and a server that is stopped for as long: both at once."""

from concurrent.futures import ThreadPoolExecutor

from tests.acceptance.stalls import hold_through, lock_held, stopped

SECONDS = 40
TTL = 5


def test_forty_seconds_without_store_or_process_cost_no_lease(start):
    pools = f'[[pools]]\nname = "default"\nlease_ttl_s = {TTL}\n[[pools]]\nname = "idle"\n'
    locked, frozen = start("sqlite", pools=pools), start("sqlite", pools=pools)
    with ThreadPoolExecutor() as threads:
        runs = [
            threads.submit(hold_through, locked, lock_held(locked), SECONDS, TTL, frozen=False),
            threads.submit(hold_through, frozen, stopped(frozen), SECONDS, TTL, frozen=True),
        ]
    for run in runs:
        run.result()
    assert locked.stop() == 0
    assert frozen.stop() == 0
