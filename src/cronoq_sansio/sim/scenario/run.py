"""Run a scenario: the real engine, service and outbox in virtual time, with simulated callers and workers.

The clock jumps from one event to the next. Events of one instant come in one read, as far as `BATCH` allows. Network,
store and processor cost no time: what is shown is what scheduling itself does to a workload.

The same scenario with the same seed gives the same report, byte for byte.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.engine.actions import Answer, OccurrenceDropped, Submitted
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.limits import MAX_SCENARIO_EVENTS, MAX_SCENARIO_LIVE, MAX_SCENARIO_TASKS
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.service.messages import (
    AbortLease,
    Call,
    CallReceived,
    CloseWorker,
    Reject,
    SendLease,
    SendToWorker,
    Submit,
)
from cronoq_sansio.service.messages_recurring import LogDrop
from cronoq_sansio.service.service import Service
from cronoq_sansio.sim.scenario.count import ARRIVALS, RECURRING, Count, Origin
from cronoq_sansio.sim.scenario.draws import arrival_times, draw, generator
from cronoq_sansio.sim.scenario.report import ScenarioReport, report_of
from cronoq_sansio.sim.scenario.words import Duration, Scenario
from cronoq_sansio.sim.scenario.workers import Attempt, Crew, Fleet, Worker
from cronoq_sansio.spec import TaskSpec

BATCH = 1_000  #: events of one read
PROGRESS = 100  #: how often progress is told, in a run …
PROGRESS_EVENTS = 50_000  #: … and after so many events: a few seconds, also where time stands still
LOOKS = 600  #: at the targets of autoscalers, in a run where nobody follows them

Progress = Callable[[float, int], None]
"""Told the share of the time that has passed, and how many tasks there were."""


class Source:
    """Where tasks come from: an entry of `[[arrivals]]`, or a schedule of the configuration."""

    __slots__ = ("_duration", "_failure_rate", "_first", "_retries", "burst", "origin", "spec", "times")

    def __init__(self, seed: int, origin: Origin, duration: Duration, failure_rate: float) -> None:
        name = "/".join(origin)
        self.origin = origin
        self._duration = duration
        self._failure_rate = failure_rate
        self._first = generator(seed, name, "runs")
        self._retries = generator(seed, name, "retries")
        self.spec: TaskSpec | None = None
        self.burst = 1
        self.times: Iterator[int] = iter(())

    def first(self) -> tuple[int, bool]:
        """How long the first attempt of the next task runs, and whether it fails."""
        return draw(self._duration, self._first), self._first.random() < self._failure_rate

    def again(self) -> tuple[int, bool]:
        """The same for an attempt after the first one."""
        return draw(self._duration, self._retries), self._retries.random() < self._failure_rate


class Run:
    """One run. `count` has what was seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = begin = scenario.start
        self.end = begin + scenario.duration
        self.count = Count(scenario)
        self.handled = 0
        """Events that the service was told."""
        self.stopped = ""
        """Why the run ended before its time."""
        self.interrupted = False
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._numbers = count()
        self._events: list[Any] = []
        self._fleet = Fleet(scenario, begin, self._later, self._events, self._attempt_over)
        self._sources: dict[Origin, Source] = {}
        self._batch = min(BATCH, scenario.settings.limits.max_concurrent_requests)
        self._engine = engine = Engine.recover(
            scenario.settings, first_task_id=1, first_lease_id=1, seed=scenario.seed, now=begin, wall_offset=0
        )
        while engine.settle(begin):
            pass
        step = engine.begin(begin)
        self._outbox = Outbox(Service(engine, scenario.settings, begin, volatile=True), volatile=True)
        self._gauges = [
            (self.count.gauges[pool.name], pool) for pool in engine.pools.values() if pool.name in self.count.gauges
        ]
        self._perform(step.writes, [LogDrop(drop) for drop in step.at_once if type(drop) is OccurrenceDropped])
        self._prepare()

    def _prepare(self) -> None:
        scenario = self.scenario
        for runs in scenario.runs:
            origin = (RECURRING, runs.name)
            self._sources[origin] = Source(scenario.seed, origin, runs.duration, runs.failure_rate)
        for arrivals in scenario.arrivals:
            origin = (ARRIVALS, arrivals.name)
            source = self._sources[origin] = Source(scenario.seed, origin, arrivals.duration, arrivals.failure_rate)
            source.spec, source.burst = arrivals.spec, arrivals.burst
            source.times = arrival_times(arrivals, generator(scenario.seed, arrivals.name, "times"))
            self._next_arrival(source)
        followed = [crew for crew in self._fleet.crews if crew.group.follow]
        for crew in followed:
            self._later(self.now, self._follow, crew)
        if any(pool.settings.autoscale for _, pool in self._gauges):
            usual = max(SECOND, scenario.duration // LOOKS)
            self._later(self.now, self._look, min((crew.group.look for crew in followed), default=usual))

    # --- the clock

    def run(self, progress: Progress | None = None, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Until the time is over, a bound is reached, or somebody interrupts."""
        heap, outbox, events, end = self._heap, self._outbox, self._events, self.end
        told, heard = self.now, 0
        part = max(self.scenario.duration // PROGRESS, 1)
        while True:
            due = outbox.next_timeout()
            now = heap[0][0] if heap and (due is None or heap[0][0] <= due) else due
            if now is None or now >= end:
                break
            self.now = now = max(now, self.now)
            self._fleet.now = now
            while heap and heap[0][0] <= now and len(events) < self._batch:
                _, _, call, argument = heappop(heap)
                call(argument)
            if due is not None and due <= now:
                events.append(TimerFired())
            if events:
                self._handle()
            if self._is_over(interrupted()):
                break
            if progress is not None and (now - told >= part or self.handled - heard >= PROGRESS_EVENTS):
                told, heard = now, self.handled
                progress((now - self.scenario.start) / self.scenario.duration, self.count.tasks)
        self._close(end)

    def _handle(self) -> None:
        events = self._events
        self.handled += len(events)
        step = self._outbox.handle(events, self.now)
        events.clear()
        self._perform(step.writes, step.at_once)
        now = self.now
        for gauge, pool in self._gauges:
            groups = pool.groups
            waiting = pool.pending
            if waiting:
                waiting -= sum(pool.apart_by_class)
            busy = groups.busy
            if waiting != gauge.waiting or busy != gauge.busy or groups.capacity != gauge.offered:
                gauge.set(now, waiting, busy, groups.capacity)

    def _is_over(self, interrupted: bool) -> bool:
        live = len(self.count.live)
        if interrupted:
            self.interrupted = True
            self.stopped = "it was interrupted"
        elif live > MAX_SCENARIO_LIVE:
            self.stopped = f"more than {MAX_SCENARIO_LIVE:,} tasks were there at a time"
        elif self.count.tasks > MAX_SCENARIO_TASKS:
            self.stopped = f"there were more than {MAX_SCENARIO_TASKS:,} tasks"
        elif self.handled > MAX_SCENARIO_EVENTS:
            self.stopped = f"there were more than {MAX_SCENARIO_EVENTS:,} events"
        if self.stopped:
            self.stopped += f", after {seconds(self.now - self.scenario.start):,.0f} s"
        return bool(self.stopped)

    def _close(self, end: int) -> None:
        if self.stopped:
            self.count.end = end = max(self.now, self.count.warm + 1)
        for attempt in self._fleet.running.values():
            self._attempt_over(attempt, end)
        self.count.close()

    def _later(self, when: int, call: Callable[[Any], None], argument: Any) -> None:
        heappush(self._heap, (when, next(self._numbers), call, argument))

    # --- callers

    def _next_arrival(self, source: Source) -> None:
        when = next(source.times, None)
        if when is not None:
            self._later(self.scenario.start + when, self._arrive, (source, source.burst))

    def _arrive(self, argument: tuple[Source, int]) -> None:
        source, left = argument
        spec = source.spec
        assert spec is not None
        request = Submit(spec, False, None)
        some = min(left, max(self._batch - len(self._events), 1))
        for _ in range(some):
            self._events.append(CallReceived(Call((source.origin, source.first())), ANYONE, request, None))
        if left > some:
            self._later(self.now, self._arrive, (source, left - some))
        else:
            self._next_arrival(source)

    # --- what the server wants done

    def _perform(self, writes: list[Any], actions: list[Any]) -> None:
        count = self.count
        if writes:
            count.records(writes)
        leases: list[SendLease] = []
        for action in actions:
            kind = type(action)
            if kind is SendLease:
                leases.append(action)  # after the replies: they say how long the tasks of this step run
            elif kind is Answer:
                self._answered(action)
            elif kind is Reject:
                origin, _ = action.call.sink
                count.refused(origin, action.rejection.code, action.rejection.message, self.now)
            elif kind is SendToWorker:
                if type(action.message) is AbortLease:
                    self._fleet.abort(action.stream.sink, action.message.lease)
            elif kind is LogDrop:
                count.dropped(action.drop.name, action.drop.reason, action.drop.count, action.drop.last)
            elif kind is CloseWorker and action.rejection is not None:
                self._fleet.refused(action.stream.sink)
        for action in leases:
            self._send(action)

    def _answered(self, answer: Answer) -> None:
        message = answer.outcome
        assert type(message) is Submitted
        live = self.count.live.get(message.task_id)
        if live is not None:
            sink: Any = answer.request.sink
            _, (live.duration, live.fails) = sink

    def _send(self, action: SendLease) -> None:
        worker, lease = action.stream.sink, action.lease
        assert isinstance(worker, Worker)
        live = self.count.live[lease.task.id]
        if lease.attempt > 1:
            duration, fails = self._sources[live.origin].again()
        elif live.duration < 0:  # an occurrence of a schedule
            duration, fails = self._sources[live.origin].first()
        else:
            duration, fails = live.duration, live.fails
        self.count.dispatched(live, self.now)
        if self._fleet.run(worker, lease, live, duration, fails) is None:
            self.count.attempt_over(live, self.now, self.now)

    def _attempt_over(self, attempt: Attempt, now: int) -> None:
        self.count.attempt_over(attempt.live, attempt.since, now)

    # --- autoscaling

    def _look(self, interval: int) -> None:
        desired = self._targets()
        for gauge, pool in self._gauges:
            if pool.settings.autoscale:
                gauge.look(self.now, desired[pool.name])
        self._later(self.now + interval, self._look, interval)

    def _follow(self, crew: Crew) -> None:
        self._fleet.follow(crew, self._targets()[crew.group.pool])
        self._later(self.now + crew.group.look, self._follow, crew)

    def _targets(self) -> dict[str, int]:
        return {pool.name: pool.desired for pool in self._engine.snapshot(self.now).pools}


def run_scenario(
    scenario: Scenario, progress: Progress | None = None, interrupted: Callable[[], bool] = lambda: False
) -> ScenarioReport:
    """Run a scenario to its end. A run that passes a bound, or is `interrupted`, ends there; its report says so."""
    run = Run(scenario)
    run.run(progress, interrupted)
    return report_of(scenario, run.count, run.handled, run.stopped, run.interrupted)
