"""Prints the fires of one schedule; run as a process of its own, in other surroundings."""

from cronoq_sansio.engine.cron import compile_cron
from tests.engine.cron_oracle import fires, ns, shown

if __name__ == "__main__":
    found = fires(compile_cron("30 2 * * *", "America/New_York"), ns("2027-03-13T00:00Z"), ns("2027-03-16T00:00Z"))
    print(*(shown(fire.at) for fire in found))
