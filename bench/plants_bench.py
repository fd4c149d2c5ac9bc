"""How many seeds the simulator needs to find each planted bug, for docs/testing/plants.md.

    python bench/plants_bench.py [--series 9] [--cap 200] [--processes 2] [--plant NAME …] [--anew]

Keeps what it finds in bench/plants.json after every series, and plays only those that are missing: it may be
interrupted. All of a ledger is of one state of the code and one cap; `--anew` begins another one. Then run
tools/generate_reference.py. Exit code 1: a bug was not found in some series.
"""

import argparse
import sys
from pathlib import Path

from harness.plant_ledger import Ledger
from harness.plants import code, measure

from cronoq_sansio.sim.plants import HOLES, PLANTS

LEDGER = Path(__file__).parent / "plants.json"
EVERY = [*PLANTS, *HOLES]


def main() -> int:
    """Measure, and say what is found with difficulty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=9)
    parser.add_argument("--cap", type=int, default=200, help="seeds after which a series gives up")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plant", action="append", choices=EVERY, metavar="NAME", help="measure only this one")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    options = parser.parse_args()
    names = options.plant or EVERY
    ledger = Ledger(options.ledger, options.cap)
    if options.anew:
        ledger.forget(options.cap)
    refusal = ledger.begin(options.cap, code())
    if refusal:
        parser.error(refusal)
    every = [name for name in EVERY if name in names or name in ledger.plants]
    for name, found, left in measure(ledger, names, every, options.series, options.processes):
        result = f"{found.needed:4d} seeds  {found.kind.lower()}: {found.what}" if found.needed else "NOT FOUND"
        print(f"{left:5d} left  {name:60s} {result}", flush=True)
    hard = [name for name in names if name in PLANTS and not all(found.needed for found in ledger.plants[name].series)]
    for name in hard:
        needed = [found.needed for found in ledger.plants[name].series]
        print(f"not found in every series: {name} {needed}, median {ledger.plants[name].median(ledger.cap):g}")
    return 1 if hard else 0


if __name__ == "__main__":
    sys.exit(main())
