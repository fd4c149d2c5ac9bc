"""Draws what callers ask for. Few keys, ids, labels and tenants, so that they collide."""

from dataclasses import replace
from typing import TYPE_CHECKING

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MESSAGE_HEADROOM
from cronoq_sansio.sim.lockstep.workload import CRONS, DEMANDS, SCHEDULES, ZONES
from cronoq_sansio.spec import (
    Condition,
    Dependency,
    MissPolicy,
    Overlap,
    RecurringSpec,
    RetryOverride,
    Scheduling,
    TaskSpec,
)

if TYPE_CHECKING:
    from cronoq_sansio.sim.world import ServerWorld

KEYS = tuple(f"k{number}" for number in range(24))
POOLS = ("a", "b", "c", "d")
KINDS = ("", "x", "y")
RETRIES = (None, None, RetryOverride(1, None, None, None, None), RetryOverride(2, 0, None, None, False))
TIMEOUTS = (None, None, None, 3 * SECOND)
CONDITIONS = tuple(Condition)
POLICIES = tuple(int(policy) for policy in MissPolicy)
TIMES = tuple(seconds * SECOND for seconds in (-20, -1, 0, 1, 2, 3, 5, 8, 15))
SOON = (0, 1, SECOND, 2 * SECOND, 4 * SECOND, 9 * SECOND)
NEEDS = ("api", "db", "disk", "mail")
TENANTS = ("", "red", "white", "blue")
PHASE = 64  #: specifications after which tasks begin to ask for other things
LARGE = 5_000  #: bytes of some tasks
NOBODY = 1 << 62


def plain(pool: str, key: str, scheduling: Scheduling | None = None) -> TaskSpec:
    """A task that asks for nothing but this."""
    return TaskSpec(b"", "", "", pool, 2, key, None, None, (), 20, scheduling)


class Specs:
    """Draws specifications for one world, in phases: in each of them tasks ask for other things."""

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._large = min(LARGE, world.settings.limits.max_message_bytes - MESSAGE_HEADROOM)
        self._left = 0
        self._plain = True
        self._wants: tuple[bool, ...] = (False,) * 5

    def spec(self, key: str | None = None, marker: str = "") -> TaskSpec:
        """Some task. `marker` is its content type."""
        pick = self._pick
        if not self._left:
            self._left = PHASE
            self._wants = tuple(pick((True, False)) for _ in range(5))
            self._plain = not any(self._wants)
        self._left -= 1
        if key is None:
            key = pick(KEYS) if pick((True, False)) else ""
        odd = pick(range(60))
        pool = pick(POOLS) if odd else "nowhere"
        size = self._large if odd == 1 else 20
        scheduling = None if self._plain else self._scheduling()
        return TaskSpec(
            *(b"", marker, pick(KINDS), pool, pick((0, 1, 2, 2, 3)), key, pick(TIMEOUTS), pick(RETRIES), (), size),
            scheduling,
        )

    def _scheduling(self) -> Scheduling | None:
        pick = self._pick
        deadlines, dependencies, resources, labels, starts = self._wants
        if pick(range(3)) == 2:
            return None
        now = self._world.now + self._world.wall_shift
        edges = self._edges() if dependencies and pick((True, False)) else ()
        start = max(now + pick(TIMES), 0) if starts and pick((True, False, False)) else None
        tolerance = pick((0, 1, SECOND, 4 * SECOND))
        return Scheduling(
            max(now + pick(TIMES), 0) if deadlines and pick((True, False)) else None,
            None,
            pick((None, 0, 2 * SECOND)) if deadlines or start is not None else None,
            edges,
            ((pick(NEEDS), pick((1, 1, 1, 2))),) if resources and pick((True, False)) else (),
            pick(DEMANDS) if labels and pick((True, False, False)) else (),
            pick(TENANTS),
            start,
            None,
            tolerance,
            pick(POLICIES),
        )

    def _edges(self) -> tuple[Dependency, ...]:
        pick = self._pick
        return tuple(
            Dependency(pick(KEYS) if pick(range(3)) == 2 else self.some_task(), pick(CONDITIONS))
            for _ in range(pick((1, 1, 2)))
        )

    def some_task(self) -> int:
        """Mostly one that somebody knows of, live or ended, else one that never was."""
        known = self._world.ledger.recent
        nobody = self._pick(range(12)) == 0
        return NOBODY if nobody or not known else self._pick(known)

    def ref(self) -> int | str:
        """Id or key of some task."""
        return self._pick(KEYS) if self._pick(range(3)) == 2 else self.some_task()

    def schedule(self) -> RecurringSpec:
        """Some schedule."""
        pick, spec = self._pick, self.spec("")
        asked = spec.scheduling
        if asked is not None:
            asked = replace(asked, deadline=None, start=None, start_in=None, dependencies=())
        template = replace(spec, key=pick(("", "nightly", "hourly")), scheduling=asked)
        return RecurringSpec(
            pick(SCHEDULES),
            pick(CRONS),
            pick(ZONES),
            template,
            int(pick(tuple(Overlap))),
            pick(("shift", "skip")),
            pick(("first", "last", "both")),
        )
