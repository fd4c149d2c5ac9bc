"""The report of a scenario: one structure, shown as tables for people and as JSON for programs.

All durations in the structure are seconds. Quantiles are exact: the smallest value that this share of the tasks does
not exceed, over all tasks that count, with their number beside it. A task that had not started when the run ended has
no wait; how many there are, and how long the first of them has waited, stands beside the others.
"""

from array import array
from collections.abc import Callable
from typing import Any

from cronoq_sansio.clock import SECOND, seconds, utc_text
from cronoq_sansio.settings import ResourceSettings
from cronoq_sansio.sim.scenario.count import ARRIVALS, RECURRING, Count
from cronoq_sansio.sim.scenario.figures import (
    CANCELLED,
    DEAD_LETTERED,
    FAILED,
    MISSED,
    SHED,
    SKIPPED,
    SUCCEEDED,
    Gauge,
    ResourceTally,
    Tally,
    mean,
    quantiles,
)
from cronoq_sansio.sim.scenario.tables import render
from cronoq_sansio.sim.scenario.words import Scenario
from cronoq_sansio.spec import MissPolicy, Priority, TaskSpec, tenant_of

ENDS = {
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    DEAD_LETTERED: "dead_lettered",
    CANCELLED: "cancelled",
    SKIPPED: "skipped",
    MISSED: "missed",
    SHED: "shed",
}
DIGITS = 9  #: of a figure that was divided; times are whole nanoseconds


class ScenarioReport:
    """What came of a run."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self._figures = figures

    @property
    def stopped(self) -> str:
        """Which bound ended the run before its time, or that it was interrupted; empty without."""
        return str(self._figures["stopped"])

    @property
    def interrupted(self) -> bool:
        """Somebody ended the run."""
        return bool(self._figures["interrupted"])

    def as_json(self) -> dict[str, Any]:
        """Everything, as texts, numbers, lists and dictionaries with names for keys."""
        return self._figures

    def text(self, width: int = 100) -> str:
        """Tables for people, in lines of at most so many characters as far as names allow."""
        return render(self._figures, width)


def report_of(scenario: Scenario, count: Count, events: int, stopped: str, interrupted: bool = False) -> ScenarioReport:
    """The report of a run that is over."""
    order = {pool.name: index for index, pool in enumerate(scenario.settings.pools)}
    figures: dict[str, Any] = {
        "start": utc_text(scenario.start),
        "duration_s": seconds(scenario.duration),
        "warmup_s": seconds(scenario.warmup),
        "seed": scenario.seed,
        "tasks": count.tasks,
        "events": events,
        "stopped": stopped,
        "interrupted": interrupted,
        "notes": list(scenario.notes),
        "classes": [
            {"pool": pool, "class": Priority(priority).name.lower(), **_tally(tally)}
            for (pool, priority), tally in _together(count, order, lambda spec: spec.priority)
        ],
        "arrivals": [
            {"arrivals": name, **_tally(tally)} for (kind, name), tally in count.tallies.items() if kind == ARRIVALS
        ],
        "refusals": [
            {"arrivals": name, "code": code, "count": tally.refused[code], "first": tally.messages[code]}
            for (_, name), tally in count.tallies.items()
            for code in sorted(tally.refused)
        ],
        "tenants": _tenants(scenario, count, order),
        "pools": [
            {"pool": name, **_pool(gauge, count, name)}
            for name, gauge in sorted(count.gauges.items(), key=lambda item: order[item[0]])
        ],
        "fixed_starts": _fixed_starts(count, order),
        "schedules": [
            {
                "schedule": name,
                **_tally(count.tallies[(RECURRING, name)]),
                "dropped": {reason: dropped[reason] for reason in sorted(dropped)},
            }
            for name, dropped in count.dropped_fires.items()
        ],
        "resources": [
            _resource(resource, count.resources[resource.name], count.end - count.warm)
            for resource in scenario.settings.resources
        ],
    }
    return ScenarioReport(figures)


def _together(
    count: Count, order: dict[str, int], key: Callable[[TaskSpec], Any]
) -> list[tuple[tuple[str, Any], Tally]]:
    """What was counted by pool and something else, in the order of the pools."""
    found: dict[tuple[str, Any], list[Tally]] = {}
    for origin, tally in count.tallies.items():
        spec = count.specs[origin]
        found.setdefault((spec.pool, key(spec)), []).append(tally)
    places = sorted(found, key=lambda place: (order[place[0]], place[1]))
    return [(place, Tally.sum(found[place])) for place in places]


def _tally(tally: Tally) -> dict[str, Any]:
    ended = _ends(tally.ends)
    return {
        "submitted": tally.submitted,
        "refused": sum(tally.refused.values()),
        "started": tally.started,
        "not_started": len(tally.unstarted),
        "longest_not_started_s": seconds(max(tally.unstarted)) if tally.unstarted else None,
        "ended": ended,
        "unfinished": tally.submitted - sum(ended.values()),
        "retries": tally.retries,
        "wait": _spread(tally.waits),
        "in_system": _spread(tally.in_system),
        "deadlines_met": tally.timely,
        "deadlines_missed": tally.late + tally.open_late,
        "work_s": seconds(tally.work),
    }


def _ends(ends: "dict[int, int]") -> dict[str, int]:
    return {name: ends.get(status, 0) for status, name in ENDS.items()}


def _spread(values: "array[int]") -> dict[str, Any] | None:
    """Number, mean and quantiles in seconds; None of nothing."""
    found, average = quantiles(values), mean(values)
    if found is None or average is None:
        return None
    p50, p90, p99, most = found
    return {"count": len(values), "mean": round(average, DIGITS), "p50": p50, "p90": p90, "p99": p99, "max": most}


def _tenants(scenario: Scenario, count: Count, order: dict[str, int]) -> list[dict[str, Any]]:
    """Of pools that share between tenants, or whose tasks name some."""
    weights = {pool.name: dict(pool.tenant_weights) for pool in scenario.settings.pools}
    shown = dict.fromkeys(pool.name for pool in scenario.settings.pools if pool.fair_share or pool.tenant_weights)
    shown |= dict.fromkeys(spec.pool for spec in count.specs.values() if tenant_of(spec))
    by_tenant = [item for item in _together(count, order, tenant_of) if item[0][0] in shown]
    work: dict[str, int] = {}
    for (pool, _), tally in by_tenant:
        work[pool] = work.get(pool, 0) + tally.work
    return [
        {
            "pool": pool,
            "tenant": tenant,
            "weight": weights[pool].get(tenant, 1.0),
            **_tally(tally),
            "share": _ratio(tally.work, work[pool]),
        }
        for (pool, tenant), tally in by_tenant
    ]


def _pool(gauge: Gauge, count: Count, name: str) -> dict[str, Any]:
    time = count.end - count.warm
    looks = gauge.looks
    return {
        "slots": _ratio(gauge.offered_area, time),
        "busy": _ratio(gauge.busy_area, time),
        "utilization": _ratio(gauge.busy_area, gauge.offered_area),
        "queue": _ratio(gauge.queue_area, time),
        "longest_queue": gauge.highest,
        "longest_queue_at_s": seconds(gauge.highest_at - count.begin) if gauge.highest else None,
        "target": {
            "min": min(looks),
            "mean": round(sum(looks) / len(looks), DIGITS),
            "max": max(looks),
            "count": len(looks),
        }
        if looks
        else None,
        "line": {
            "part_s": seconds(gauge.part),
            "queue": gauge.queue_line,
            "busy": [_ratio(area, gauge.part) for area in gauge.busy_line],
            "slots": [_ratio(area, gauge.part) for area in gauge.offered_line],
            "target": gauge.target_line if gauge.desired is not None else None,
        },
    }


def _fixed_starts(count: Count, order: dict[str, int]) -> list[dict[str, Any]]:
    found = []
    for (pool, policy), tally in sorted(count.starts.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        due = tally.in_time + tally.late + tally.missed + tally.waiting
        if due:
            found.append(
                {
                    "pool": pool,
                    "on_miss": MissPolicy(policy).name.lower(),
                    "due": due,
                    "in_time": tally.in_time,
                    "late": tally.late,
                    "missed": tally.missed,
                    "waiting": tally.waiting,
                    "lateness": _spread(tally.lateness),
                }
            )
    return found


def _resource(settings: ResourceSettings, tally: ResourceTally, time: int) -> dict[str, Any]:
    """Of a semaphore the permits that were held on the average; of a token bucket the tokens taken per second."""
    used = tally.area / time if settings.kind == "semaphore" else tally.taken * SECOND / time
    limit = settings.permits if settings.kind == "semaphore" else settings.rate
    return {
        "resource": settings.name,
        "kind": settings.kind,
        "limit": limit,
        "used": round(used, DIGITS),
        "utilization": round(used / limit, DIGITS),
        "taken": tally.taken,
    }


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, DIGITS) if whole else 0.0
