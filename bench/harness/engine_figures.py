"""The figures of the engine alone: what each one is, and how it is found.

A *part* is measured in a process of its own and gives one value per round for each of its figures. All costs are CPU
time. `units` are those of one ``sum(range(1000))`` in the same process; ratios compare engines, or ways to drive the
same one, that took turns within a round.
"""

from collections.abc import Callable, Mapping

from cronoq_sansio.engine.engine import Engine
from harness import cron_load, engine_load, simulated
from harness.engine_load import SETTINGS, Load, Round, block, in_turn, label, memory, park, relax_collector, time_ahead
from harness.recurring_load import Timed

MILLION = 1_000_000
ASIDE = 300_000
"""Tasks that wait for a bucket, or for a label."""
SCHEDULES = 10_000
"""Schedules that are due in one second."""
AT_ONCE = (1, 16)
"""Events per step."""
Values = dict[str, list[float]]

ABOUT: dict[str, str] = {
    "plain.1": "units per task, 1,000 waiting, one event per step",
    "plain.16": "the same, 16 events per step",
    "beside.1": "units per task, 1,000 waiting, while a task each waits for a token, a label, a key and its fixed start"
    " in other pools, where a schedule is armed as well, one event per step",
    "beside.16": "the same, 16 events per step",
    "everything.1": "units per task with a deadline, a tenant, a label, a unit of a semaphore and one dependency,"
    " 1,000 waiting, one event per step",
    "everything.16": "the same, 16 events per step",
    "million.1": "cost per task with 1,000,000 waiting, of that with 1,000, one event per step",
    "million.16": "the same, 16 events per step",
    "kib_per_waiting_task": "KiB of VmRSS per waiting task, of 1,000,000 with a 16-byte key and no payload",
    "bucket.1": "cost per task while 300,000 others of the pool wait for a token, of that without them,"
    " one event per step",
    "bucket.16": "the same, 16 events per step",
    "label.1": "cost per task while 300,000 others of the pool wait for a label, of that without them,"
    " one event per step",
    "label.16": "the same, 16 events per step",
    "timed.1": "cost per task while another one of the pool waits for its fixed start and a schedule is armed there,"
    " of that without them, one event per step",
    "timed.16": "the same, 16 events per step",
    "checks.plain.1": "per-step invariant checks, of the engine's own steps, one event per step",
    "checks.plain.16": "the same, 16 events per step",
    "checks.everything.1": "the same for tasks that use everything, one event per step",
    "checks.everything.16": "the same, 16 events per step",
    "recurring.1": "cost per task while 10,000 schedules of another pool are due in the same second, as many fires as"
    " tasks, of that without them, one event per step",
    "recurring.16": "the same, 16 events per step",
    "fire.1": "cost per occurrence that these schedules make, of that per task, one event per step",
    "fire.16": "the same, 16 events per step",
    "cron.median": f"median cost of the next fire of {cron_load.EXPRESSIONS:,} random cron expressions in"
    f" {cron_load.ZONES} zones, of the median of bare croniter calls for them",
    "cron.worst": "the most expensive of these fires, of the median of the bare calls",
    "sim.server": "units per event of a simulated server with all checks, healed at the end, over"
    f" {simulated.SEEDS} seeds a round",
    "sim.lockstep": "units per event of the engine beside the naive model, over as many seeds",
}
"""Every figure, in the order of the page."""


def engine() -> Engine:
    """An engine without a past, with everything configured."""
    return Engine.fresh(SETTINGS, now=0)


def turns(loads: Mapping[str, Load], rounds: int, at_once: int) -> list[Round]:
    """Rounds of these loads, each in an engine of its own."""
    return in_turn([way(load, at_once) for load in loads.values()], rounds)


def tasks(rounds: int) -> Values:
    """One task: plain, plain beside others, and using everything; in units."""
    others = engine()
    park(others, 1, "shared")
    label(others, 1, "shared")
    block(others, 1)
    time_ahead(others, "shared")
    loads = {
        "plain": Load(engine()),
        "beside": Load(others),
        "everything": Load(engine(), engine_load.using_everything),
    }
    settle(loads)
    found: Values = {}
    for at_once in AT_ONCE:
        measured = turns(loads, rounds, at_once)
        for position, name in enumerate(loads):
            found[f"{name}.{at_once}"] = [one.costs[position] / one.unit for one in measured]
    return found


def million(rounds: int) -> Values:
    """One plain task with very many waiting, of the same with few."""
    return compared({"few": Load(engine()), "million": Load(engine(), waiting=MILLION)}, rounds)


def growth(_rounds: int) -> Values:
    """Memory, measured once."""
    return {"kib_per_waiting_task": [memory(MILLION)]}


def aside(rounds: int) -> Values:
    """One plain task while others of its pool cannot start, of the same without them."""
    parked, labelled = engine(), engine()
    park(parked, ASIDE)
    label(labelled, ASIDE)
    timed = engine()
    time_ahead(timed)
    loads = {"alone": Load(engine()), "bucket": Load(parked), "label": Load(labelled), "timed": Load(timed)}
    return compared(loads, rounds)


def checks(rounds: int) -> Values:
    """The checks after each step, of the steps themselves, in the same engine."""
    loads = {"plain": Load(engine()), "everything": Load(engine(), engine_load.using_everything)}
    settle(loads)
    found: Values = {}
    for name, load in loads.items():
        for at_once in AT_ONCE:
            measured = in_turn([way(load, at_once), way(load, at_once, check=True)], rounds)
            found[f"checks.{name}.{at_once}"] = [one.costs[1] / one.costs[0] - 1 for one in measured]
    return found


def cron(rounds: int) -> Values:
    """The next fire of cron expressions, of bare croniter calls for the same ones; new ones in each round."""
    found = [cron_load.measure(number, cron_load.EXPRESSIONS, cron_load.ZONES) for number in range(rounds)]
    return {
        "cron.median": [costs.ours / costs.bare for costs in found],
        "cron.worst": [costs.worst / costs.bare for costs in found],
    }


def simulation(rounds: int) -> Values:
    """An event of the simulator's two worlds, in units; new seeds in each round."""
    return {
        f"sim.{world}": [simulated.cost(world, number * simulated.SEEDS) for number in range(rounds)]
        for world in simulated.WORLDS
    }


def recurring(rounds: int) -> Values:
    """One plain task while very many schedules fire, and one fire, of a plain task without them."""
    alone, timed = Timed(0), Timed(SCHEDULES)
    settle({"alone": alone, "timed": timed})
    found: Values = {}
    for at_once in AT_ONCE:
        ratios: list[float] = []
        fires: list[float] = []
        for _ in range(rounds):
            timed.fires, timed.firing = 0, 0.0
            (one,) = in_turn([way(alone, at_once), way(timed, at_once)], 1)
            ratios.append(one.costs[1] / one.costs[0])
            fires.append(timed.firing / timed.fires / one.costs[0])
        found |= {f"recurring.{at_once}": ratios, f"fire.{at_once}": fires}
    return found


def way(load: Load, at_once: int, *, check: bool = False) -> Callable[[int], float]:
    """A way to drive a load."""
    return lambda tasks: load.run(tasks, at_once, check=check)


def compared(loads: Mapping[str, Load], rounds: int) -> Values:
    """The cost of each load, of the cost of the first one."""
    settle(loads)
    found: Values = {}
    for at_once in AT_ONCE:
        measured = turns(loads, rounds, at_once)
        for position, name in list(enumerate(loads))[1:]:
            found[f"{name}.{at_once}"] = [one.costs[position] / one.costs[0] for one in measured]
    return found


def settle(loads: Mapping[str, Load]) -> None:
    """Bring every load to where it stays."""
    for load in loads.values():
        load.settle()
    relax_collector()


PARTS: dict[str, Callable[[int], Values]] = {
    "tasks": tasks,
    "million": million,
    "memory": growth,
    "aside": aside,
    "checks": checks,
    "recurring": recurring,
    "cron": cron,
    "simulation": simulation,
}
"""What is measured in one process, by name."""
