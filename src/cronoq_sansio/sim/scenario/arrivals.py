"""One entry of `[[arrivals]]`: held to the rules of a task on the wire, and to what the run itself knows.

A task of a scenario is read as the template of a schedule would be, so that no rule stands in two places.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cronoq_sansio.limits import MAX_SCHEDULE_NAME, MESSAGE_HEADROOM
from cronoq_sansio.settings import LimitSettings, Settings
from cronoq_sansio.settings_templates import Known, TemplateReader
from cronoq_sansio.sim.scenario.words import Arrivals, ArrivalSettings, Duration, Rate, WorkerGroup
from cronoq_sansio.spec import DEFAULT_POOL, Scheduling, TaskSpec

MARK = "scenario"
"""The tag by which the tasks of an entry are told from others."""

_TEMPLATE = (
    "pool",
    "kind",
    "priority",
    "tenant",
    "timeout",
    "retry",
    "deadline_in",
    "tolerance",
    "on_miss",
    "duration_hint",
    "labels",
    "resources",
)
_WHEN = {"rate": "rate_per_s", "every": "every_s", "rates": "rates"}


class ArrivalReader:
    """Reads one entry after the other."""

    def __init__(
        self,
        settings: Settings | None,
        limits: LimitSettings,
        wrong: Callable[[str, str], None],
        workers: Sequence[WorkerGroup],
    ) -> None:
        """`settings`: None when they are not known. `wrong` takes the path and the sentence of each problem."""
        self._settings = settings
        self._limits = limits
        self._wrong = wrong
        self._workers = workers

    def read(self, path: str, values: Mapping[str, Any], start: int, end: int) -> Arrivals:
        """The entry at `path`; of no use once a problem was told."""
        found = ArrivalSettings(**values)
        self._check_times(path, values, found)
        spec = None if self._settings is None else self._spec(path, values, found, self._settings)
        if found.rate is not None:
            rates: tuple[Rate, ...] = (Rate(0, found.rate),)
        else:
            rates = found.rates or ()
        return Arrivals(
            found.name,
            spec,
            found.duration or Duration(),
            found.failure_rate,
            rates,
            found.every or 0,
            found.burst,
            start,
            max(end, start),
        )

    def _check_times(self, path: str, values: Mapping[str, Any], found: ArrivalSettings) -> None:
        if found.name == "" and "name" in values:
            self._wrong(f"{path}.name", f'found ""; allowed are 1 to {MAX_SCHEDULE_NAME} bytes')
        given = [name for field, name in _WHEN.items() if field in values]
        if len(given) != 1:
            what = f"{' and '.join(given)} are set" if given else "nothing says when they arrive"
            self._wrong(path, f"{what}; allowed is exactly one of {', '.join(_WHEN.values())}")
        if "start_in" not in values:
            for field, name in (("tolerance", "tolerance_s"), ("on_miss", "on_miss")):
                if field in values:
                    self._wrong(f"{path}.{name}", "has no meaning without start_in_s; leave it out")

    def _spec(self, path: str, values: Mapping[str, Any], found: ArrivalSettings, settings: Settings) -> TaskSpec:
        pools = tuple(pool.name for pool in settings.pools)
        known = Known(self._limits, pools, {resource.name: resource.capacity for resource in settings.resources})
        asked = {field: values[field] for field in _TEMPLATE if field in values}
        read = TemplateReader(known, None, self._wrong).read(path, {"name": found.name or MARK, **asked}).template
        scheduling = read.scheduling
        if found.start_in is not None:
            scheduling = replace(scheduling or Scheduling(), start_in=found.start_in)
        elif scheduling == Scheduling():
            scheduling = None
        spec = replace(
            read,
            payload=bytes(found.payload_bytes) if found.payload_bytes <= self._limits.max_message_bytes else b"",
            tags=((MARK, found.name),),
            size=read.size + found.payload_bytes,
            scheduling=scheduling,
        )
        largest = self._limits.max_message_bytes - MESSAGE_HEADROOM
        if spec.size > largest:
            self._wrong(
                f"{path}.payload_bytes",
                f"a task would have {spec.size} bytes as encoded, at most {largest} are allowed"
                f" (limits.max_message_bytes less {MESSAGE_HEADROOM})",
            )
        if spec.pool in pools:
            self._check_served(path, spec)
        return spec

    def _check_served(self, path: str, spec: TaskSpec) -> None:
        """Somebody has to run them, or the run shows nothing but a queue."""
        there = [group for group in self._workers if group.pool == spec.pool]
        labels = spec.scheduling.labels if spec.scheduling is not None else ()
        if not there:
            pool = show_pool(spec.pool)
            self._wrong(f"{path}.pool", f"no [[workers]] serve {pool}: its tasks would wait for ever")
        elif not any(dict(group.labels).items() >= dict(labels).items() for group in there):
            asked = ", ".join(f"{name}={value}" for name, value in labels)
            self._wrong(
                f"{path}.labels",
                f"no [[workers]] of {show_pool(spec.pool)} carry {asked}: its tasks would wait for ever",
            )


def show_pool(name: str) -> str:
    """A pool in a message."""
    return f"the pool `{name or DEFAULT_POOL}`"
