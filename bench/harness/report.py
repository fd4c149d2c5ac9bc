"""The page with the figures: a hand-written template, in which every figure comes from the results of a run.

`{{name}}` in the template stands for a table or a value of `values`; a name that does not exist fails.
"""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import clients
from harness.engine_figures import ABOUT
from harness.rounds import CASES, Burst, Ratio, Results
from harness.targets import TARGETS, Measured, stream_ratio

PLACEHOLDER = re.compile(r"\{\{([a-z_0-9.]+)\}\}")
NOTE = "<!-- Written by `make bench` from bench/performance.template.md and bench/results.json: change those. -->\n\n"


def save(measured: Measured, path: Path) -> None:
    """Write everything measured, burst by burst."""
    path.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Measured:
    """Read what `save` wrote."""
    data = json.loads(path.read_text(encoding="utf-8"))
    server, client = _results(data["server"]), _results(data["client"])
    profiles, imports = data["profiles"], data["imports"]
    stream = data["stream"]
    return Measured(server, data["engine"], data["recovery"], profiles, client, imports, stream, data["machine"])


def _results(data: dict[str, Any]) -> Results:
    bursts = {
        case: {name: [Burst(**burst) for burst in rounds] for name, rounds in measured.items()}
        for case, measured in data["bursts"].items()
    }
    return Results(bursts, data["rss_mib"])


def render(template: str, measured: Measured) -> str:
    """The page."""
    known = values(measured)
    missing = sorted(set(PLACEHOLDER.findall(template)) - known.keys())
    if missing:
        raise SystemExit(f"the template names what was not measured: {', '.join(missing)}")
    return NOTE + PLACEHOLDER.sub(lambda found: known[found[1]], template)


def values(measured: Measured) -> dict[str, str]:
    """Everything that a template may name."""
    known = {f"machine.{name}": f"{fact}" for name, fact in measured.machine.items()}
    known |= {
        "machine": _machine(measured.machine),
        "targets": _targets(measured),
        "misses": _misses(measured),
        "server": _bursts(measured.server, {name: case.about for name, case in CASES.items()}, "server"),
        "latency": _latency(measured.server),
        "engine": _engine(measured.engine),
        "recovery": _recovery(measured.recovery),
        "profile": _profiles(measured.profiles),
        "client": _bursts(measured.client, clients.LOADS, "client"),
        "imports": _imports(measured.imports),
        "stream": _stream(measured.stream),
        "rounds": str(len(next(iter(next(iter(measured.server.bursts.values())).values())))),
    }
    for profile in measured.profiles:
        for ring, share in profile["rings"].items():
            name = re.sub(r"[^a-z0-9]+", "_", ring.lower()).strip("_")
            known[f"share.{profile['case']}.{profile['store']}.{name}"] = f"{share:.0%}"
    return known


def _stream(figures: dict[str, list[float]]) -> str:
    kinds = {"plain": "a bare echo", "http2": "one HTTP/2 stream"}
    rows = []
    for kind, about in kinds.items():
        medians = [statistics.median(figures[f"{kind}.{figure}"]) for figure in ("seconds", "cpu")]
        rows.append([about, *(f"{median * 1e3:.0f} ms" for median in medians)])
    ratios = [figure(stream_ratio(figures, name)) for name in ("seconds", "cpu")]
    return table(["a round", "time", "processor time of both ends"], [*rows, ["ratio", *ratios]])


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(ratio: Ratio) -> str:
    """A median, with spread and number of rounds where there were several."""
    if ratio.rounds == 1:
        return f"{ratio.median:.2f}"
    return f"{ratio.median:.2f} ({ratio.low:.2f} … {ratio.high:.2f}; {ratio.rounds} rounds)"


def _targets(measured: Measured) -> str:
    rows = []
    for target in TARGETS:
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g}"
        met = "yes" if target.met(measured) else f"no, by {target.miss(measured)}"
        rows.append([target.figure, figure(target.take(measured)), bound, met])
    return table(["figure", "measured", "target", "met"], rows)


def _misses(measured: Measured) -> str:
    missed = [
        f"- {target.figure}: missed by {target.miss(measured)}. {target.why}"
        for target in TARGETS
        if not target.met(measured)
    ]
    return "\n".join(missed) if missed else "Every target is met in this run."


def _machine(machine: dict[str, Any]) -> str:
    packages = ", ".join(
        f"{name} {machine[name]}" for name in ("trio", "anyio", "h2", "hpack", "protobuf", "grpcio") if name in machine
    )
    rows = [
        ["date", machine["date"]],
        ["processor", f"{machine['processor']}, {machine['processors']} of them visible"],
        ["memory", f"{machine['memory_gib']} GiB"],
        ["system", machine["system"]],
        ["load average before the run", machine["load"]],
        ["Python", machine["python"]],
        ["packages", packages],
        ["SQLite", machine["sqlite"]],
        ["h2load", machine["h2load"]],
        ["file system of the databases", machine["file_system"]],
        ["median commit (one row, WAL, synchronous=FULL)", f"{machine['commit_us']:,} µs"],
        ["median fsync of 4 KiB", f"{machine['fsync_us']:,} µs"],
    ]
    return table(["", ""], rows)


def _bursts(results: Results, about: Mapping[str, str], what: str) -> str:
    """`about`: what each load is; `what`: what is compared with the first of its kind."""
    rows, base = [], ""
    for case, measured in results.bursts.items():
        base = next(iter(measured))
        for number, name in enumerate(measured):
            cpu, rate = results.ratio(case, name, base, "cpu_us"), results.ratio(case, name, base, "rate")
            rows.append(
                [
                    about[case] if number == 0 else "",
                    f"`{name}`",
                    f"{results.median(case, name, 'cpu_us'):,.0f}",
                    f"{cpu.median:.2f} ({cpu.low:.2f} … {cpu.high:.2f})",
                    f"{results.median(case, name, 'rate'):,.0f}",
                    f"{rate.median:.2f} ({rate.low:.2f} … {rate.high:.2f})",
                ]
            )
    return table(["load", what, "µs of CPU per call", f"of `{base}`'s", "calls per second", f"of `{base}`'s"], rows)


def _latency(results: Results) -> str:
    servers = results.bursts["keyed"]
    rows = [
        [f"`{name}`", *(f"{results.median('keyed', name, quantile):,.0f}" for quantile in ("p50_us", "p99_us"))]
        for name in servers
    ]
    return table(["server", "median, µs", "99 of 100 within, µs"], rows)


def _engine(figures: Mapping[str, Sequence[float]]) -> str:
    rows = [[about, figure(Ratio.of(figures[name]))] for name, about in ABOUT.items()]
    return table(["figure", "measured"], rows)


def _recovery(figures: dict[str, float]) -> str:
    rows = [
        ["live tasks in the file", f"{figures['tasks']:,.0f}"],
        ["recovered per second", f"{figures['recovered_per_second']:,.0f}"],
        ["rows per second that sqlite3 alone reads", f"{figures['read_per_second']:,.0f}"],
    ]
    return table(["figure", "measured"], rows)


def _imports(figures: dict[str, float]) -> str:
    rows = [
        [f"`import {module}`", f"{figures[figure]:.0f}"]
        for module, figure in zip(clients.IMPORTS, ("trio_ms", "client_ms"), strict=True)
    ]
    return table(["in a fresh interpreter", "ms"], rows)


def _profiles(profiles: list[dict[str, Any]]) -> str:
    rings: list[str] = []
    for profile in profiles:
        rings += [ring for ring in profile["rings"] if ring not in rings]
    traffic = {"submit": "Submit", "one": "Submit 1 × 1", "drain": "stream"}
    head = ["ring", *(f"{traffic[profile['case']]}, {profile['store']}" for profile in profiles)]
    rows = [[ring, *(f"{profile['rings'].get(ring, 0):.0%}" for profile in profiles)] for ring in rings]
    rows.append(["µs of CPU per call", *(f"{profile['cpu_us']:.0f}" for profile in profiles)])
    rows.append(["samples", *(f"{profile['samples']}" for profile in profiles)])
    return table(head, rows)
