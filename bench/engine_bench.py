"""Cost of the engine alone: steps, waiting tasks, memory, the checks of its invariants, and cron expressions.

    python bench/engine_bench.py [--rounds 7] [--json]
        [--parts tasks,million,memory,aside,checks,recurring,cron,simulation]

One task is submitted, dispatched, released and completed while 32 slots are busy and others wait. A unit is
``sum(range(1000))``, measured in the same process between the slices of each round, because machines drift; quote the
median. All times are CPU time of the process; events are built beforehand. Each part runs in a process of its own.
"""

import argparse
import json
import subprocess
import sys

from harness.engine_figures import ABOUT, PARTS, Values
from harness.rounds import Ratio


def part(name: str, rounds: int) -> Values:
    """Every round of one part, in a fresh process."""
    command = [sys.executable, __file__, "--within", name, "--rounds", str(rounds)]
    found: Values = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them")
    parser.add_argument("--json", action="store_true", help="every round, as one JSON object, instead of a table")
    parser.add_argument("--within", choices=PARTS, help="measure one part in this process; prints JSON")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.within:
        print(json.dumps(PARTS[options.within](options.rounds)))
        return
    parts = options.parts.split(",")
    if unknown := [name for name in parts if name not in PARTS]:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    figures: Values = {}
    for name in parts:
        found = part(name, options.rounds)
        figures |= found
        for figure in () if options.json else (name for name in ABOUT if name in found):
            ratio = Ratio.of(found[figure])
            spread = f"[{ratio.low:.2f} .. {ratio.high:.2f}]" if ratio.rounds > 1 else ""
            print(f"{figure:22s} {ratio.median:6.2f} {spread:16s} {ABOUT[figure]}", flush=True)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
