"""What the benchmarks say of what they measured: ratios round by round, targets, the page, refusals."""

import json
import re
import sys
from dataclasses import replace

import pytest
from harness import load, machine, report, rounds
from harness.rounds import Burst, Ratio, Results
from harness.targets import TARGETS
from profile_rings import REST, ring_of

from tests.tidy.tree import ROOT

BENCH = ROOT / "bench"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def measured():
    return report.load(BENCH / "results.json")


def test_ratios_are_taken_round_by_round():
    # The machine was half as fast in the second round; the median of each server alone would say 1.5 and 0.6.
    results = Results({"submit": {"aio": [Burst(1, 100), Burst(1, 200)], "ours": [Burst(2, 50), Burst(3, 100)]}})
    assert results.ratio("submit", "ours", "aio", "cpu_us") == Ratio(0.5, 0.5, 0.5, 2)
    assert results.ratio("submit", "ours", "aio", "rate") == Ratio(2.5, 2, 3, 2)


def test_the_page_is_what_the_results_say():
    template = (BENCH / "performance.template.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page == report.render(template, measured()), "python bench/run.py --render"


def test_no_figure_of_the_page_is_typed_by_hand():
    template = (BENCH / "performance.template.md").read_text(encoding="utf-8")
    text = re.sub(r"\{\{.*?\}\}|^    .*$|```.*?```|`[^`]*`", "", template, flags=re.MULTILINE)
    # h2, HTTP/2 and the description of the loads are no figures.
    assert re.findall(r"\d[\d.,]*\s*(?:%|µs|ms|s\b|MiB|KiB|times|×)", text) == []


def test_a_name_that_was_not_measured_is_refused():
    with pytest.raises(SystemExit, match=r"not measured: share\.nothing"):
        report.render("{{machine}} {{share.nothing}}", measured())


def test_results_survive_the_file(tmp_path):
    report.save(measured(), tmp_path / "results.json")
    assert report.load(tmp_path / "results.json") == measured()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.figure[:60])
def test_every_target_is_measured_and_judged(target):
    whole = measured()
    median = target.take(whole).median
    assert median > 0
    better, worse = (median * 0.9, median * 1.1) if target.at_least else (median * 1.1, median * 0.9)
    assert replace(target, bound=better).met(whole)
    assert not replace(target, bound=worse).met(whole)
    assert replace(target, bound=median / 2).miss(whole) == "100%"


def test_a_miss_is_explained():
    whole = measured()
    slow = replace(whole, recovery=whole.recovery | {"ratio": 0.1})
    said = report.values(slow)["misses"]
    (target,) = [target for target in TARGETS if "recovery" in target.figure]
    assert f"{target.figure}: missed by 50%. {target.why}" in said
    assert "no, by 50%" in report.values(slow)["targets"]


# --- rings


@pytest.mark.parametrize(
    ("path", "ring"),
    [
        ("src/cronoq_sansio/engine/dispatch.py", "engine"),
        ("src/cronoq_sansio/outbox.py", "service and outbox"),
        ("src/cronoq_sansio/wire/protobuf_worker.py", "protobuf"),
        ("src/cronoq_sansio/wire/http2.py", "wire: gRPC"),
        ("site-packages/h2/connection.py", "h2, hpack, hyperframe"),
        ("src/cronoq/_runtime/transport.py", "sockets"),
        ("src/cronoq/_stores/sqlite_writer.py", "store, on the loop's side"),
        ("site-packages/trio/_core/_run.py", "trio"),
        ("lib/python3.11/heapq.py", ""),
        ("src/cronoq_sansio/clock.py", ""),
    ],
)
def test_rings(path, ring):
    assert ring_of(f"/anywhere/{path}") == ring


def test_the_server_has_no_code_outside_the_rings():
    """But the shared words, which count for their callers, clients, the command line, stubs and the simulator."""
    client = ("/_client/", "/cronoq_sansio/worker/", "/cronoq/client.py", "/cronoq/worker.py", "/cronoq/handlers.py")
    rest = ("/cronoq/testing.py", "/_cli/", "/_proto/", "/cronoq/config.py", "/cronoq/errors.py", "/__init__.py")
    outside = (*client, *rest, "/__main__.py", "/cronoq_sansio/sim/")
    for path in (ROOT / "src").rglob("*.py"):
        name = f"/{path.relative_to(ROOT).as_posix()}"
        shared = path.parent.name == "cronoq_sansio"
        assert ring_of(name) not in ("", REST) or shared or any(part in name for part in outside), name


# --- refusals


@linux
def test_a_file_system_in_memory_is_refused():
    assert machine.file_system(machine.Path("/proc")) == "proc"
    shared = machine.Path("/dev/shm")
    if machine.file_system(shared) != "tmpfs":
        pytest.skip("no tmpfs to try")
    with pytest.raises(SystemExit, match="lies on tmpfs, where a commit costs nothing"):
        machine.work_folder("/dev/shm")


def test_a_missing_h2load_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="install nghttp2-client"):
        machine.h2load_version()


def test_a_server_that_did_not_do_the_work_is_not_measured(monkeypatch):
    class Fake:
        name, port = "fake", 1

        def log(self):
            return "last words"

    monkeypatch.setattr(load, "child", lambda kind, port: {"submitted": 41})
    rounds.verify(Fake(), 41)
    with pytest.raises(SystemExit, match="accepted 41 of 42 tasks"):
        rounds.verify(Fake(), 42)
    monkeypatch.setattr(load, "child", lambda kind, port: {})
    rounds.verify(Fake(), 42)


def test_the_results_are_of_one_run():
    data = json.loads((BENCH / "results.json").read_text(encoding="utf-8"))
    lengths = {len(bursts) for servers in data["server"]["bursts"].values() for bursts in servers.values()}
    assert len(lengths) == 1, "every server had the same number of rounds"
    assert data["machine"]["file_system"] not in machine.IN_MEMORY
