"""What may stand in a scenario: every problem at once, each with its place, what was found and what is allowed."""

import tomllib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MAX_CONFIG_FILE
from cronoq_sansio.settings_keys import Kind
from cronoq_sansio.settings_walk import Problem
from cronoq_sansio.sim.scenario import keys as scenario_keys
from cronoq_sansio.sim.scenario.load import LoadedScenario, load_scenario, read_start
from cronoq_sansio.sim.scenario.words import Duration, Rate, Scenario
from tests.sim.scenarios import problems, scenario

CONFIG = """
[[pools]]
name = "a"
max = 4
[[pools]]
name = "off"
autoscale = false
[[resources]]
name = "db"
kind = "semaphore"
permits = 3
[[recurring]]
name = "nightly"
cron = "0 3 * * *"
pool = "a"
"""
TOP = "duration_s = 60\n"
ONE = '[[arrivals]]\nname = "x"\npool = "a"\nrate_per_s = 1\nduration = { mean_s = 1 }\n'
WORKERS = '[[workers]]\npool = "a"\n'
WHOLE = TOP + ONE + WORKERS


def one(changes):
    """The only sentence about the whole scenario with these lines in its entry of `[[arrivals]]`."""
    (sentence,) = problems(TOP + ONE + changes + "\n" + WORKERS, CONFIG)
    return sentence


def test_a_whole_one():
    found = scenario(WHOLE, CONFIG)
    (arrivals,), (workers,), (runs,) = found.arrivals, found.workers, found.runs
    assert (found.duration, found.warmup, found.seed) == (60 * SECOND, 0, 1)
    assert (arrivals.spec.pool, arrivals.rates, arrivals.end) == ("a", (Rate(0, 1.0),), 60 * SECOND)
    assert (workers.pool, workers.count, workers.slots, workers.end) == ("a", 1, 1, 60 * SECOND)
    assert runs.duration == Duration("fixed", 1 * SECOND)
    assert found.notes == ("schedule 'nightly': the scenario does not say how long its tasks run; 1 s is taken",)


def test_without_a_configuration_there_is_one_pool():
    found = scenario(TOP + '[[arrivals]]\nname = "x"\nevery_s = 1\nduration = { mean_s = 1 }\n[[workers]]\n')
    assert found.arrivals[0].spec.pool == "default"


def test_everything_is_told_at_once():
    text = """
        duraton_s = 5
        warmup_s = -1
        seed = "x"
        start = "yesterday"
        [[arrivals]]
        rate_per_s = -2
        pool = "b"
        labels = { zone = 3 }
        [[workers]]
        count = 0
        pool = "c"
        [[recurring]]
        name = "hourly"
        duration = { distribution = "normal" }
        """
    assert problems(text, CONFIG) == [
        "duraton_s: unknown key; did you mean `duration_s`?",
        "duration_s: missing; required is a number of seconds from 0.001 to 31536000",
        "warmup_s: found -1; allowed is a number of seconds from 0 to 31536000",
        'seed: found "x"; allowed is an integer from 0 to 1000000000000',
        "arrivals[0].name: missing; required is 1 to 256 bytes without NUL characters",
        "arrivals[0].rate_per_s: found -2; allowed is a number from 0.000000001 to 1000000",
        "arrivals[0].duration: missing; required is a table",
        "arrivals[0].labels.zone: found 3; allowed is text",
        "workers[0].count: found 0; allowed is an integer from 1 to 4096",
        'recurring[0].duration.distribution: found "normal"; allowed is "fixed" or "exponential" or "uniform" or'
        ' "lognormal"',
        f'start: found "yesterday"; allowed is {scenario_keys.START_RULE}',
        'workers[0].pool: no pool is named "c"; known are a, off',
        "arrivals[0]: nothing says when they arrive; allowed is exactly one of rate_per_s, every_s, rates",
        'arrivals[0].pool: no pool is named "b"; known are a, off',
        'recurring[0].name: the configuration has no schedule "hourly"; known are nightly',
    ]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            "every_s = 2",
            "arrivals[0]: rate_per_s and every_s are set; allowed is exactly one of rate_per_s, every_s, rates",
        ),
        ("burst = 0", "arrivals[0].burst: found 0; allowed is an integer from 1 to 1000000"),
        ("until_s = 0", "arrivals[0].until_s: is not later than from_s; nothing would happen"),
        ("from_s = 60", "arrivals[0].from_s: the run is over by then; allowed is less than duration_s"),
        ("failure_rate = 1.5", "arrivals[0].failure_rate: found 1.5; allowed is a number from 0 to 1"),
        (
            'priority = "urgent"',
            'arrivals[0].priority: found "urgent"; allowed is "critical" or "high" or "normal" or "low"',
        ),
        ("tolerance_s = 1", "arrivals[0].tolerance_s: has no meaning without start_in_s; leave it out"),
        ("resources = { cpu = 1 }", "arrivals[0].resources.cpu: no resource has this name; known are db"),
        ("resources = { db = 4 }", "arrivals[0].resources.db: found 4; there are never more than 3 units of it"),
        (
            'labels = { gpu = "a100" }',
            "arrivals[0].labels: no [[workers]] of the pool `a` carry gpu=a100: its tasks would wait for ever",
        ),
        (
            "retry = { max_attempts = 0 }",
            "arrivals[0].retry.max_attempts: found 0; allowed is an integer from 1 to 4294967295",
        ),
        (f"kind = '{'k' * 129}'", "arrivals[0].kind: 129 bytes, at most 128 are allowed"),
        (
            "payload_bytes = 16_777_216",
            "arrivals[0].payload_bytes: a task would have 16777416 bytes as encoded, at most 16776192 are allowed"
            " (limits.max_message_bytes less 1024)",
        ),
        ("payload = 'x'", "arrivals[0].payload: unknown key; did you mean `payload_bytes`?"),
    ],
)
def test_arrivals(lines, sentence):
    assert one(lines) == sentence


@pytest.mark.parametrize(
    ("duration", "sentences"),
    [
        ("{ }", ['mean_s: missing; the distribution "fixed" needs it']),
        ('{ distribution = "lognormal", mean_s = 1 }', ['cv: missing; the distribution "lognormal" needs it']),
        ("{ mean_s = 1, cv = 1 }", ['cv: has no meaning with the distribution "fixed"; leave it out']),
        ('{ distribution = "uniform", min_s = 2, max_s = 1 }', ["max_s: found 1; allowed is at least min_s"]),
        ("{ mean_s = -1 }", ["mean_s: found -1; allowed is a number of seconds from 0 to 31536000"]),
        (
            '{ distribution = "uniform", mean_s = 1 }',
            [
                'mean_s: has no meaning with the distribution "uniform"; leave it out',
                'min_s: missing; the distribution "uniform" needs it',
                'max_s: missing; the distribution "uniform" needs it',
            ],
        ),
    ],
)
def test_durations(duration, sentences):
    text = TOP + f'[[arrivals]]\nname = "x"\npool = "a"\nrate_per_s = 1\nduration = {duration}\n' + WORKERS
    assert problems(text, CONFIG) == [f"arrivals[0].duration.{sentence}" for sentence in sentences]


@pytest.mark.parametrize(
    ("rates", "sentence"),
    [
        ("[]", "arrivals[0].rates: found an empty array; allowed is at least one entry"),
        ("3", "arrivals[0].rates: found 3; allowed is an array of tables, each written [[arrivals.rates]]"),
        (
            "[{ from_s = 2, rate_per_s = 1 }, { from_s = 2, rate_per_s = 2 }]",
            "arrivals[0].rates[1].from_s: is not later than that of the entry before; allowed is the order of time",
        ),
        ("[{ from_s = 0 }]", "arrivals[0].rates[0].rate_per_s: missing; required is a number from 0 to 1000000"),
    ],
)
def test_rates(rates, sentence):
    text = TOP + f'[[arrivals]]\nname = "x"\npool = "a"\nrates = {rates}\nduration = {{ mean_s = 1 }}\n' + WORKERS
    assert sentence in problems(text, CONFIG)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            "slots = 5",
            "workers[0].slots: found 5; one worker of pool 'a' is granted 4, the least of the pool's max and"
            " max_slots_per_worker, and limits.max_slots_per_worker",
        ),
        ("follow_delay_s = 1", "workers[0].follow_delay_s: has no meaning without follow = true; leave it out"),
        ("restart_s = 1", "workers[0].restart_s: has no meaning without crash_every_s; leave it out"),
        (
            "crash_every_s = 9\ncrash_noticed_s = 11",
            "workers[0].crash_noticed_s: allowed is at most restart_s: who comes back is noticed",
        ),
        (f"name = '{'n' * 65}'", "workers[0].name: has 65 characters; allowed are at most 64"),
        ('labels = { "" = "x" }', "workers[0].labels: a name is empty"),
        ("until_s = 10\nfrom_s = 20", "workers[0].until_s: is not later than from_s; nothing would happen"),
        (
            "follow = true\n[[workers]]\npool = 'a'\nfollow = true",
            "workers[1].follow: workers[0] follows the target of pool 'a' already",
        ),
        (
            "[[workers]]\npool = 'off'\nfollow = true",
            "workers[1].follow: pool 'off' has autoscale = false, so there is no target to follow",
        ),
        (
            "count = 4_000\n[[workers]]\npool = 'a'\ncount = 97",
            "workers: there are 4097 of them; a server has at most 4096",
        ),
    ],
)
def test_workers(lines, sentence):
    assert problems(WHOLE + lines, CONFIG) == [sentence]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("duration_s = 31_536_000\nstart = '2199-06-01T00:00:00Z'\n", "duration_s: the run would end after 2200-01-01"),
        (TOP + "warmup_s = 60\n", "warmup_s: the run would be over by then; allowed is less than duration_s"),
        (TOP + 'config = ""\n', 'config: found ""; allowed is the path of a configuration file, not empty'),
        (TOP + "start = 2026-01-01T00:00:00\n", 'start: found "2026-01-01T00:00:00"; allowed is'),
        (TOP + "workers = 3\n", "workers: found 3; allowed is an array of tables, each written [[workers]]"),
    ],
)
def test_the_top(text, sentence):
    found = problems(text + ONE + ("" if "workers" in text else WORKERS), CONFIG)
    assert found[0].startswith(sentence)


def test_a_pool_that_nobody_serves_and_names_that_come_twice():
    found = problems(TOP + ONE + ONE, CONFIG)
    assert found == [
        "arrivals[0].pool: no [[workers]] serve the pool `a`: its tasks would wait for ever",
        'arrivals[1].name: "x" is the name of arrivals[0] already; names are unique',
        "arrivals[1].pool: no [[workers]] serve the pool `a`: its tasks would wait for ever",
    ]


def test_a_scenario_in_which_nothing_happens():
    assert problems(TOP) == ["arrivals: missing, and the configuration has no [[recurring]]: nothing would happen"]
    assert scenario(TOP, CONFIG).notes[-1] == "schedule 'nightly': no [[workers]] serve pool 'a'"


def test_too_many_tasks():
    text = "duration_s = 31_536_000\n" + ONE + ONE.replace('"x"', '"y"').replace("= 1\n", "= 0.001\n", 1) + WORKERS
    assert problems(text, CONFIG) == [
        "arrivals[0]: brings about 31,536,000 tasks, all together 31,567,536; a run has at most 10,000,000:"
        " lower its rate or burst, or duration_s"
    ]


def test_too_many_looks():
    text = "duration_s = 31_536_000\n[[workers]]\npool = 'a'\nfollow = true\nfollow_every_s = 1\n"
    (sentence,) = problems(text, CONFIG)
    assert sentence == "workers[0].follow_every_s: there would be too many looks; allowed is at least 315.36 here"


def test_both_files_are_told():
    loaded = load_scenario(f'config = "c.toml"\n{TOP}x = 1')
    assert loaded.config == "c.toml"
    assert [str(found) for found in loaded.with_config({"pools": [{"name": "a", "mx": 1}]})] == [
        "x: unknown key; known are config, duration_s, warmup_s, seed, start, arrivals, workers, recurring",
        "c.toml: pools[0].mx: unknown key; did you mean `max`?",
    ]


def test_access_addresses_and_the_store_are_not_looked_at():
    config = """
        [server]
        grpc_addr = "0.0.0.0:7070"
        tls = { cert = "no", key = "no" }
        [store]
        kind = "sqlite"
        path = "/nowhere/x.db"
        [[auth.tokens]]
        token_env = "NOT_SET"
        role = "admin"
        """
    text = TOP + ONE.replace('pool = "a"\n', "") + "[[workers]]\n"
    assert isinstance(scenario(text, config), Scenario)


@pytest.mark.parametrize("text", ["x =", "x = " + "[" * 100_000, "x = " + "9" * 5_000, "#" * (MAX_CONFIG_FILE + 1)])
def test_what_is_no_toml(text):
    (found,) = load_scenario(text)
    assert isinstance(found, Problem) and found.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29T00:00:00+02:00", datetime(2026, 3, 28, 22, tzinfo=UTC).timestamp()),
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("1970-01-01t00:00:01z", 1),
        ("2200-01-01T00:00:00Z", None),
        ("1969-12-31T23:59:59Z", None),
        ("2026-02-30T00:00:00Z", None),
        ("0001-01-01T00:00:00+12:00", None),
        ("20260101T000000Z", None),
        ("2026-01-01", None),
    ],
)
def test_starts(text, expected):
    found = read_start(text)
    assert found == (None if expected is None else expected * SECOND)


def test_a_date_of_toml_is_a_start():
    assert scenario("start = 2026-03-29T00:00:00+02:00\n" + WHOLE, CONFIG).start == read_start("2026-03-28T22:00:00Z")


@pytest.mark.parametrize("table", scenario_keys.TABLES, ids=lambda table: table.name or "top")
def test_every_key_has_its_attribute_and_a_meaning(table):
    fields = table.target.__dataclass_fields__
    for key in table.keys:
        assert key.meaning.endswith(".") and (key.kind in (Kind.TABLE, Kind.TABLES) or key.field in fields)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.datetimes()
NAMES = st.sampled_from([key.name for table in scenario_keys.TABLES for key in table.keys]) | st.text(max_size=5)
DOCUMENTS = st.dictionaries(
    NAMES,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
    ),
    max_size=6,
)


@given(DOCUMENTS)
def test_no_document_is_a_fault_of_ours(document):
    found = LoadedScenario({"duration_s": 1.0, **document}).with_config(tomllib.loads(CONFIG))
    assert isinstance(found, Scenario) or all(str(problem) for problem in found)
