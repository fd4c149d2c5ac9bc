"""From a text to a `Scenario`, or to everything that is wrong with it.

    loaded = load_scenario(text)                  # what the file says; `loaded.config` names the configuration to read
    scenario = loaded.with_config(mapping)        # checked against that, which is a mapping as a TOML parser returns it
    report = run_scenario(scenario)               # run.py

Nothing is read here: files belong to the caller. Access, addresses and the store of the configuration have no meaning
in a scenario and are not looked at, so that no variable of the environment has to be set.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from cronoq_sansio.checks import check_labels, check_text
from cronoq_sansio.clock import SECOND, utc_text
from cronoq_sansio.engine.cron import compile_cron
from cronoq_sansio.limits import (
    CRON_END,
    MAX_CONFIG_FILE,
    MAX_SCENARIO_LOOKS,
    MAX_SCENARIO_TASKS,
    MAX_SCHEDULE_NAME,
    MAX_WORKER_NAME,
    MAX_WORKER_STREAMS,
)
from cronoq_sansio.service.registration import slot_cap
from cronoq_sansio.settings import LimitSettings, PoolSettings, Settings
from cronoq_sansio.settings_check import check_settings
from cronoq_sansio.settings_text import show
from cronoq_sansio.settings_walk import Problem, Walk
from cronoq_sansio.sim.scenario.arrivals import ArrivalReader
from cronoq_sansio.sim.scenario.keys import ARRAYS, COURSE, INNER_TABLES, NEEDS, RATES, START_RULE
from cronoq_sansio.sim.scenario.words import Arrivals, Course, Duration, Rate, Runs, Scenario, WorkerGroup
from cronoq_sansio.spec import DEFAULT_POOL, RetryOverride
from cronoq_sansio.toml import parse_toml

IGNORED = ("auth", "server", "store")
"""Tables of a configuration that a scenario does not look at."""
MAX_NAMED = 10  #: names that a message lists

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


class LoadedScenario:
    """What a scenario file says, before its configuration is known."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        found = document.get("config")
        self.config = found if isinstance(found, str) and found else None
        """The path of the configuration as it stands there; None = the built-in one."""

    def with_config(self, config: Mapping[str, object] | None = None) -> Scenario | tuple[Problem, ...]:
        """Check everything. `config`: the configuration as a mapping; None when the scenario names none.

        Returns every problem of both files; the paths of those of the configuration begin with its name.
        """
        looked_at = {name: found for name, found in (config or {}).items() if name not in IGNORED}
        budget = LimitSettings().max_payload_bytes
        settings = check_settings(looked_at, payload_budget=budget, cron_check=compile_cron)
        if isinstance(settings, Settings):
            return _Checker(self._document, settings).run()
        name = self.config or "the configuration"
        problems = _Checker(self._document, None).run()
        assert isinstance(problems, tuple)
        return problems + tuple(Problem(f"{name}: {problem.path}", problem.message) for problem in settings)


def load_scenario(text: str) -> LoadedScenario | tuple[Problem, ...]:
    """Read the text of a scenario file; a `Problem` when it is not TOML."""
    if len(text) > MAX_CONFIG_FILE:
        return (Problem("", f"larger than {MAX_CONFIG_FILE} characters; this is no scenario"),)
    try:
        return LoadedScenario(parse_toml(text))
    except RecursionError:
        return (Problem("", "nested too deeply"),)
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        return (Problem("", f"not valid TOML: {error}"),)


def read_start(text: str) -> int | None:
    """A time by RFC 3339 as Unix nanoseconds; None when it is none, or out of range."""
    if _RFC_3339.fullmatch(text) is None:
        return None
    try:
        unix = (datetime.fromisoformat(text.upper()) - _UNIX) // timedelta(microseconds=1) * 1_000
    except (ValueError, OverflowError):
        return None
    return unix if 0 <= unix < CRON_END else None


class _Checker(Walk):
    """One walk over one scenario."""

    inner: ClassVar = INNER_TABLES
    make: ClassVar = {
        "arrivals.duration": lambda values: Duration(**values),
        "recurring.duration": lambda values: Duration(**values),
        "arrivals.retry": lambda values: _retry(values),
    }

    def __init__(self, document: Mapping[str, object], settings: Settings | None) -> None:
        """`settings`: None when the configuration is wrong, so that only the scenario itself is looked at."""
        start = document.get("start")
        if isinstance(start, datetime):  # a TOML date stands for the text
            document = {**document, "start": start.isoformat()}
        super().__init__(document)
        self._settings = settings
        if settings is not None:
            self.limits = settings.limits
        self._duration = 0
        self._notes: list[str] = []

    def run(self) -> Scenario | tuple[Problem, ...]:
        values = self._keys(self.document, "", COURSE)
        arrays = {name: values.pop(name, None) or () for name in ("arrivals", "workers", "recurring")}
        course = Course(**values)
        self._duration = course.duration
        start = self._course(course)
        workers = self._workers(arrays["workers"])
        arrivals = self._arrivals(arrays["arrivals"], workers)
        runs = self._runs(arrays["recurring"])
        if self._settings is None:
            return tuple(self.problems)
        if not self.problems and not arrivals and not self._settings.recurring:
            self._wrong("arrivals", "missing, and the configuration has no [[recurring]]: nothing would happen")
        self._note_idle(arrivals, workers)
        if self.problems:
            return tuple(self.problems)
        settings = self._settings
        return Scenario(
            settings, course.duration, course.warmup, course.seed, start, arrivals, workers, runs, tuple(self._notes)
        )

    # --- the walk

    def _inner(self, found: Mapping[str, object], path: str, place: str) -> object:
        before = len(self.problems)
        if place.endswith(".duration"):
            self._check_distribution(found, path)
        made = super()._inner(found, path, place)
        if isinstance(made, Duration) and made.maximum < made.minimum:
            self._wrong(f"{path}.max_s", f"found {show(found['max_s'])}; allowed is at least min_s")
        return made if len(self.problems) == before else None

    def _check_distribution(self, found: Mapping[str, object], path: str) -> None:
        """Keys that belong to one distribution are required with it, and refused with another."""
        kind = found.get("distribution", "fixed")
        needs = NEEDS.get(kind) if isinstance(kind, str) else None
        if needs is None:
            return  # the walk says it
        for name in ("mean_s", "cv", "min_s", "max_s"):
            if name in needs and name not in found:
                self._wrong(f"{path}.{name}", f'missing; the distribution "{kind}" needs it')
            if name in found and name not in needs:
                self._wrong(f"{path}.{name}", f'has no meaning with the distribution "{kind}"; leave it out')

    def _tables(self, found: object, path: str, place: str) -> tuple[dict[str, Any], ...] | tuple[Rate, ...] | None:
        table = ARRAYS[place]
        if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
            self._wrong(path, f"found {show(found)}; allowed is an array of tables, each written [[{place}]]")
            return None
        if table is RATES:
            return self._rates(found, path)
        return tuple(self._keys(entry, f"{path}[{index}]", table) for index, entry in enumerate(found))

    def _rates(self, found: list[Mapping[str, object]], path: str) -> tuple[Rate, ...]:
        rates: list[Rate] = []
        for index, entry in enumerate(found):
            rate = Rate(**self._keys(entry, f"{path}[{index}]", RATES))
            if rates and rate.start <= rates[-1].start and "from_s" in entry:
                self._wrong(
                    f"{path}[{index}].from_s",
                    "is not later than that of the entry before; allowed is the order of time",
                )
            rates.append(rate)
        if not rates:
            self._wrong(path, "found an empty array; allowed is at least one entry")
        return tuple(rates)

    # --- rules between keys

    def _course(self, course: Course) -> int:
        start = read_start(course.start)
        if start is None:
            self._wrong("start", f"found {show(course.start)}; allowed is {START_RULE}")
            return 0
        if self._duration and start + course.duration > CRON_END:
            self._wrong("duration_s", f"the run would end after {utc_text(CRON_END)}, where no calendar reaches")
        if self._duration and course.warmup >= course.duration:
            self._wrong("warmup_s", "the run would be over by then; allowed is less than duration_s")
        if "config" in self.document and self.document["config"] == "":
            self._wrong("config", 'found ""; allowed is the path of a configuration file, not empty')
        return start

    def _window(self, path: str, values: Mapping[str, Any]) -> tuple[int, int]:
        """`from_s` and `until_s`."""
        start, end = values.get("start", 0), values.get("end", self._duration)
        if "end" in values and end <= start:
            self._wrong(f"{path}.until_s", "is not later than from_s; nothing would happen")
        elif self._duration and start >= self._duration:
            self._wrong(f"{path}.from_s", "the run is over by then; allowed is less than duration_s")
        return start, min(end, self._duration)

    def _pool(self, path: str, name: str) -> PoolSettings | None:
        """The pool of that name, after telling when there is none."""
        if self._settings is None:
            return None
        pools = {pool.name: pool for pool in self._settings.pools}
        found = pools.get(name or DEFAULT_POOL)
        if found is None:
            what = f"no pool is named {show(name or DEFAULT_POOL)}"
            self._wrong(f"{path}.pool", f"{what if name else f'missing, and {what}'}; known are {_listed(list(pools))}")
        return found

    def _workers(self, entries: tuple[dict[str, Any], ...]) -> tuple[WorkerGroup, ...]:
        groups: list[WorkerGroup] = []
        followed: dict[str, str] = {}
        for index, values in enumerate(entries):
            path = f"workers[{index}]"
            pool = self._pool(path, values.get("pool", ""))
            start, end = self._window(path, values)
            name = values.get("name", "")
            group = WorkerGroup(
                **{
                    **values,
                    "name": name or f"workers[{index}]",
                    "pool": pool.name if pool else "",
                    "start": start,
                    "end": end,
                }
            )
            groups.append(group)
            if len(name) > MAX_WORKER_NAME:
                self._wrong(f"{path}.name", f"has {len(name)} characters; allowed are at most {MAX_WORKER_NAME}")
            self._check_group(path, group, pool, values, followed)
        if sum(group.count for group in groups) > MAX_WORKER_STREAMS:
            total = sum(group.count for group in groups)
            self._wrong("workers", f"there are {total} of them; a server has at most {MAX_WORKER_STREAMS}")
        return tuple(groups)

    def _check_group(
        self,
        path: str,
        group: WorkerGroup,
        pool: PoolSettings | None,
        values: Mapping[str, Any],
        followed: dict[str, str],
    ) -> None:
        fault = check_labels(group.labels, self.limits)
        if fault is not None:
            self._wrong(f"{path}.labels", fault.message.removeprefix("labels: "))
        for field, name in (("look", "follow_every_s"), ("delay", "follow_delay_s")):
            if field in values and not group.follow:
                self._wrong(f"{path}.{name}", "has no meaning without follow = true; leave it out")
        for field, name in (("noticed", "crash_noticed_s"), ("restart", "restart_s")):
            if field in values and not group.crash:
                self._wrong(f"{path}.{name}", "has no meaning without crash_every_s; leave it out")
        if group.crash and group.noticed > group.restart:
            self._wrong(f"{path}.crash_noticed_s", "allowed is at most restart_s: who comes back is noticed")
        if pool is None:
            return
        most = slot_cap(pool, self.limits)
        if group.slots > most:
            why = "the least of the pool's max and max_slots_per_worker, and limits.max_slots_per_worker"
            self._wrong(
                f"{path}.slots", f"found {group.slots}; one worker of pool {pool.name!r} is granted {most}, {why}"
            )
        if not group.follow:
            return
        if not pool.autoscale:
            self._wrong(f"{path}.follow", f"pool {pool.name!r} has autoscale = false, so there is no target to follow")
        if self._duration // group.look > MAX_SCENARIO_LOOKS:
            least = -(-self._duration // MAX_SCENARIO_LOOKS) / SECOND
            self._wrong(f"{path}.follow_every_s", f"there would be too many looks; allowed is at least {least:g} here")
        if pool.name in followed:
            self._wrong(f"{path}.follow", f"{followed[pool.name]} follows the target of pool {pool.name!r} already")
        followed.setdefault(pool.name, path)

    def _arrivals(self, entries: tuple[dict[str, Any], ...], workers: tuple[WorkerGroup, ...]) -> tuple[Arrivals, ...]:
        reader = ArrivalReader(self._settings, self.limits, self._wrong, workers)
        arrivals: list[Arrivals] = []
        first: dict[str, str] = {}
        for index, values in enumerate(entries):
            path = f"arrivals[{index}]"
            if "name" in values:
                self._unique(values["name"], path, first)
            start, end = self._window(path, values)
            arrivals.append(reader.read(path, values, start, end))
        expected = [found.expected() for found in arrivals]
        if sum(expected) > MAX_SCENARIO_TASKS:
            index = expected.index(max(expected))
            total = "" if len(expected) == 1 else f", all together {sum(expected):,.0f}"
            self._wrong(
                f"arrivals[{index}]",
                f"brings about {expected[index]:,.0f} tasks{total}; a run has at most {MAX_SCENARIO_TASKS:,}:"
                " lower its rate or burst, or duration_s",
            )
        return tuple(arrivals)

    def _runs(self, entries: tuple[dict[str, Any], ...]) -> tuple[Runs, ...]:
        named: dict[str, Runs] = {}
        first: dict[str, str] = {}
        known = [] if self._settings is None else [spec.name for spec in self._settings.recurring]
        for index, values in enumerate(entries):
            path, name = f"recurring[{index}]", values.get("name", "")
            if "name" in values:
                self._unique(name, path, first)
                fault = check_text("", name, MAX_SCHEDULE_NAME)
                if self._settings is not None and (fault is not None or name not in known):
                    there = f"known are {_listed(known)}" if known else "there is no [[recurring]]"
                    self._wrong(f"{path}.name", f"the configuration has no schedule {show(name)}; {there}")
            named[name] = Runs(**values)
        if self._settings is None:
            return ()
        pools = {pool.name: pool for pool in self._settings.pools}
        found: list[Runs] = []
        for spec in self._settings.recurring:
            asked = spec.template.scheduling
            hint = asked.duration_hint if asked is not None else None
            usual = pools[spec.template.pool].default_duration if hint is None else hint
            if spec.name not in named:
                self._notes.append(
                    f"schedule {spec.name!r}: the scenario does not say how long its tasks run;"
                    f" {usual / SECOND:g} s is taken"
                )
            found.append(named.get(spec.name, Runs(spec.name, Duration("fixed", usual))))
        return tuple(found)

    def _note_idle(self, arrivals: tuple[Arrivals, ...], workers: tuple[WorkerGroup, ...]) -> None:
        """Schedules whose tasks nobody runs; that arrivals find workers is a rule."""
        if self._settings is None:
            return
        served = [group.pool for group in workers]
        for spec in self._settings.recurring:
            if spec.template.pool not in served:
                self._notes.append(f"schedule {spec.name!r}: no [[workers]] serve pool {spec.template.pool!r}")


def _retry(values: Mapping[str, Any]) -> RetryOverride | None:
    """A table that says nothing is as good as none."""
    unset = dict.fromkeys(("max_attempts", "initial_backoff", "multiplier", "max_backoff", "jitter"))
    return RetryOverride(**{**unset, **values}) if values else None


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
