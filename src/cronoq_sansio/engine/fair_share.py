"""Sharing between tenants: start-time fair queueing (engine.md section 8).

One per class of a pool with `fair_share` or `tenant_weights`, over tasks without a deadline. Each task gets a *tag*
when it is queued for the first time, and tasks run in the order of their tags:

    tag = max(virtual time, finish of the tenant's task before)        finish = tag + 1 / weight

Virtual time is the highest tag that was dispatched. So while several tenants have work waiting each gets a share in
proportion to its weight, counted in tasks; one that had nothing to do starts at the present and has saved nothing up;
and one that hands in a million tasks delays others by no more than the task that each of them has waiting already.

Everything is integers: 1 / weight counts in parts of 2³², at least one.

Invariants: virtual time never goes back; the tags of a tenant ascend; a tenant is remembered while its last finish lies
ahead of virtual time, others for as long as they are not the majority. Should `limits.MAX_TENANTS` lie ahead, the half
that is less far ahead is forgotten: their next tasks may run a turn too early.
"""

from collections.abc import Mapping
from fractions import Fraction

from cronoq_sansio.limits import MAX_LANE_GARBAGE, MAX_TENANTS

SCALE = 1 << 32


class Shares:
    """Tags for the tasks of one class. `weights` by tenant are finite and above 0; others weigh 1."""

    __slots__ = ("_finishes", "_full", "_steps", "virtual")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._steps = {tenant: max(1, round(SCALE / Fraction(weight))) for tenant, weight in weights.items()}
        """SCALE / weight."""
        self.virtual = 0
        self._finishes: dict[str, int] = {}
        """Last finish of each tenant; one that is not here has nothing ahead of virtual time."""
        self._full = MAX_LANE_GARBAGE
        """With so many tenants those whose finish has passed are forgotten."""

    def tag(self, tenant: str) -> int:
        """The tag of the next task of a tenant."""
        tag = self._finishes.get(tenant, 0)
        if tag <= self.virtual:
            tag = self.virtual
            if len(self._finishes) >= self._full:
                self._forget()
        self._finishes[tenant] = tag + self._steps.get(tenant, SCALE)
        return tag

    def dispatched(self, tag: int) -> None:
        """A task with that tag starts."""
        if tag > self.virtual:
            self.virtual = tag

    def tenants(self) -> int:
        """How many are remembered."""
        return len(self._finishes)

    def _forget(self) -> None:
        self._keep(self.virtual)
        if len(self._finishes) >= MAX_TENANTS:
            self._keep(sorted(self._finishes.values())[len(self._finishes) // 2])
        self._full = min(2 * len(self._finishes) + MAX_LANE_GARBAGE, MAX_TENANTS)

    def _keep(self, beyond: int) -> None:
        self._finishes = {tenant: finish for tenant, finish in self._finishes.items() if finish > beyond}
