"""The words of a scenario: a workload, the workers that meet it, and the time in which it is tried.

Durations are nanoseconds here and seconds in the file; moments are nanoseconds since the beginning of the run.
"""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import Settings
from cronoq_sansio.spec import DEFAULT_TOLERANCE, MissPolicy, Priority, RetryOverride, TaskSpec
from cronoq_sansio.values import value

DEFAULT_START = "2026-01-01T00:00:00Z"
"""A run needs a date for cron expressions alone; any will do, and always the same one."""


@value
class Duration:
    """How long attempts run."""

    distribution: str = "fixed"
    """`fixed`, `exponential`, `uniform` or `lognormal`."""
    mean: int = 0
    """Of all but `uniform`."""
    cv: float = 0.0
    """Of `lognormal`: standard deviation, as a multiple of the mean."""
    minimum: int = 0
    """Of `uniform`, as is the next."""
    maximum: int = 0

    @property
    def average(self) -> float:
        """The mean, in nanoseconds."""
        return (self.minimum + self.maximum) / 2 if self.distribution == "uniform" else self.mean


@value
class Rate:
    """So many arrivals per second from that moment on."""

    start: int = 0
    rate: float = 0.0


@value
class Arrivals:
    """One table of `[[arrivals]]`: tasks that are alike, and when they are submitted."""

    name: str = ""
    spec: TaskSpec | None = None
    """What each of them asks for; None until the configuration is known."""
    duration: Duration = Duration()
    failure_rate: float = 0.0
    """Share of the attempts that fail, and may be retried."""
    rates: tuple[Rate, ...] = ()
    """Arrivals at random, at the last of these rates that has begun; empty = regular ones."""
    every: int = 0
    """Between two regular arrivals; 0 = at random."""
    burst: int = 1
    """Tasks that each arrival brings."""
    start: int = 0
    """No arrival before."""
    end: int = 0
    """No arrival from here on."""

    def expected(self) -> float:
        """How many tasks there will be; of random arrivals the mean."""
        if self.every:
            return self.burst * -(-(self.end - self.start) // self.every)
        total = 0.0
        for index, rate in enumerate(self.rates):
            until = self.rates[index + 1].start if index + 1 < len(self.rates) else self.end
            total += rate.rate * max(min(until, self.end) - max(rate.start, self.start), 0) / SECOND
        return self.burst * total


@value
class WorkerGroup:
    """One table of `[[workers]]`: workers that are alike."""

    name: str = ""
    pool: str = ""
    count: int = 1
    """With `follow` the most of them."""
    slots: int = 1
    """Of each."""
    labels: tuple[tuple[str, str], ...] = ()
    start: int = 0
    """When they join …"""
    end: int = 0
    """… and when they finish what they have and leave."""
    follow: bool = False
    """So many of them as the pool's autoscaler asks for."""
    look: int = 5 * SECOND
    """How often whoever starts them looks at its target."""
    delay: int = 0
    """From that decision until a new worker has joined."""
    crash: int = 0
    """Mean time between two crashes of a worker; 0 = never."""
    noticed: int = 0
    """After so long the server learns of a crash."""
    restart: int = 10 * SECOND
    """After so long the worker is there again."""


@value
class Runs:
    """One table of `[[recurring]]`: how the tasks of a schedule of the configuration run."""

    name: str = ""
    duration: Duration = Duration()
    failure_rate: float = 0.0


@value
class Course:
    """What stands at the top of the file."""

    config: str | None = None
    duration: int = 0
    warmup: int = 0
    seed: int = 1
    start: str = DEFAULT_START


@value
class ArrivalSettings:
    """`[[arrivals]]` as it stands in the file, with the defaults of its keys."""

    name: str = ""
    pool: str = ""
    kind: str = ""
    priority: str = Priority.NORMAL.name.lower()
    tenant: str = ""
    rate: float | None = None
    every: int | None = None
    rates: tuple[Rate, ...] | None = None
    burst: int = 1
    start: int = 0
    end: int | None = None
    duration: Duration | None = None
    failure_rate: float = 0.0
    timeout: int | None = None
    retry: RetryOverride | None = None
    deadline_in: int | None = None
    start_in: int | None = None
    tolerance: int = DEFAULT_TOLERANCE
    on_miss: str = MissPolicy.RUN_LATE.name.lower()
    duration_hint: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    payload_bytes: int = 0


@value
class Scenario:
    """A whole scenario, checked against its configuration."""

    settings: Settings
    duration: int
    warmup: int
    """What happens to tasks that arrive before is not counted."""
    seed: int
    start: int
    """Wall time of the beginning, Unix nanoseconds."""
    arrivals: tuple[Arrivals, ...]
    workers: tuple[WorkerGroup, ...]
    runs: tuple[Runs, ...]
    """One per schedule of the configuration, in its order."""
    notes: tuple[str, ...] = ()
    """What a reader of the report should know."""

    def specs(self) -> dict[tuple[str, str], TaskSpec]:
        """What the tasks of each entry of `[[arrivals]]` ask for, by `("arrivals", name)`."""
        return {("arrivals", found.name): found.spec for found in self.arrivals if found.spec is not None}
