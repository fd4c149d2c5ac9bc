"""Draws what callers ask for. Few keys, ids, labels and tenants, so that they collide."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
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
    from cronoq_sansio.sim.server.world import ServerWorld

KEYS = tuple(f"k{number}" for number in range(20))
RARE_KEYS = ("later 1", "later 2", "later 3")
"""Few tasks have them, and more wait for them: so most of those that wait came before."""
TEMPLATE_KEYS = ("", "nightly", "hourly")
"""Of schedules. With those above they are 25, so that keys collide."""
POOLS = ("a", "b", "c", "d")
KINDS = ("", "x", "y")
RETRIES = (None, None, RetryOverride(1, None, None, None, None), RetryOverride(2, 0, None, None, False))
TIMEOUTS = (None, None, None, 3 * SECOND)
CONDITIONS = tuple(Condition)
POLICIES = tuple(int(policy) for policy in MissPolicy)
TIMES = tuple(seconds * SECOND for seconds in (-20, -1, 0, 1, 2, 3, 5, 8, 15))
NEEDS = ("api", "db", "disk", "mail")
TENANTS = ("", "red", "white", "blue")
#: What is drawn together, because one pick is cheaper than several.
KEYS_OR_NONE = (*KEYS, *RARE_KEYS, *[""] * len(KEYS))
AWAITED = (*KEYS, *RARE_KEYS * 2)
FORMS = (
    *((*form, False) for form in product(KINDS, POOLS, (0, 1, 2, 2, 3), TIMEOUTS, RETRIES)),
    *((kind, "nowhere", 2, None, None, False) for kind in KINDS for _ in range(5)),
    *(("", pool, 2, None, None, True) for pool in POOLS for _ in range(4)),
)
"""Kind, pool, class, timeout, retries, and whether it is large."""
RESTS = (
    *product((None, 0, 2 * SECOND), (0, 1, SECOND, 4 * SECOND), TENANTS, POLICIES),
    *[None] * (3 * 4 * len(TENANTS) * len(POLICIES) // 2),
)
"""Estimated time, tolerance, tenant, and what happens to a start that was missed; None = asks for nothing."""
MOMENTS = tuple(product(TIMES, (False, False, True)))
"""How far from now, and whether it is said like that."""
DEADLINES = (*MOMENTS, *[None] * len(MOMENTS))
STARTS = (*MOMENTS, *[None] * (2 * len(MOMENTS)))
UNITS = (*(((need, units),) for need in NEEDS for units in (1, 1, 1, 2)), *[()] * (4 * len(NEEDS)))
LABELS = (*DEMANDS, *[()] * (2 * len(DEMANDS)))
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
            key = pick(KEYS_OR_NONE)
        kind, pool, priority, timeout, retry, large = pick(FORMS)
        size = self._large if large else 20
        scheduling = None if self._plain else self._scheduling()
        return TaskSpec(b"", marker, kind, pool, priority, key, timeout, retry, (), size, scheduling)

    def _scheduling(self) -> Scheduling | None:
        pick = self._pick
        deadlines, dependencies, resources, labels, starts = self._wants
        rest = pick(RESTS)
        if rest is None:
            return None
        hint, tolerance, tenant, policy = rest
        deadline, deadline_in = self._moment(DEADLINES) if deadlines else (None, None)
        start, start_in = self._moment(STARTS) if starts else (None, None)
        return Scheduling(
            deadline,
            deadline_in,
            hint if deadlines or starts else None,
            self._edges() if dependencies and pick((True, False)) else (),
            pick(UNITS) if resources else (),
            pick(LABELS) if labels else (),
            tenant,
            start,
            start_in,
            tolerance,
            policy,
        )

    def _moment(self, moments: Sequence[tuple[int, bool] | None]) -> tuple[int | None, int | None]:
        """A wall time, or how long from now it is, or neither."""
        moment = self._pick(moments)
        if moment is None:
            return None, None
        span, relative = moment
        if relative:
            return None, max(span, 0)
        return max(self._world.now + self._world.wall_shift + span, 0), None

    def _edges(self) -> tuple[Dependency, ...]:
        pick = self._pick
        return tuple(
            Dependency(pick(AWAITED) if pick(range(2)) else self.some_task(), pick(CONDITIONS))
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
        template = replace(spec, key=pick(TEMPLATE_KEYS), scheduling=asked)
        return RecurringSpec(
            pick(SCHEDULES),
            pick(CRONS),
            pick(ZONES),
            template,
            int(pick(tuple(Overlap))),
            pick(("shift", "skip")),
            pick(("first", "last", "both")),
        )
