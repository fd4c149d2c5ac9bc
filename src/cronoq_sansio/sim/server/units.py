"""What a term has given out of its resources, as its writes say: permits and tokens, counted from zero."""

from typing import Protocol

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import ResourceSettings
from cronoq_sansio.sim.failure import Kind, Violation


class Units(Protocol):
    """One resource."""

    def take(self, units: int, now: int) -> None:
        """An attempt starts with these."""

    def ended(self, units: int) -> None:
        """That attempt is over."""

    def returned(self, units: int, now: int) -> None:
        """That dispatch was taken back."""

    def spare(self, now: int) -> int:
        """How many there are."""


class Permits:
    """Of a semaphore: in use while an attempt runs."""

    __slots__ = ("_capacity", "_name", "used")

    def __init__(self, settings: ResourceSettings) -> None:
        self._name = settings.name
        self._capacity = settings.permits
        self.used = 0

    def take(self, units: int, now: int) -> None:
        """An attempt starts with these."""
        self.used += units
        if self.used > self._capacity:
            details = f"{self._name}: {self.used} of {self._capacity} at {now}"
            raise Violation(Kind.SAFETY, "more permits are in use than there are", details)

    def ended(self, units: int) -> None:
        """That attempt is over."""
        self.used -= units

    def returned(self, units: int, now: int) -> None:
        """That dispatch was taken back."""
        self.used -= units

    def spare(self, now: int) -> int:
        """How many are free."""
        return self._capacity - self.used


class Tokens:
    """Of a bucket, in parts of which one nanosecond brings a whole number.

    That there are never fewer than none is the same as: in every window no more are given than `burst` and what the
    window brings, those that came back aside.
    """

    __slots__ = ("_at", "_full", "_gain", "_name", "_parts", "_token")

    def __init__(self, settings: ResourceSettings, now: int) -> None:
        self._name = settings.name
        self._gain, denominator = settings.rate.as_integer_ratio()
        self._token = denominator * SECOND
        self._full = self._parts = settings.burst * self._token
        self._at = now

    def take(self, units: int, now: int) -> None:
        """An attempt starts with these."""
        self._pass(now)
        self._parts -= units * self._token
        if self._parts < 0:
            details = f"{self._name}: {-self._parts} of {self._token} parts of a token at {now}"
            raise Violation(Kind.SAFETY, "more tokens were given than there were", details)

    def ended(self, units: int) -> None:
        """That attempt is over: they are spent."""

    def returned(self, units: int, now: int) -> None:
        """That dispatch was taken back."""
        self._pass(now)
        self._parts = min(self._parts + units * self._token, self._full)

    def spare(self, now: int) -> int:
        """How many whole ones there are."""
        self._pass(now)
        return self._parts // self._token

    def _pass(self, now: int) -> None:
        if now > self._at:
            self._parts = min(self._parts + (now - self._at) * self._gain, self._full)
            self._at = now


def units_of(settings: ResourceSettings, now: int) -> Permits | Tokens:
    """A resource with everything there."""
    return Permits(settings) if settings.kind == "semaphore" else Tokens(settings, now)
