"""Decision traces as files: what is written is read and played again, what is damaged is refused."""

import json
import re

import pytest
from hypothesis import given, strategies

from cronoq_sansio.sim import trace
from cronoq_sansio.sim.failure import Kind, Trace
from cronoq_sansio.sim.faults import FAULTS, OFF
from cronoq_sansio.sim.run import acts_of, replay, run_seed
from tests.sim.bugs import on_lost_reports, plant

RATES = {fault.name: OFF for fault in FAULTS} | {"report lost": 8}
ACTS = acts_of("server", 17)
SUBMIT, COMMIT = ACTS.index("submit"), ACTS.index("commit")
GOOD = trace.Written(
    Trace("server", 17, RATES, [[SUBMIT, 0, 1], [COMMIT, 2], []], "", "61c3"),
    "5f0c",
    Kind.SAFETY,
    'two "leases" für ein\nTask',
    3,
)
TEXT = trace.encode(GOOD)


def test_one_step_a_line_and_a_first_line_that_says_what_it_is():
    lines = TEXT.splitlines()
    assert trace.is_trace(lines[0]) and lines[-4:] == ['["submit",0,1],', '["commit",2],', "[]", "]}"]
    assert json.loads(TEXT)["seed"] == 17


def test_what_is_written_is_read_again():
    assert trace.decode(TEXT) == GOOD
    odd = trace.Written(GOOD.trace, "", Kind.SAFETY, "\ud800 \u2028 \x00", 1)
    text = trace.encode(odd)
    assert trace.decode(text.encode().decode()) == odd and len(text.split("\n")) == len(TEXT.split("\n"))


@given(
    steps=strategies.lists(strategies.lists(strategies.integers(0, trace.MAX_PICK), max_size=4), max_size=6),
    rates=strategies.dictionaries(strategies.sampled_from(list(RATES)), strategies.integers(0, trace.MAX_RATE)),
    seed=strategies.integers(0, trace.MAX_SEED),
    kind=strategies.sampled_from([None, *Kind]),
    words=strategies.text(max_size=30),
)
def test_everything_that_is_written_is_read_again(steps, rates, seed, kind, words):
    whole = {name: rates.get(name, OFF) for name in RATES}
    what = words if kind is not None else ""
    acts = acts_of("lockstep", seed)
    steps = [[acts.index(acts[picks[0] % len(acts)]), *picks[1:]] if picks else [] for picks in steps]
    written = trace.Written(Trace("lockstep", seed, whole, steps, "", words), words, kind, what, len(what))
    assert trace.decode(trace.encode(written)) == written


def test_a_line_can_be_taken_out():
    lines = TEXT.splitlines()
    del lines[-3]
    assert trace.decode("\n".join(lines)).trace.steps == [[SUBMIT, 0, 1], []]


def test_kinds_that_are_not_named_are_off():
    text = re.sub(r'"rates": \{.*?\}', '"rates": {"zombie": 4}', TEXT)
    assert trace.decode(text).trace.rates == dict.fromkeys(RATES, OFF) | {"zombie": 4}


def line_of(words):
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if words in line)


DAMAGED = [
    (lambda t: "", 1, "the file ends in the middle"),
    (lambda t: t[: len(t) // 2], None, "is no JSON|ends in the middle"),
    (lambda t: t[:-4], None, "the file ends in the middle"),
    (lambda t: "[]", 1, "one JSON object"),
    (lambda t: t.replace(",2],", ",2]"), line_of(",2],") + 1, "a comma is missing before this step"),
    (lambda t: t.replace("[]\n]", "]"), line_of(",2],") + 1, "the last step is not followed by a comma"),
    (lambda t: t.replace(",2]", ",-1]"), line_of(",2]"), "step 2 is an act and .* -1\\]"),
    (lambda t: t.replace(",2]", ",2.0]"), line_of(",2]"), "step 2 is an act and"),
    (lambda t: t.replace(",2]", ",true]"), line_of(",2]"), "step 2 is an act and"),
    (lambda t: t.replace('["commit",2]', "2"), line_of(",2]"), "step 2 is an act and"),
    (
        lambda t: t.replace('["commit"', '["omit"'),
        line_of(",2]"),
        'step 2 begins with "omit", which is no act .* known: submit,',
    ),
    (lambda t: t.replace('"commit",', ""), line_of(",2]"), "step 2 begins with 2, which is no act"),
    (lambda t: t.replace(",2]", ",2147483648]"), line_of(",2]"), "from 0 to 2,147,483,647"),
    (lambda t: t.replace(",2]", f",{'9' * 5_000}]"), line_of(",2]"), "an integer of 5,000 digits"),
    (lambda t: t.replace(",2]", ",NaN]"), line_of(",2]"), "NaN is no number"),
    (lambda t: t.replace(",2]", "," + "[" * 100_000), 1, "stand in each other too deep"),
    (lambda t: t.replace('"version": 1', '"version": 2'), 1, "version is 1: this program reads no other, not 2"),
    (lambda t: t.replace(trace.FORMAT, "other"), 1, 'format is "cronoq-simulation-trace", not "other"'),
    (lambda t: t.replace('"server"', '"moon"'), 2, 'world is one of server, lockstep, isolation, not "moon"'),
    (lambda t: t.replace('"seed": 17', '"seed": -1'), 2, "seed is an integer from 0"),
    (lambda t: t.replace('"plant": ""', '"plant": "x"'), line_of("plant"), "plant is a planted bug"),
    (lambda t: t.replace('"scan": 0', '"scan": 0.5'), line_of("scan"), "scan is an integer from 0 to 1,000,000"),
    (lambda t: t.replace('"safety"', '"odd"'), line_of("failure"), "kind is one of safety, liveness, divergence"),
    (lambda t: t.replace('"step": 3', '"step": "3"'), line_of("failure"), "step is an integer"),
    (lambda t: re.sub(r'"failure": .*', '"failure": 1,', t), line_of("failure"), "failure is an object"),
    (lambda t: t.replace('"report lost": 8', '"report lost": 0.5'), line_of("rates"), "report lost is an integer"),
    (lambda t: t.replace('"report lost"', '"report found"'), line_of("rates"), 'rates has no "report found"'),
    (lambda t: re.sub(r'"rates": .*', '"rates": [],', t), line_of("rates"), "rates is an object"),
    (lambda t: t.replace('"hash": "61c3"', '"hash": null'), line_of("hash"), "hash is a text"),
    (lambda t: t.replace(' "hash"', ' "seed": 18,\n "hash"'), 2, '"seed" stands there twice'),
    (lambda t: t.replace(' "hash"', ' "more": 1,\n "hash"'), line_of("hash"), 'the trace has no "more"'),
    (lambda t: t.replace(' "hash": "61c3",\n', ""), 1, "the trace lacks 'hash'"),
    (lambda t: re.sub(r'"steps": .*', '"steps": {}}', t, flags=re.DOTALL), line_of('"steps"'), "steps is an array"),
]


@pytest.mark.parametrize(("damage", "line", "words"), DAMAGED)
def test_damage_is_named_with_its_line(damage, line, words):
    text = damage(TEXT)
    assert text != TEXT
    with pytest.raises(trace.TraceError, match=words) as caught:
        trace.decode(text)
    assert str(caught.value).startswith(f"line {line or ''}")


def test_a_file_without_end_is_not_read(monkeypatch):
    monkeypatch.setattr(trace, "MAX_BYTES", 100)
    with pytest.raises(trace.TraceError, match="longer than 100 bytes"):
        trace.decode(TEXT)


@given(strategies.integers(0, len(TEXT)), strategies.integers(0, len(TEXT)), strategies.text(max_size=3))
def test_whatever_is_damaged_is_refused_in_one_way(first, second, words):
    damaged = TEXT[: min(first, second)] + words + TEXT[max(first, second) :]
    try:
        trace.decode(damaged)
    except trace.TraceError as error:
        assert str(error).isprintable()


def test_a_failed_seed_is_the_same_run_from_its_file(monkeypatch):
    name = plant(monkeypatch, "loses", on_lost_reports)
    failure = next(found for seed in range(9) if (found := run_seed(seed, steps=300, plant=name).failure))
    text = trace.encode(trace.of_failure(failure))
    read = trace.decode(text, [name])
    assert trace.encode(read) == text and read.trace.hash
    again = replay(read.trace)
    assert (again.failure.kind, again.failure.what, again.failure.step) == (failure.kind, failure.what, failure.step)
    assert again.hash == failure.trace.hash and again.failure.transcript
