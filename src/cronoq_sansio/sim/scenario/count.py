"""From what the server writes and sends to the figures of a run.

Tasks are followed from the record that takes them in to the one that ends them. One counts when it arrived after the
warm-up; one with a fixed start when that start is after it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from cronoq_sansio.engine.occurrences import schedule_of
from cronoq_sansio.engine.records import TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.errors import Code
from cronoq_sansio.sim.scenario.figures import (
    FAILED,
    MISSED,
    SUCCEEDED,
    Gauge,
    ResourceTally,
    StartTally,
    Tally,
)
from cronoq_sansio.sim.scenario.words import Scenario
from cronoq_sansio.spec import TaskSpec, TaskStatus

RETRYING = int(TaskStatus.RETRYING)


Origin = tuple[str, str]
"""Where tasks come from: `arrivals` or `recurring`, and the name of the entry or schedule."""
ARRIVALS, RECURRING = "arrivals", "recurring"


class Live:
    """A live task."""

    __slots__ = ("came", "counted", "duration", "fails", "origin", "spec", "started", "starts", "tally")

    def __init__(self, spec: TaskSpec, origin: Origin, tally: Tally, came: int, counted: bool) -> None:
        self.spec = spec
        self.origin = origin
        self.tally = tally
        self.came = came
        """Its waiting counts from here: arrival, or fixed start."""
        self.counted = counted
        self.started = False
        self.starts: StartTally | None = None
        """With a fixed start whose verdict falls into the run."""
        self.duration = -1
        """Of its first attempt, and whether that fails; −1 = not drawn yet."""
        self.fails = False


class Count:
    """Everything that is counted in one run. Times are Unix nanoseconds, as the engine has them."""

    def __init__(self, scenario: Scenario) -> None:
        settings = scenario.settings
        begin = scenario.start
        self.begin = begin
        self.warm = begin + scenario.warmup
        self.end = begin + scenario.duration
        self.live: dict[int, Live] = {}
        self.tasks = 0
        """Taken in, the warm-up included."""
        self.tallies: dict[Origin, Tally] = {(ARRIVALS, found.name): Tally() for found in scenario.arrivals}
        self.tallies |= {(RECURRING, found.name): Tally() for found in settings.recurring}
        self.dropped_fires: dict[str, Counter[str]] = {found.name: Counter() for found in settings.recurring}
        """Of each schedule, by reason."""
        self.starts: dict[tuple[str, int], StartTally] = {}
        """By pool and policy."""
        self.resources = {resource.name: ResourceTally() for resource in settings.resources}
        specs = {**scenario.specs(), **{(RECURRING, found.name): found.template for found in settings.recurring}}
        self._by_tags = {spec.tags: origin for origin, spec in specs.items() if origin[0] == ARRIVALS}
        self.specs: dict[Origin, TaskSpec] = specs
        """What the tasks of each are like."""
        used = dict.fromkeys([spec.pool for spec in specs.values()] + [group.pool for group in scenario.workers])
        self.gauges = {pool.name: Gauge(begin, self.warm, self.end) for pool in settings.pools if pool.name in used}

    # --- what the server writes

    def records(self, writes: Iterable[Any]) -> None:
        """One transaction."""
        for record in writes:
            kind = type(record)
            if kind is TaskInserted:
                self._inserted(record)
            elif kind is TaskFinished:
                self._finished(record)
            elif kind is TaskChanged and record.status == RETRYING:
                live = self.live.get(record.task_id)
                if live is not None and live.counted:
                    live.tally.retries += 1

    def _inserted(self, record: TaskInserted) -> None:
        spec, asked = record.spec, record.spec.scheduling
        came, origin, starts = record.arrival, None, None
        if asked is not None and asked.start is not None:
            came = max(came, asked.start)
            name = schedule_of(spec)
            if name:
                origin = (RECURRING, name)
            if self.warm <= asked.start and asked.start + asked.tolerance < self.end:
                starts = self.starts.setdefault((spec.pool, asked.on_miss), StartTally())
        if origin is None:
            origin = self._by_tags[spec.tags]
        tally = self.tallies[origin]
        live = self.live[record.task_id] = Live(spec, origin, tally, came, self.warm <= came < self.end)
        live.starts = starts
        self.tasks += 1
        tally.submitted += live.counted

    def _finished(self, record: TaskFinished) -> None:
        live = self.live.pop(record.task_id, None)
        if live is None:
            return
        status = record.status
        if live.starts is not None and not live.started and status in (MISSED, FAILED):
            live.starts.missed += 1
        if not live.counted:
            return
        tally, asked = live.tally, live.spec.scheduling
        tally.ends[status] += 1
        if status == SUCCEEDED:
            tally.in_system.append(record.finished - live.came)
        if asked is not None and asked.deadline is not None:
            timely = status == SUCCEEDED and record.finished <= asked.deadline
            tally.timely += timely
            tally.late += not timely

    # --- what it says

    def refused(self, origin: Origin, code: Code, message: str, now: int) -> None:
        """A caller was refused. It counts when the task would have."""
        asked = self.specs[origin].scheduling
        if asked is not None and asked.start_in is not None:
            now += asked.start_in
        if self.warm <= now < self.end:
            tally = self.tallies[origin]
            tally.refused[code.value] += 1
            tally.messages.setdefault(code.value, message)

    def dropped(self, name: str, reason: str, count: int, last: int) -> None:
        """Fires of a schedule did not happen."""
        if last >= self.warm:
            self.dropped_fires[name][reason] += count

    def dispatched(self, live: Live, now: int) -> None:
        """An attempt begins."""
        asked = live.spec.scheduling
        if asked is not None and asked.resources:
            for name, units in asked.resources:
                resource = self.resources[name]
                resource.change(units, now, self.warm)
                if now >= self.warm:
                    resource.taken += units
        if live.started:
            return
        live.started = True
        late = now - live.came
        if live.starts is not None:
            assert asked is not None
            live.starts.lateness.append(late)
            live.starts.in_time += late <= asked.tolerance
            live.starts.late += late > asked.tolerance
        if live.counted:
            live.tally.started += 1
            live.tally.waits.append(late)

    def attempt_over(self, live: Live, since: int, now: int) -> None:
        """An attempt that began then is over, or the run is."""
        asked = live.spec.scheduling
        if asked is not None and asked.resources:
            for name, units in asked.resources:
                self.resources[name].change(-units, now, self.warm)
        worked = now - max(since, self.warm)
        if worked > 0:
            live.tally.work += worked

    def close(self) -> None:
        """The run is over: what is still open counts as it is."""
        for gauge in self.gauges.values():
            gauge.flush(self.end)
        for resource in self.resources.values():
            resource.change(0, self.end, self.warm)
        for live in self.live.values():
            asked = live.spec.scheduling
            if live.starts is not None and not live.started and asked is not None and asked.start is not None:
                live.starts.waiting += asked.start + asked.tolerance < self.end
            if not live.counted:
                continue
            if live.came >= self.end:  # the run ended before its time
                live.tally.submitted -= 1
                continue
            if not live.started:
                live.tally.unstarted.append(self.end - live.came)
            if asked is not None and asked.deadline is not None and asked.deadline < self.end:
                live.tally.open_late += 1
