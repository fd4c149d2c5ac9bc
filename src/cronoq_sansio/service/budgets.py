"""How many calls may be open. Those that wait or watch cost next to nothing, so they have budgets of their own."""

from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_WAITS, MAX_WATCHES
from cronoq_sansio.service.messages import Request, Submit, Wait, Watch
from cronoq_sansio.settings import LimitSettings


class Budget:
    """Calls of one kind. Whoever lets one in counts it here and leaves this in `Call.budget`."""

    __slots__ = ("full", "limit", "open")

    def __init__(self, limit: int, full: str) -> None:
        self.open = 0
        self.limit = limit
        self.full = Rejection(Code.UNAVAILABLE, f"{limit} {full}; try again")
        """What a call is told when so many are open."""


class Budgets:
    """All of them."""

    __slots__ = ("request", "wait", "watch")

    def __init__(self, limits: LimitSettings) -> None:
        self.request = Budget(limits.max_concurrent_requests, "calls are open (limits.max_concurrent_requests)")
        self.wait = Budget(MAX_WAITS, "calls are waiting")
        self.watch = Budget(MAX_WATCHES, "watches are open")

    def of(self, request: Request) -> Budget:
        """The one that a call with this request counts against."""
        if type(request) is Wait or (type(request) is Submit and request.wait):
            return self.wait
        return self.watch if type(request) is Watch else self.request

    def check_invariants(self) -> None:
        """None is overdrawn."""
        for budget in (self.request, self.wait, self.watch):
            assert 0 <= budget.open <= budget.limit
