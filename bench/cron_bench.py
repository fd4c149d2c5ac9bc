"""Cost of the next fire of cron expressions in time zones, beside a bare croniter call for each of them.

    python bench/cron_bench.py [--expressions 100000] [--zones 50] [--rounds 1] [--seed 1]

Prints, round by round, the median of our fires and the most expensive one, both as multiples of the median bare call.
"""

import argparse

from harness.cron_load import HARD, ZONES, measure

from cronoq_sansio.engine.cron import zone_names


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expressions", type=int, default=100_000)
    parser.add_argument("--zones", type=int, default=ZONES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.expressions < len(HARD):
        parser.error(f"--expressions must be at least {len(HARD)}")
    if not 1 <= options.zones <= len(zone_names()):
        parser.error(f"--zones must be 1 to {len(zone_names())}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    for number in range(options.rounds):
        costs = measure(options.seed + number, options.expressions, options.zones)
        print(
            f"bare {costs.bare / 1e3:.1f} µs   median {costs.ours / costs.bare:.2f} ×"
            f"   worst {costs.worst / costs.bare:.1f} ×: {costs.hardest}",
            flush=True,
        )


if __name__ == "__main__":
    main()
