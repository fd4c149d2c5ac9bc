"""Cron expressions, and what their next fire costs beside a bare croniter call for the same expression.

Expressions are drawn from the whole grammar, zones from the list of tzdata, both by a seeded generator. Ours and the
bare call take turns, expression by expression, so both see the same machine; all costs are CPU time of the process.
"""

import statistics
from random import Random
from time import process_time_ns
from typing import NamedTuple

from croniter import croniter

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.cron import FOLDS, GAPS, Cron, compile_cron, zone_names

EXPRESSIONS = 5_000
ZONES = 50
FIRST_START = 1_767_225_600
"""2026-01-01, in Unix seconds."""
STARTS = 14 * 366 * 86_400
"""Searches begin within so many seconds from there on."""
OUTLIER = 10
"""A fire that seems to cost so many median calls is measured again: the process was interrupted, or it is true."""
MEASURED_AGAIN = 3
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
HARD = (
    "0 0 29 2 *",
    "* * * 29 2 *",
    "59 59 23 29 2 *",
    "0 0 29 2 mon",
    "0 0 31 2 mon",
    "0 0 31 2,4,6,9,11 fri",
    "0 0 30,31 2 0-6",
    "0 0 * 2 1#5",
    "59 59 23 * 2 0#5,1#5,2#5,3#5,4#5,5#5,6#5",
    "59 59 23 * 12 0#5",
    "59 59 23 L 2 *",
    "59 59 23 31 12 *",
    "59 59 23 * * " + ",".join(f"{day}#{nth}" for day in range(7) for nth in range(1, 6)),
    "59 59 23 * * L0,L1,L2,L3,L4,L5,L6",
    ",".join(str(minute) for minute in range(59)) + " 23 31 12 *",
    "0 0 1-30 2,4,6,9,11 sun",
)
"""Expressions that make croniter look at much of the calendar."""


class Costs(NamedTuple):
    """One round, in nanoseconds of CPU time."""

    ours: float
    """Median of our fires."""
    bare: float
    """Median of croniter's."""
    worst: float
    """The most expensive fire of ours."""
    hardest: str
    """Its expression and zone."""


def expression(random: Random) -> str:
    """One from the whole grammar."""
    fields = [number(random, 0, 59), number(random, 0, 23), "*", "*", "*"]
    if random.random() < 0.3:
        fields[2] = "L" if random.random() < 0.1 else number(random, 1, 31)
    if random.random() < 0.3:
        fields[3] = number(random, 1, 12)
    if random.random() < 0.4:
        fields[4] = number(random, 0, 6)
        if fields[2] == "*" and random.random() < 0.3:
            fields[4] = random.choice((f"{random.randint(0, 6)}#{random.randint(1, 5)}", f"L{random.randint(0, 6)}"))
        elif random.random() < 0.3:
            fields[4] = random.choice(WEEKDAYS)
    if random.random() < 0.4:
        fields.insert(0, number(random, 0, 59))
    return " ".join(fields)


def number(random: Random, low: int, high: int) -> str:
    """One field of numbers."""
    kind = random.random()
    if kind < 0.2:
        return "*"
    if kind < 0.35:
        return f"*/{random.randint(2, high - low)}"
    if kind < 0.75:
        return str(random.randint(low, high))
    first, last = sorted(random.sample(range(low, high + 1), 2))
    if kind < 0.9:
        return f"{first}-{last}"
    return ",".join(str(one) for one in sorted(random.sample(range(low, high + 1), random.randint(2, 5))))


def crons(random: Random, count: int, zones: int) -> list[tuple[str, str, Cron]]:
    """(expression, zone, compiled) of `count` expressions that are accepted, the hard ones among them."""
    names = random.sample(zone_names(), zones)
    found: list[tuple[str, str, Cron]] = []
    texts = list(HARD)
    while len(found) < count:
        text, zone = texts.pop() if texts else expression(random), random.choice(names)
        cron = compile_cron(text, zone, random.choice(GAPS), random.choice(FOLDS))
        if isinstance(cron, Cron):  # a day that no month has is refused
            found.append((text, zone, cron))
    return found


def measure(seed: int, count: int, zones: int) -> Costs:
    """The costs of one fire of each of `count` expressions."""
    random = Random(seed)
    ours: list[int] = []
    bare: list[int] = []
    hardest: list[tuple[int, str, Cron, int]] = []
    for text, zone, cron in crons(random, count, zones):
        start = FIRST_START + random.randrange(STARTS)
        other = croniter(text, start, second_at_beginning=True)
        before = process_time_ns()
        other.get_next(float, start_time=start)
        between = process_time_ns()
        cron.next(start * SECOND)
        cost = process_time_ns() - between
        bare.append(between - before)
        ours.append(cost)
        hardest.append((cost, f"{text} {zone}", cron, start))
    median = statistics.median(bare)
    worst, about = 0, ""
    for cost, name, cron, start in sorted(hardest, key=lambda one: -one[0]):
        if cost <= worst:
            break
        if cost > OUTLIER * median:
            cost = min(cost, *(again(cron, start + number) for number in range(1, MEASURED_AGAIN + 1)))
        if cost > worst:
            worst, about = cost, name
    return Costs(statistics.median(ours), median, worst, about)


def again(cron: Cron, start: int) -> int:
    """The cost of a fire from a start that it was not asked for before."""
    before = process_time_ns()
    cron.next(start * SECOND)
    return process_time_ns() - before
