"""The report of a run, for people and as JSON. Pure: what is known comes in, text goes out."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cronoq_sansio.recording.replay import RecordingReport
from cronoq_sansio.sim.arguments import REPLAY, hung
from cronoq_sansio.sim.failure import Failure
from cronoq_sansio.sim.faults import BY_NAME, FAULTS, Coverage, names
from cronoq_sansio.sim.plants.planting import Bed
from cronoq_sansio.sim.progress import clock
from cronoq_sansio.sim.run import Report
from cronoq_sansio.sim.tally import JUDGED_SEEDS, JUDGED_STEPS, FoundPlant, Plants, Tally, Told

WIDTH = 100
NAMES = max(len(fault.name) for fault in FAULTS) + 2
"""The column of kinds of faults."""
CUT = 300
"""Characters of a line of details that people are shown; JSON has all of them."""
EXCERPT = 60
"""Lines of a transcript that the report shows, the last ones; the trace gives all of it again."""


def text(tally: Tally, note: str = "") -> str:
    """The whole report; `note` is a sentence about what was compared."""
    parts = [_summary(tally), *[failure_text(told) for told in tally.told]]
    if tally.others:
        parts.append(f"{_seeds(tally.others)} more failed in yet other ways.\n")
    if tally.options.coverage != "off" and (tally.report.seeds > 1 or "--coverage" in tally.options.given):
        parts.append(coverage_text(tally))
    parts.append((f"{note}\n" if note else "") + verdict(tally))
    return "\n".join(parts)


def _seeds(count: int) -> str:
    return f"{count:,} seed{'' if count == 1 else 's'}"


def _summary(tally: Tally) -> str:
    report = tally.report
    first = tally.options.seed
    worlds = ", ".join(f"{count:,} {world}" for world, count in sorted(tally.worlds.items(), reverse=True))
    events = ", ".join(f"{world} {count:,}" for world, count in sorted(report.events.items(), reverse=True))
    lines = [f"{_seeds(report.seeds)} from {first:,}" + (f" ({worlds})" if worlds else "")]
    lines.append(f"  {report.steps:,} steps, {tally.events:,} events" + (f" ({events})" if events else ""))
    if tally.events and tally.seconds > 0:
        lines.append(
            f"  {tally.events / tally.seconds:,.0f} events/s in {tally.jobs} process{'es' if tally.jobs > 1 else ''}, "
            f"{clock(tally.seconds)}; an event costs {tally.cpu / tally.events * 1e6:.1f} µs of a core "
            f"= {tally.yardsticks / tally.events:.2f} × sum(range(1000))"
        )
    if report.answered or report.refused:
        lines += [line.replace("\0", " ") for line in hung("  calls of whole servers: ", _calls(report), WIDTH)]
    lines.append(
        f"  hash {_hash(tally)}"
        + (f"; {_seeds(tally.compared)} compared with a second process" if tally.compared else "")
    )
    return "\n".join(lines) + "\n"


def _hash(tally: Tally) -> str:
    """Over all seeds; when a trace was played that of its seed, which is what a trace carries."""
    report = tally.report
    return next(iter(report.hashes.values()), "") if tally.options.mode == REPLAY else report.hash


def _calls(report: Report) -> str:
    refused = sorted(report.refused.items(), key=lambda item: (-item[1], item[0]))
    codes = ", ".join(f"{code}\0{calls:,}" for code, calls in refused)  # which may not be torn apart
    return f"{report.answered:,} answered, {sum(report.refused.values()):,} refused" + (f" ({codes})" if codes else "")


def failure_text(told: Told) -> str:
    """One failure: what, where, how to see it again, what happened last."""
    failure = told.failure
    lines = hung(f"{failure.kind.name}: ", failure.what, WIDTH)
    where = f"  seed {failure.seed}, step {failure.step:,}"
    if told.alike > 1:
        where += f"; {_seeds(told.alike)} failed like this, this is the first"
    lines.append(where)
    lines += [f"  {line if len(line) <= CUT else line[: CUT - 1] + '…'}" for line in failure.details.splitlines()]
    if told.again:
        lines.append(f"  again:  {told.again}")
    if told.trace:
        lines.append(f"  trace:  {told.trace}" + (f" ({_size(failure)})" if failure.trace.steps else ""))
    if told.short is not None and told.short_trace:
        lines.append(f"  short:  {told.short_trace} ({_size(told.short)})")
    shown = told.short or failure
    transcript = shown.transcript.rstrip("\n").splitlines()
    if transcript:
        lines.append(f"  what happened{' in the short one' if told.short else ''}:")
        if len(transcript) > EXCERPT:
            lines.append(f"    … {len(transcript) - EXCERPT:,} lines before")
        lines += [f"    {line}".rstrip() for line in transcript[-EXCERPT:]]
    return "\n".join(lines) + "\n"


def _size(failure: Failure) -> str:
    kinds = sum(rate > 0 for rate in failure.trace.rates.values())
    steps = len(failure.trace.steps)
    return f"{steps:,} step{'' if steps == 1 else 's'}, {kinds} kind{'' if kinds == 1 else 's'} of faults"


def coverage_text(tally: Tally) -> str:
    """How often each kind of fault struck, and what it met."""
    coverage = tally.report.coverage
    pairs = tally.options.coverage == "pairs"
    lines = [f"{'kind of fault':<{NAMES}}{'struck':>10}  {'met' if pairs else 'operations met'}"]
    for name in names(tally.report.faults):
        meets = BY_NAME[name].meets
        counts = {operation: coverage.counts.get((name, operation), 0) for operation in meets}
        met = sum(count > 0 for count in counts.values())
        head = f"{name:<{NAMES}}{sum(counts.values()):>10,}  "
        if pairs:
            lines += hung(head, ", ".join(f"{operation} {count:,}" for operation, count in counts.items()), 120)
        else:
            missing = [operation for operation, count in counts.items() if not count]
            told = f"{met} of {len(meets)}" + (f"; not {', '.join(missing)}" if missing else "")
            lines += hung(head, told, 120)
    return "\n".join(lines) + "\n"


def verdict(tally: Tally) -> str:
    """The last line: what the exit code says."""
    lines = []
    if tally.broken:
        lines.append(f"Broken off: {tally.broken}")
    if tally.interrupted:
        lines.append("Interrupted: this is what was found until then.")
    if tally.told:
        lines.append(f"{_seeds(tally.failed)} failed.")
    holes = tally.holes()
    if holes and not tally.told:
        lines += hung("Coverage has holes, these met nothing: ", "; ".join(holes), 120)
    if tally.report.refused and not tally.report.answered:
        lines.append("Every call was refused: this says next to nothing about the server.")
    if not (tally.broken or tally.interrupted or tally.told or holes):
        lines.append("Nothing was broken." + _unjudged(tally))
    return "\n".join(lines) + "\n"


def _unjudged(tally: Tally) -> str:
    if tally.options.coverage == "off" or not tally.report.faults or tally.report.seeds == 1:
        return ""
    if tally.worlds.get("server", 0) >= JUDGED_SEEDS and tally.options.steps >= JUDGED_STEPS:
        return ""
    return f" Coverage is judged from {JUDGED_SEEDS} seeds of whole servers with {JUDGED_STEPS} steps on."


def as_json(tally: Tally, note: str = "") -> str:
    """The same for programs; the keys are stable within a version of the product."""
    report = tally.report
    return dumped(
        {
            "first_seed": tally.options.seed,
            "seeds": report.seeds,
            "seeds_by_world": dict(sorted(tally.worlds.items())),
            "seeds_compared": tally.compared,
            "seeds_failed": tally.failed,
            "steps": report.steps,
            "events": tally.events,
            "events_by_world": dict(sorted(report.events.items())),
            "seconds": round(tally.seconds, 3),
            "jobs": tally.jobs,
            "us_per_event": _ratio(tally.cpu * 1e6, tally.events),
            "yardsticks_per_event": _ratio(tally.yardsticks, tally.events),
            "hash": _hash(tally),
            "calls_answered": report.answered,
            "calls_refused": dict(sorted(report.refused.items())),
            "faults": list(names(report.faults)),
            "coverage": coverage_json(report.coverage, report.faults),
            "holes": tally.holes(),
            "failures": [told_json(told) for told in tally.told],
            "note": note,
            "interrupted": tally.interrupted,
            "broken": tally.broken,
            "exit_code": tally.exit_code,
        }
    )


def _ratio(above: float, below: int) -> float | None:
    return round(above / below, 3) if below else None


def coverage_json(coverage: Coverage, faults: Iterable[str]) -> dict[str, dict[str, int]]:
    """Kind → operation → how often."""
    return {
        name: {operation: coverage.counts.get((name, operation), 0) for operation in BY_NAME[name].meets}
        for name in names(faults)
    }


def recording_json(found: RecordingReport) -> str:
    """What came of a recording, for programs."""
    return dumped(
        {
            "outcome": found.outcome,
            "detail": found.detail,
            "line": found.line,
            "steps": found.steps,
            "events": found.events,
            "state": found.state,
            "notes": list(found.notes),
            "exit_code": found.exit_code,
        }
    )


def told_json(told: Told) -> dict[str, Any]:
    """One failure."""
    failure = told.failure
    found: dict[str, Any] = {
        "kind": failure.kind.name.lower(),
        "what": failure.what,
        "details": failure.details,
        "seed": failure.seed,
        "step": failure.step,
        "seeds_alike": told.alike,
        "again": told.again,
        "trace": told.trace,
        "transcript": (told.short or failure).transcript,
    }
    if told.short is not None:
        found["short"] = {"trace": told.short_trace, "steps": len(told.short.trace.steps)}
    return found


_ACTIVE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")


def dumped(found: object) -> str:
    """JSON for a terminal or a program: indented, in the script of its texts, and nothing in it acts on a terminal."""
    return in_ascii(json.dumps(found, ensure_ascii=False, indent=2), _ACTIVE) + "\n"


def in_ascii(text: str, what: re.Pattern[str] = _FOREIGN) -> str:
    """The same JSON, with escapes for these characters."""
    return what.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] > "\x7f" else "\\u007f", text)


def faults_text() -> str:
    """What `--faults list` prints."""
    lines = ["Kinds of faults, and the operations that each can meet:", ""]
    for fault in FAULTS:
        lines += hung(f"{fault.name:<{NAMES}}", fault.what, WIDTH)
        lines += hung(" " * NAMES, f"meets {', '.join(fault.meets)}", WIDTH)
    return "\n".join(lines) + "\n"


def plants_text(beds: Mapping[str, Bed]) -> str:
    """What `--plant list` prints."""
    lines = [f"{sum(len(bed.plants) for bed in beds.values())} bugs that can be planted"]
    for title, bed in beds.items():
        lines += ["", f"{title}:"]
        for plant in bed.plants:
            lines += [f"  {plant.name}", *hung(" " * 6, plant.what, WIDTH)]
    return "\n".join(lines) + "\n"


def plants_found_text(plants: Plants) -> str:
    """What came of a search for planted bugs: a table, and of a single one how it was found."""
    width = max([len(found.name) for found in plants.found], default=0) + 2
    lines = [f"{'planted bug':<{width}}{'seeds':>6}  found as"]
    for found in plants.found:
        lines += hung(f"{found.name:<{width}}{found.seeds:>6,}  ", _found_as(found), 120)
    for told in plants.told:
        lines += ["", failure_text(told).rstrip("\n")]
    if plants.broken:
        lines += ["", f"Broken off: {plants.broken}"]
    if plants.interrupted:
        lines += ["", "Interrupted: this is what was found until then."]
    met = sum(found.is_found for found in plants.found)
    lines += ["", f"{met} of {len(plants.found)} planted bugs found."]
    return "\n".join(lines) + "\n"


def _found_as(found: FoundPlant) -> str:
    if found.failure is None:
        return "NOT FOUND" if found.seeds else "not looked for, the time was over"
    anyway = "FAILS WITHOUT THE BUG TOO: " if found.fails_anyway else ""
    return f"{anyway}{found.failure.kind.name.lower()}: {found.failure.what}"


def plants_json(plants: Plants) -> str:
    """The same for programs."""
    return dumped(
        {
            "plants": [
                {
                    "name": found.name,
                    "found": found.is_found,
                    "seeds": found.seeds,
                    "seed": found.failure.seed if found.failure is not None else None,
                    "kind": found.failure.kind.name.lower() if found.failure is not None else None,
                    "what": found.failure.what if found.failure is not None else None,
                    "fails_without": found.fails_anyway,
                }
                for found in plants.found
            ],
            "failures": [told_json(told) for told in plants.told],
            "interrupted": plants.interrupted,
            "broken": plants.broken,
            "exit_code": plants.exit_code,
        }
    )
