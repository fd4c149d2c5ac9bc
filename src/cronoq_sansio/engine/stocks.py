"""What there is of each resource (engine.md section 8): semaphores and token buckets.

A semaphore has permits, held while an attempt runs. A token bucket has tokens, consumed when an attempt starts, and
gets `rate` new ones per second up to `burst`; it starts full. Units that are *promised* to called tasks
(`resources.py`) are not spare any more, and not used yet.

Buckets count exactly. A rate is a fraction p/q of tokens per second (every float is one), so that a nanosecond brings
p/(q·10⁹) of a token: the level is an integer in such parts, a whole token is q·10⁹ of them, and a nanosecond brings p.
No rounding adds up, whatever the rate, however often and after however long a time it is looked at, and the moment at
which there are n tokens is known to the nanosecond.

Invariants: ``0 ≤ level ≤ burst``; ``used`` is the sum over running attempts, above ``permits`` only after these were
lowered. In any t seconds a bucket gives no more than ``burst + rate·t``, apart from tokens that came back unused.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.engine.units import Ranked
from cronoq_sansio.settings import ResourceSettings

if TYPE_CHECKING:
    from cronoq_sansio.engine.claims import Rack
    from cronoq_sansio.engine.timers import Timer


class _Common:
    __slots__ = ("capacity", "due_at", "name", "noted", "promised", "rank", "shut", "timer")

    def __init__(self, settings: ResourceSettings) -> None:
        self.name = settings.name
        self.capacity = settings.capacity
        """Units that a task can have at most."""
        self.rank = (-settings.capacity, settings.name)
        """A lasting order among resources, the largest first."""
        self.promised = 0
        self.shut: Ranked[Rack] = Ranked()
        """Racks that wait for units of this resource, by the least amount that is of use to them."""
        self.noted = False
        """When it can serve the first of those is to be worked out anew."""
        self.timer: Timer[Stock] | None = None
        self.due_at: int | None = None
        """When that is, as far as it was worked out; None = never."""


class Semaphore(_Common):
    """Permits."""

    __slots__ = ("used",)

    def __init__(self, settings: ResourceSettings) -> None:
        super().__init__(settings)
        self.used = 0

    def spare(self, _now: int) -> int:
        """Permits that are neither used nor promised; negative after the limit was lowered."""
        return self.capacity - self.used - self.promised

    def due(self, units: int) -> int | None:
        """The past when so many are spare; None otherwise: time does not bring them."""
        return 0 if units <= self.capacity - self.used - self.promised else None

    def take(self, units: int) -> None:
        """An attempt starts with these permits, which are spare."""
        self.used += units

    def attempt_ended(self, units: int) -> None:
        """The attempt that took them is over."""
        self.used -= units

    def give_back(self, units: int, _now: int) -> None:
        """The attempt that took them did not take place."""
        self.used -= units

    def set_limit(self, settings: ResourceSettings, _now: int) -> None:
        """Other limits from now on; what was taken stays taken."""
        self.capacity = settings.capacity

    def check(self, used: int) -> None:
        """Assert the invariant; so many permits are taken by running attempts."""
        assert self.used == used, f"permits of {self.name}: {self.used} in use, {used} held"


class Bucket(_Common):
    """Tokens that come back with time."""

    __slots__ = ("_gain", "_updated", "level", "token")

    def __init__(self, settings: ResourceSettings, now: int) -> None:
        super().__init__(settings)
        self._gain, denominator = settings.rate.as_integer_ratio()
        """Parts per nanosecond."""
        self.token = denominator * SECOND
        """Parts of one token."""
        self.level = self.capacity * self.token
        """Parts that were there when it was looked at last."""
        self._updated = now

    def spare(self, now: int) -> int:
        """Whole tokens that are not promised; negative after the limit was lowered."""
        if now > self._updated:
            level = self.level + (now - self._updated) * self._gain
            full = self.capacity * self.token
            self.level = level if level < full else full
            self._updated = now
        return self.level // self.token - self.promised

    def due(self, units: int) -> int | None:
        """When so many will be spare if nothing else happens; the past when they are, None when that is never."""
        units += self.promised
        if units > self.capacity:
            return None
        missing = units * self.token - self.level
        if missing <= 0:
            return 0
        # A tiny rate gives times that no timer can hold. Such a timer goes off early, and is set again.
        return self._updated + min(-(-missing // self._gain), MAX_CLIENT_DURATION)

    def take(self, units: int) -> None:
        """An attempt starts with these tokens, which are spare as of now."""
        self.level -= units * self.token

    def attempt_ended(self, units: int) -> None:
        """The attempt that took them is over: they are spent."""

    def give_back(self, units: int, now: int) -> None:
        """The attempt that took them did not take place."""
        self.spare(now)
        self.level = min(self.level + units * self.token, self.capacity * self.token)

    def set_limit(self, settings: ResourceSettings, now: int) -> None:
        """Other limits from now on; the tokens that are there stay, as far as they find room."""
        self.spare(now)
        before = self.token
        self._gain, denominator = settings.rate.as_integer_ratio()
        self.token = denominator * SECOND
        self.capacity = settings.capacity
        self.level = min(self.level * self.token // before, self.capacity * self.token)

    def check(self, _used: int) -> None:
        """Assert the invariant."""
        assert 0 <= self.level <= self.capacity * self.token, f"level of {self.name}"


Stock = Semaphore | Bucket


def stock(settings: ResourceSettings, now: int) -> Stock:
    """A resource as configured, with everything there."""
    return Semaphore(settings) if settings.kind == "semaphore" else Bucket(settings, now)
