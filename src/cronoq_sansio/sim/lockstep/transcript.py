"""One readable line per deed: what happened to a world, and when."""

from typing import Any

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.spec import DEFAULT_TOLERANCE, Condition, MissPolicy, Overlap, Priority, RecurringSpec, TaskSpec


def deed_line(deed: Any, start: int) -> str:
    """A deed of a world that began at `start`. Times are seconds since then."""
    name = type(deed).__name__
    if name == "Happened":
        return f"{seconds_since(deed.now, start)} {'; '.join(event_text(event) for event in deed.events) or 'nothing'}"
    if name == "Crashed":
        return f"{seconds_since(deed.now, start)} crashed, and recovered with wall offset {deed.wall_offset / SECOND:g}"
    return "         committed"


def seconds_since(now: int, start: int) -> str:
    """Seconds with as many digits as needed."""
    return f"{(now - start) / SECOND:>+8.9g}"


def event_text(event: ev.Event) -> str:
    """The event with those fields that say something."""
    if isinstance(event, ev.TaskSubmitted):
        return f"TaskSubmitted #{event.request} {spec_text(event.spec)}{' may wait' if event.may_wait else ''}"
    if isinstance(event, ev.BatchSubmitted):
        return f"BatchSubmitted #{event.request} [{' | '.join(map(spec_text, event.specs))}]"
    if isinstance(event, ev.RecurringPut):
        return f"RecurringPut #{event.request} {schedule_text(event.spec)}"
    return " ".join([type(event).__name__, *(str(field) for _, field in _fields(event))])


def spec_text(spec: TaskSpec) -> str:
    """Pool, class, and whatever is not the default."""
    words = [f"{spec.pool}/{Priority(spec.priority).name.lower()}"]
    words += [f"key={spec.key}"] * bool(spec.key)
    words += [f"kind={spec.kind}"] * bool(spec.kind)
    words += [f"timeout={(spec.timeout or 0) / SECOND:g}"] * (spec.timeout is not None)
    words += [f"{spec.size} bytes"]
    if spec.retry is not None:
        words.append(f"retry={_given(spec.retry)}")
    asked = spec.scheduling
    if asked is not None:
        for name in ("deadline", "deadline_in", "duration_hint", "start", "start_in"):
            given = getattr(asked, name)
            words += [f"{name}={(given or 0) / SECOND:.12g}"] * (given is not None)
        words += [f"tolerance={asked.tolerance / SECOND:g}"] * (asked.tolerance != DEFAULT_TOLERANCE)
        words += [f"if missed {MissPolicy(asked.on_miss).name}"] * (asked.on_miss != MissPolicy.RUN_LATE)
        words += [
            f"after {dependency.ref!r} {Condition(dependency.condition).name}" for dependency in asked.dependencies
        ]
        words += [f"{units} of {name}" for name, units in asked.resources]
        words += [f"needs {'='.join(label)}" for label in asked.labels]
        words += [f"tenant={asked.tenant}"] * bool(asked.tenant)
    return " ".join(words)


def schedule_text(spec: RecurringSpec) -> str:
    """Name, times, and what it makes."""
    words = [spec.name, repr(spec.cron), spec.tz or "UTC", Overlap(spec.overlap).name]
    words += [f"gap={spec.gap}"] * (spec.gap != "shift")
    words += [f"fold={spec.fold}"] * (spec.fold != "first")
    words += ["of the configuration"] * spec.configured
    return f"{' '.join(words)}: {spec_text(spec.template)}"


def _given(retry: Any) -> str:
    return ",".join(f"{name}={given}" for name, given in _fields(retry) if given is not None)


def _fields(of: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(of, name)) for name in type(of).__slots__]
