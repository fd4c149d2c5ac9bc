"""The command of the simulator with files of others: recordings of production, and scenarios."""

import io
import json

import pytest

from cronoq_sansio.sim import __main__ as command
from cronoq_sansio.sim import trace
from cronoq_sansio.sim.failure import Kind, Trace
from tests.recording.recorded import Term


@pytest.fixture
def recording(sim):
    """Of a term with a few tasks."""
    term = Term()
    term.submit(key="a")
    term.commit()
    lines = term.end()
    path = sim.folder / "term.jsonl"
    path.write_text("".join(lines))
    return path


def test_a_recording_is_replayed(sim, recording):
    done = sim("--replay", "term.jsonl")
    assert done.code == 0 and done.out.startswith("same after ")
    found = sim("--replay", "term.jsonl", "--json").json
    assert found["outcome"] == "same" and found["steps"] == 2 and found["exit_code"] == 0


def test_a_recording_that_decides_otherwise_now(sim, recording):
    text = recording.read_text()
    recording.write_text(text.replace('"default"', '"another"', 1))
    assert sim("--replay", "term.jsonl").code == 5


@pytest.mark.parametrize("junk", ["{", "\xff", '{"x": NaN}'])
def test_a_recording_that_is_damaged(sim, recording, junk):
    lines = recording.read_text().splitlines(keepends=True)
    recording.write_text("".join([*lines[:2], f"{junk}\n", *lines[2:]]), encoding="latin-1")
    done = sim("--replay", "term.jsonl")
    assert done.code == 2 and done.err.startswith("Error: term.jsonl cannot be replayed: line 3: ") and not done.out


def test_a_recording_is_not_shrunk(sim, recording):
    done = sim("--replay", "term.jsonl", "--shrink")
    assert done.code == 2 and "a recording is replayed as it is" in done.err


SCENARIO = """config = "pools.toml"
duration_s = 20

[[arrivals]]
name = "work"
pool = "small"
rate_per_s = 2
duration = { mean_s = 0.1 }

[[workers]]
pool = "small"
slots = 2
"""


@pytest.fixture
def scenario(sim):
    folder = sim.folder / "below"
    folder.mkdir()
    (folder / "work.toml").write_text(SCENARIO)
    (folder / "pools.toml").write_text('[[pools]]\nname = "small"\n')
    return folder


def test_a_scenario_with_the_configuration_beside_it(sim, scenario):
    done = sim("--scenario", "below/work.toml")
    assert done.code == 0 and "WAITS until the first start" in done.out and "small" in done.out
    assert sim("--scenario", "below/work.toml", "--json").json["duration_s"] == 20


def test_what_is_wrong_with_a_scenario(sim, scenario):
    (scenario / "work.toml").write_text(SCENARIO.replace("duration_s", "duration").replace("slots = 2", "slots = 0"))
    done = sim("--scenario", "below/work.toml")
    assert done.code == 2 and not done.out
    lines = done.err.splitlines()
    assert len(lines) > 1 and all(line.startswith("Error: below/work.toml: ") for line in lines)
    (scenario / "work.toml").write_text(SCENARIO)
    (scenario / "pools.toml").write_text("[[pools")
    assert sim("--scenario", "below/work.toml").err.startswith("Error: below/pools.toml is not valid TOML: ")
    (scenario / "pools.toml").unlink()
    assert sim("--scenario", "below/work.toml").err.startswith("Error: below/pools.toml cannot be read: No such file")
    (scenario / "work.toml").write_text("x" * (2 << 20))
    assert "is longer than 1,048,576 bytes" in sim("--scenario", "below/work.toml").err
    (scenario / "work.toml").write_text("\ufeff" + SCENARIO)
    assert "begins with a byte order mark" in sim("--scenario", "below/work.toml").err
    (scenario / "work.toml").write_text(SCENARIO.replace("pools.toml", "a\\u0000b"))
    done = sim("--scenario", "below/work.toml")
    assert done.code == 2 and r"a\u{0}b cannot be read: no file has a NUL in its name" in done.err


def test_what_a_file_says_does_nothing_to_a_terminal(sim):
    written = trace.Written(Trace("server", 0, {}, []), "", Kind.SAFETY, "\x1b]0;x\x07evil\ud800", 0)
    text = trace.encode(written).replace("\ud800", r"\ud800")
    (sim.folder / "odd.json").write_text(text)
    done = sim("--replay", "odd.json")
    assert "\x1b" not in done.out and r"\u{1b}]0;x\u{7}evil\u{d800}" in done.out


def test_json_stays_json_whatever_a_file_says_and_a_terminal_speaks(sim, monkeypatch):
    what = "\x7f\x9b\u202e\u2028µ…😀"
    written = trace.Written(Trace("server", 0, {}, []), "", Kind.SAFETY, what, 0)
    (sim.folder / "odd.json").write_text(trace.encode(written), encoding="utf-8")
    done = sim("--replay", "odd.json", "--json")
    assert done.json["note"].endswith(f"{what}.") and "µ…😀" in done.out
    assert not set(what[:4]) & set(done.out)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert command.main(["--replay", "odd.json", "--json"]) == 0
    out.seek(0)
    assert json.loads(out.read())["note"].endswith(f"{what}.")
