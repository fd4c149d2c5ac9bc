"""One seed is one run of a simulated world; many seeds are a report.

This is what `python -m cronoq_sansio.sim` calls for each seed, and what property tests of other runtimes may call.
There is no I/O and no parallelism in here: whoever wants several processes gives each of them its own seeds.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Protocol

from cronoq_sansio.sim.choices import GivenChoices, RecordedChoices
from cronoq_sansio.sim.failure import Failure, Kind, Trace, Violation
from cronoq_sansio.sim.faults import FAULTS, Coverage, Swarm
from cronoq_sansio.sim.lockstep.run import LockstepRun
from cronoq_sansio.sim.lockstep.workload import DOINGS
from cronoq_sansio.sim.plants import HOLES, PLANTS, planted
from cronoq_sansio.sim.server import isolation, worlds
from cronoq_sansio.sim.server.isolation import IsolationWorld
from cronoq_sansio.sim.server.world import ACTS, BUSY_ACTS, MachineFactory, ServerWorld

ALL_FAULTS = tuple(fault.name for fault in FAULTS)
STEPS = 2_000
"""Acts of one seed, when nothing else is said."""
LOCKSTEP_EVERY = 4
"""One seed of so many drives the engine beside the model."""
ISOLATION_EVERY, ISOLATION_SEED = 16, 5
"""One seed of so many, from that on, is two servers, with and without a neighbour. All others are whole servers."""
LOCKSTEP_SHARE = 4
"""An act beside the model costs about so many times as much as one of a whole server, so there are fewer of them."""
ISOLATION_SHARE = 4
"""The same for two servers with a neighbour."""
SHARES = {"server": 1, "lockstep": LOCKSTEP_SHARE, "isolation": ISOLATION_SHARE}
"""Of the steps of a whole server, by world: one in so many."""


class World(Protocol):
    """What a seed runs."""

    coverage: Coverage

    @property
    def events(self) -> int:
        """Handed in so far."""

    def step(self) -> None:
        """One act. Raises `Violation`."""

    def heal(self) -> None:
        """No faults any more: everything must come to its end. Raises `Violation`."""

    def digest(self) -> str:
        """Of everything that was said so far."""

    def transcript(self) -> str:
        """What happened last, for people; empty when it was not narrated."""


@dataclass(slots=True)
class Outcome:
    """One seed."""

    seed: int
    world: str
    steps: int
    events: int
    hash: str
    coverage: Coverage
    failure: Failure | None = None
    answered: int = 0
    """Calls of a whole server that were not refused."""
    refused: dict[str, int] = field(default_factory=dict)
    """Calls of a whole server, by code."""


@dataclass(slots=True)
class Report:
    """Many seeds."""

    faults: Sequence[str] = ALL_FAULTS
    seeds: int = 0
    steps: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """By world."""
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[Failure] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)
    """Of each seed."""
    answered: int = 0
    """Calls of whole servers that were not refused."""
    refused: dict[str, int] = field(default_factory=dict)
    """Calls of whole servers, by code: where all are refused, little was tested."""

    def add(self, outcome: Outcome) -> None:
        """Take in one more seed."""
        self.seeds += 1
        self.steps += outcome.steps
        self.events[outcome.world] = self.events.get(outcome.world, 0) + outcome.events
        self.coverage.add(outcome.coverage)
        self.hashes[outcome.seed] = outcome.hash
        self.answered += outcome.answered
        for code, calls in outcome.refused.items():
            self.refused[code] = self.refused.get(code, 0) + calls
        if outcome.failure is not None:
            self.failures.append(outcome.failure)

    @property
    def ok(self) -> bool:
        """No seed failed."""
        return not self.failures

    @property
    def hash(self) -> str:
        """Over all seeds, by their numbers."""
        return sha256("".join(found for _, found in sorted(self.hashes.items())).encode()).hexdigest()[:16]

    def raise_for_failure(self) -> None:
        """Raise the first failure as a `Violation`, for tests."""
        if self.failures:
            first = self.failures[0]
            where = f"seed {first.seed}, step {first.step}"
            raise Violation(first.kind, first.what, f"{where}: {first.details}\n{first.transcript}")


def run(
    seed: int = 0,
    *,
    seeds: int = 1,
    steps: int = STEPS,
    faults: Iterable[str] = ALL_FAULTS,
    plant: str = "",
    world: str = "",
    machine: MachineFactory | None = None,
) -> Report:
    """Run `seeds` worlds from `seed` on, and stop at the first that fails; its failure comes with a transcript.

    `faults` are the kinds that may be switched on, by name. `machine` makes what is tested of an engine: an `Outbox`
    around a `Service` when it is None. A runtime with its own outbox, or its own service, gives its own, and asks for
    the world `server`: the engine beside the model has none.
    """
    allowed = _check(seed, seeds, steps, faults, plant, world, machine)
    report = Report(allowed)
    for number in range(seed, seed + seeds):
        outcome = run_seed(number, steps=steps, faults=allowed, plant=plant, machine=machine, world=world)
        if outcome.failure is not None:
            told = replay(outcome.failure.trace, machine=machine)
            outcome.failure.transcript = told.failure.transcript if told.failure is not None else ""
        report.add(outcome)
        if outcome.failure is not None:
            break
    return report


def _check(
    seed: int, seeds: int, steps: int, faults: Iterable[str], plant: str, world: str, machine: MachineFactory | None
) -> tuple[str, ...]:
    """The faults. A test with a slip of the pen must not pass by testing nothing. Raises `TypeError`, `ValueError`."""
    numbers: tuple[tuple[str, object, int], ...] = (("seed", seed, 0), ("seeds", seeds, 1), ("steps", steps, 1))
    for name, number, least in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"{name} is an integer, not {number!r}")
        if number < least:
            raise ValueError(f"{name} is {least} or more, not {number}")
    if isinstance(faults, str):
        raise TypeError(f"faults are the names of kinds in a tuple, not the text {faults!r}")
    allowed = tuple(faults)
    if unknown := [name for name in allowed if name not in ALL_FAULTS]:
        raise ValueError(f"no such kind of fault: {unknown[0]!r}; cronoq_sansio.sim.ALL_FAULTS has them all")
    if world and world not in SHARES:
        raise ValueError(f"world is one of {', '.join(SHARES)}, or empty: by the seed; not {world!r}")
    if machine is not None and world not in ("server", "isolation"):
        raise ValueError("a machine is given, and the engine beside the model has none: ask for world='server'")
    if plant and plant not in PLANTS and plant not in HOLES:
        raise ValueError(f"no such planted bug: {plant!r}; `--plant list` shows them")
    return allowed


def world_of(seed: int) -> str:
    """Which world a seed runs."""
    if seed % LOCKSTEP_EVERY == LOCKSTEP_EVERY - 1:
        return "lockstep"
    return "isolation" if seed % ISOLATION_EVERY == ISOLATION_SEED else "server"


def acts_of(world: str, seed: int) -> Sequence[str]:
    """What may happen in a step of this seed; the first pick of a step is an index of it."""
    if world == "lockstep":
        return DOINGS
    if world == "isolation":
        return isolation.ACTS
    return BUSY_ACTS if worlds.draw(Random(seed)).busy else ACTS


def run_seed(
    seed: int,
    *,
    steps: int = STEPS,
    faults: Iterable[str] = ALL_FAULTS,
    plant: str = "",
    machine: MachineFactory | None = None,
    world: str = "",
) -> Outcome:
    """Run one seed. The failure's transcript is empty: `replay` makes one."""
    allowed = _check(seed, 1, steps, faults, plant, world, machine)
    name = world or world_of(seed)
    choices = RecordedChoices(seed)
    swarm = Swarm.draw(choices, allowed)
    trace = Trace(name, seed, dict(swarm.rates), [], plant)
    count = max(steps // SHARES[name], 1)

    def play(step: Callable[[], None]) -> None:
        for _ in range(count):
            choices.begin_step()
            step()

    outcome = _play(trace, choices, swarm, play, machine, narrate=False)
    if outcome.failure is not None:
        trace.steps = choices.steps()
    return outcome


def replay(trace: Trace, *, machine: MachineFactory | None = None, narrate: bool = True) -> Outcome:
    """Do once more what a trace says."""
    choices = GivenChoices()

    def play(step: Callable[[], None]) -> None:
        for picks in trace.steps:
            choices.begin_step(picks)
            step()

    return _play(trace, choices, Swarm(dict(trace.rates)), play, machine, narrate=narrate)


def _play(
    trace: Trace,
    choices: RecordedChoices | GivenChoices,
    swarm: Swarm,
    play: Callable[[Callable[[], None]], None],
    machine: MachineFactory | None,
    *,
    narrate: bool,
) -> Outcome:
    done = 0
    failure = None
    world: World | None = None
    with planted(trace.plant) if trace.plant else nullcontext():
        try:
            world = _world(trace, choices, swarm, machine, narrate=narrate)
            make_step = world.step

            def step() -> None:
                nonlocal done
                done += 1
                make_step()

            play(step)
            world.heal()
        except Violation as violation:
            failure = Failure(violation.kind, violation.what, violation.details, trace.seed, done, trace)
        except Exception as error:
            failure = Failure(Kind.SAFETY, *_fault(error), trace.seed, done, trace)
        if failure is not None and world is not None:
            failure.transcript = world.transcript()
    if world is None:  # its first term could not even begin
        return Outcome(trace.seed, trace.world, 0, 0, trace.hash, Coverage(), failure)
    digest = world.digest()
    if failure is None or not trace.hash:
        trace.hash = digest
    outcome = Outcome(trace.seed, trace.world, done, world.events, digest, world.coverage, failure)
    if isinstance(world, ServerWorld):
        ledger = world.ledger
        outcome.answered = ledger.answered
        outcome.refused = {code.value: calls for code, calls in ledger.refused.items()}
    return outcome


def _world(
    trace: Trace,
    choices: RecordedChoices | GivenChoices,
    swarm: Swarm,
    machine: MachineFactory | None,
    *,
    narrate: bool,
) -> World:
    if trace.world == "lockstep":
        return LockstepRun(trace.seed, choices, swarm)
    if trace.world == "isolation":
        return IsolationWorld(trace.seed, choices, swarm, machine)
    return ServerWorld(trace.seed, choices, swarm, machine, narrate=narrate, scan=trace.scan)


def _fault(error: Exception) -> tuple[str, str]:
    """What a plain exception of the code under test is called, and where it was raised."""
    frames = []
    position = error.__traceback__
    while position is not None:
        code = position.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('cronoq_sansio/')[2]}:{position.tb_lineno} {code.co_name}")
        position = position.tb_next
    return f"{type(error).__name__} in {frames[-1].split(':')[0]}", "\n".join([str(error), *frames[-6:]])
