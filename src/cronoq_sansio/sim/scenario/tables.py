"""Tables and time lines of plain text for a scenario's report."""

from collections.abc import Sequence
from typing import Any

MIN_TEXT = 6  #: characters to which a name is cut where a table is too wide
BARS = " ▁▂▃▄▅▆▇█"
COUNTS = (
    *("refused", "not started", "failed", "dead-lettered", "cancelled", "skipped", "missed", "shed", "unfinished"),
    *("retries", "late"),
)
"""Columns that say nothing where they are 0."""
WAITS = ("n", "mean", "p50", "p90", "p99", "max")

Row = Sequence[str]


def render(figures: dict[str, Any], width: int) -> str:
    """The whole report."""
    parts = [_head(figures)]
    parts.append("\n".join(f"note: {note}" for note in figures["notes"]))
    parts.append(_waits(figures["classes"], width))
    parts.append(_ends(figures["classes"], width))
    for build, name in (
        (_arrivals, "arrivals"),
        (_refusals, "refusals"),
        (_tenants, "tenants"),
        (_deadlines, "classes"),
        (_fixed_starts, "fixed_starts"),
        (_schedules, "schedules"),
        (_resources, "resources"),
        (_pools, "pools"),
    ):
        parts.append(build(figures[name], width))
    parts += [_line(pool, width) for pool in figures["pools"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def span(value: float | None) -> str:
    """A duration in the unit that suits it, with three digits."""
    if value is None:
        return "-"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7_200, 1 / 60, "min")):
        if value < limit:
            return f"{_three(value * factor)} {unit}" if value else "0"
    return f"{_three(value / 3_600)} h"


def number(value: float) -> str:
    """A count, or a figure with three digits."""
    return f"{value:,}" if isinstance(value, int) else _three(value)


def _three(value: float) -> str:
    if value >= 999.5:
        return f"{value:,.0f}"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def percent(share: float) -> str:
    """A share."""
    return f"{100 * share:.1f} %"


def table(title: str, head: Row, rows: Sequence[Row], texts: int, width: int) -> str:
    """A table whose first `texts` columns are names, to the left; the others are figures.

    Counts that are 0 in every row, and figures that nobody has, are left out.
    """
    if not rows:
        return ""
    empty = [{row[index] for row in rows} for index in range(len(head))]
    kept = [
        index
        for index, found in enumerate(empty)
        if index < texts or not found <= {"0" if head[index] in COUNTS else "", "-", ""}
    ]
    cells = [[row[index] for index in kept] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(kept))]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(range(min(texts, len(widths))), key=lambda column: widths[column])
        if widths[widest] <= MIN_TEXT:
            break
        widths[widest] -= 1
    lines = [title]
    for row in cells:
        shown = [
            _cut(cell, size).ljust(size) if column < texts else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  ".join(shown)).rstrip())
    return "\n".join(lines)


def spark(values: Sequence[float], top: float, columns: int) -> str:
    """A line of bars, the highest of which is `top`. Values that find no room are shown by the highest of them."""
    size = -(-len(values) // columns)
    folded = [max(values[at : at + size]) for at in range(0, len(values), size)]
    last = len(BARS) - 1
    return "".join(BARS[min(last, max(1, round(value / top * last)))] if value > 0 else BARS[0] for value in folded)


# --- the parts


def _head(figures: dict[str, Any]) -> str:
    text = f"{span(figures['duration_s'])} from {figures['start']}, seed {figures['seed']}: {figures['tasks']:,} tasks"
    if figures["warmup_s"]:
        text += f"; those of the first {span(figures['warmup_s'])} are not counted"
    if figures["stopped"]:
        text = f"STOPPED EARLY: {figures['stopped']}. What follows is what there was until then.\n{text}"
    return text


def _spread(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["0", "-", "-", "-", "-", "-"]
    return [number(found["count"]), *(span(found[name]) for name in WAITS[1:])]


def _waits(classes: Sequence[dict[str, Any]], width: int) -> str:
    head = ("pool", "class", "submitted", "refused", *WAITS, "not started", "for")
    rows = [
        [
            row["pool"],
            row["class"],
            number(row["submitted"]),
            number(row["refused"]),
            *_spread(row["wait"]),
            number(row["not_started"]),
            span(row["longest_not_started_s"]),
        ]
        for row in classes
    ]
    return table("WAITS until the first start", head, rows, 2, width)


def _ends(classes: Sequence[dict[str, Any]], width: int) -> str:
    names = ("succeeded", "failed", "dead_lettered", "cancelled", "skipped", "missed", "shed")
    head = (
        "pool",
        "class",
        *(name.replace("_", "-") for name in names),
        "unfinished",
        "retries",
        "in system p50",
        "p90",
        "p99",
    )
    rows = [
        [
            row["pool"],
            row["class"],
            *(number(row["ended"][name]) for name in names),
            number(row["unfinished"]),
            number(row["retries"]),
            *(span(row["in_system"][name] if row["in_system"] else None) for name in ("p50", "p90", "p99")),
        ]
        for row in classes
    ]
    return table("ENDS, and times from arrival to success", head, rows, 2, width)


def _arrivals(arrivals: Sequence[dict[str, Any]], width: int) -> str:
    head = ("arrivals", "submitted", "refused", "started", "wait p50", "wait p99", "succeeded", "in system p50", "p99")
    rows = [
        [
            row["arrivals"],
            *(number(row[name]) for name in ("submitted", "refused", "started")),
            *(span(row["wait"][name] if row["wait"] else None) for name in ("p50", "p99")),
            number(row["ended"]["succeeded"]),
            *(span(row["in_system"][name] if row["in_system"] else None) for name in ("p50", "p99")),
        ]
        for row in arrivals
    ]
    return table("ARRIVALS", head, rows, 1, width) if len(rows) > 1 else ""


def _refusals(refusals: Sequence[dict[str, Any]], width: int) -> str:
    rows = [[row["arrivals"], row["code"], number(row["count"])] for row in refusals]
    text = table("REFUSED", ("arrivals", "code", "tasks"), rows, 2, width)
    firsts = dict.fromkeys(row["first"] for row in refusals)
    return "\n".join((text, *(f"  first: {_cut(first, width - 9)}" for first in firsts))) if text else ""


def _tenants(tenants: Sequence[dict[str, Any]], width: int) -> str:
    head = ("pool", "tenant", "weight", "submitted", "refused", "work", "share", *WAITS)
    rows = [
        [
            row["pool"],
            row["tenant"] or '""',
            _three(row["weight"]),
            number(row["submitted"]),
            number(row["refused"]),
            span(row["work_s"]),
            percent(row["share"]),
            *_spread(row["wait"]),
        ]
        for row in tenants
    ]
    return table("TENANTS: share of the time on slots, and waits", head, rows, 2, width)


def _deadlines(classes: Sequence[dict[str, Any]], width: int) -> str:
    rows = []
    for row in classes:
        met, missed = row["deadlines_met"], row["deadlines_missed"]
        if met + missed:
            rows.append([row["pool"], row["class"], number(met), number(missed), percent(met / (met + missed))])
    return table("DEADLINES", ("pool", "class", "met", "missed", "met of all"), rows, 2, width)


def _fixed_starts(starts: Sequence[dict[str, Any]], width: int) -> str:
    head = ("pool", "on_miss", "due", "in time", "late", "missed", "not started", "late by p50", "by p99", "by max")
    rows = [
        [
            row["pool"],
            row["on_miss"],
            *(number(row[name]) for name in ("due", "in_time", "late", "missed", "waiting")),
            *(span(row["lateness"][name] if row["lateness"] else None) for name in ("p50", "p99", "max")),
        ]
        for row in starts
    ]
    return table("FIXED STARTS", head, rows, 2, width)


def _schedules(schedules: Sequence[dict[str, Any]], width: int) -> str:
    rows = []
    for row in schedules:
        dropped = ", ".join(f"{reason} {count}" for reason, count in row["dropped"].items())
        ended = [number(row["ended"][name]) for name in ("succeeded", "failed", "skipped", "missed")]
        rows.append([row["schedule"], number(row["submitted"]), number(row["started"]), *ended, dropped])
    head = ("schedule", "tasks", "started", "succeeded", "failed", "skipped", "missed", "dropped")
    return table("SCHEDULES", head, rows, 1, width)


def _resources(resources: Sequence[dict[str, Any]], width: int) -> str:
    rows = []
    for row in resources:
        if not row["taken"]:
            continue
        unit = "held" if row["kind"] == "semaphore" else "per s"
        figures = [f"{_three(row['used'])} {unit}", f"of {_three(row['limit'])}", percent(row["utilization"])]
        rows.append([row["resource"], row["kind"], *figures, number(row["taken"])])
    return table("RESOURCES", ("resource", "kind", "used", "limit", "utilization", "units taken"), rows, 2, width)


def _pools(pools: Sequence[dict[str, Any]], width: int) -> str:
    head = ("pool", "slots", "busy", "utilization", "queue mean", "longest", "at", "target min", "mean", "max")
    rows = []
    for row in pools:
        target = row["target"]
        rows.append(
            [
                row["pool"],
                _three(row["slots"]),
                _three(row["busy"]),
                percent(row["utilization"]),
                _three(row["queue"]),
                number(row["longest_queue"]),
                span(row["longest_queue_at_s"]),
                *((number(target[name]) for name in ("min", "mean", "max")) if target else ("-", "-", "-")),
            ]
        )
    return table("POOLS", head, rows, 1, width)


def _line(pool: dict[str, Any], width: int) -> str:
    line = pool["line"]
    columns = max(width - 24, 10)
    parts = -(-len(line["queue"]) // columns)
    lines = [f"{_cut(pool['pool'], width - 40)} over time, each column {span(line['part_s'] * parts)}"]
    shared = max(*line["busy"], *line["slots"], *(value or 0 for value in line["target"] or (0,)))
    for name, values, top in (
        ("queue", line["queue"], max(line["queue"])),
        ("busy", line["busy"], shared),
        ("slots", line["slots"], shared),
        ("target", line["target"], shared),
    ):
        if values is not None and any(values):
            known = _filled(values)
            bars = spark(known, top, columns).ljust(-(-len(values) // parts))
            lines.append(f"  {name:<7}{bars}  ≤ {_three(max(known))}")
    return "\n".join(lines) if len(lines) > 1 else ""


def _filled(values: Sequence[float | None]) -> list[float]:
    """Parts in which nobody looked are as the one before."""
    found: list[float] = []
    for value in values:
        found.append(value if value is not None else (found[-1] if found else 0.0))
    return found


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: max(size - 1, 0)] + "…"
