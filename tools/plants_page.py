"""The page of planted bugs: the registry beside what was measured (`bench/plants_bench.py`)."""

from pathlib import Path

from bench.harness.plant_ledger import Ledger
from cronoq_sansio.sim.plants import BEDS, PLANTS, holes
from cronoq_sansio.sim.plants.planting import Bed
from cronoq_sansio.sim.run import LOCKSTEP_EVERY, STEPS

LEDGER = Path(__file__).resolve().parent.parent / "bench" / "plants.json"

HEAD = """# Planted bugs

A test that never fails shows nothing. So {count} bugs are kept with the simulator, each of them a mistake that somebody
could make; `python -m cronoq_sansio.sim --plant NAME` runs seeds with one of them, `--plant list` names them all. Each
must be found: `tests/sim/test_plants.py` plants one after the other.

The number of seeds is the median of {series} series of consecutive seeds with the default mix of worlds and
faults and {steps:,} acts each; one in {share} runs beside [the model](model.md). A series that finds nothing in {cap}
seeds counts as {beyond}. Measured on {date} with {python} on {processor}; of {total:,} series
{hits} found their bug.

`found by` is the check that finds it most often: *safety* is a promise or an invariant that is broken, *liveness*
something that does not come to its end, *divergence* a difference from the model.

"""

NOT_FOUND = """## Not found

The list above is chosen: it has the bugs that are found. These were planted as well and are not, or too seldom to be
counted on. They show what the simulator cannot be trusted with.

"""


def page() -> str:
    """The whole page."""
    ledger = Ledger(LEDGER, 0)
    played = [found for name in PLANTS for found in ledger.plants[name].series]
    text = HEAD.format(
        count=len(PLANTS),
        series=" or ".join(map(str, sorted({len(ledger.plants[name].series) for name in PLANTS}))),
        steps=STEPS,
        share=LOCKSTEP_EVERY,
        cap=ledger.cap,
        beyond=ledger.cap + 1,
        date=ledger.machine["date"],
        python=ledger.machine["python"],
        processor=ledger.machine["processor"],
        total=len(played),
        hits=f"{sum(found.needed > 0 for found in played):,}",
    )
    for title, bed in BEDS.items():
        text += f"## {title}\n\n{table(ledger, bed)}\n"
    return f"{text}{NOT_FOUND}{table(ledger, holes.BED)}"


def table(ledger: Ledger, bed: Bed) -> str:
    """A list of plants."""
    text = "| name | what is wrong | seeds | in so many series | found by |\n|---|---|---|---|---|\n"
    for plant in bed.plants:
        entry = ledger.plants[plant.name]
        median, (kind, what) = entry.median(ledger.cap), entry.usual()
        seeds = f"{median:g}" if median <= ledger.cap else f"> {ledger.cap}"
        hits = f"{sum(found.needed > 0 for found in entry.series)} of {len(entry.series)}"
        text += f"| `{plant.name}` | {plant.what} | {seeds} | {hits} | {f'{kind.lower()}: {what}' if kind else ''} |\n"
    return text
