"""The command line of the simulator: what is wrong is said in one sentence, and the help names everything."""

import re

import pytest

from cronoq_sansio.sim.arguments import (
    EXIT_CODES,
    MAX_SEED,
    OPTIONS,
    PLANT_SEEDS,
    SEEDS,
    UsageError,
    command_of,
    fault_list,
    fault_words,
    help_text,
    parse,
)
from cronoq_sansio.sim.run import ALL_FAULTS

NAMES = ("some-bug", "other-bug")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--sed 3", "there is no option --sed; did you mean --seed?"),
        ("--xyzzy", "there is no option --xyzzy, see --help"),
        ("-x", "there is no option -x, see --help"),
        ("17", "'17' stands alone; every value follows an option, see --help"),
        ("--seed", "--seed needs a value: --seed N"),
        ("--seed --seeds 3", "--seed needs a value: --seed N"),
        ("--seed=", "--seed needs a value, here it is empty"),
        ("--seed -1", f"--seed is an integer from 0 to {MAX_SEED:,}, not '-1'"),
        ("--seed 1.5", f"--seed is an integer from 0 to {MAX_SEED:,}, not '1.5'"),
        ("--seed ²", f"--seed is an integer from 0 to {MAX_SEED:,}, not '²'"),
        (f"--seed {MAX_SEED} --seeds 2", f"--seed {MAX_SEED} leaves no room for the seeds after it: at most "),
        ("--seed 1 --seed 2", "--seed is given twice"),
        ("--seeds 0", "--seeds is an integer from 1 to 10,000,000, not '0'"),
        ("--steps 200001", "--steps is an integer from 1 to 200,000, not '200001'"),
        ("--jobs 0", "--jobs is an integer from 1 to 256, not '0'"),
        ("--events x", "--events is an integer from 1 to"),
        ("--budget 0", "--budget is a number of seconds above 0 and up to 604,800, not '0'"),
        ("--budget inf", "--budget is a number of seconds above 0 and up to 604,800, not 'inf'"),
        ("--world moon", "--world is one of both, server, lockstep, not 'moon'"),
        ("--coverage all", "--coverage is one of kinds, pairs, off, not 'all'"),
        ("--faults zombi", "--faults: there is no kind of fault 'zombi'; did you mean zombie?"),
        ("--faults 1234", "--faults: there is no kind of fault '1234'; `--faults list` shows them"),
        ("--faults zombie,", "--faults: there is no kind of fault ''; `--faults list` shows them"),
        ("--plant some-bag", "--plant: there is no planted bug 'some-bag'; did you mean 'some-bug'?"),
        ("--plant x", "--plant: there is no planted bug 'x'; `--plant list` shows them"),
        ("--json=1", "--json takes no value, here it has '1'"),
        ("--shrink --no-shrink", "--shrink and --no-shrink say the opposite; give one of them"),
        ("--replay x --scenario y", "--replay and --scenario name a file each; give one of them"),
        ("--scenario x --shrink", "--shrink cannot be given with --scenario"),
        ("--replay x --seed 3", "--seed cannot be given with --replay"),
        ("--replay x --plant some-bug", "--plant cannot be given with --replay"),
        ("--plant all --twice", "--twice cannot be given with --plant"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, sentence):
    with pytest.raises(UsageError) as caught:
        parse(arguments.split(), NAMES)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def test_a_wrong_command_line_ends_with_2(sim):
    done = sim("--seeds", "0")
    assert (done.code, done.out) == (2, "") and done.err.startswith("Error: --seeds is an integer")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {"seed": 0, "seeds": SEEDS, "jobs": None, "shrink": None, "faults": ALL_FAULTS, "mode": "run"}),
        ("--seed 17", {"seed": 17, "seeds": 1}),
        ("--seed=1_000 --seeds 5", {"seed": 1000, "seeds": 5}),
        ("--budget 1.5", {"budget": 1.5, "seeds": None}),
        ("--budget 2 --seeds 9", {"budget": 2.0, "seeds": 9}),
        ("--events 50_000_000", {"events": 50_000_000, "seeds": None}),
        ("--plant some-bug", {"mode": "plant", "plant": "some-bug", "seeds": PLANT_SEEDS}),
        ("--plant all --budget 5", {"plant": "all", "seeds": PLANT_SEEDS}),
        ("--world lockstep", {"world": "lockstep"}),
        ("--world both", {"world": ""}),
        ("--faults none", {"faults": ()}),
        ("--faults -zombie", {"faults": tuple(name for name in ALL_FAULTS if name != "zombie")}),
        ("--shrink", {"shrink": True}),
        ("--no-shrink", {"shrink": False}),
        ("--replay x --shrink --json --quiet", {"mode": "replay", "file": "x", "json": True, "quiet": True}),
        ("--scenario x --json", {"mode": "scenario", "file": "x", "json": True}),
        ("--help", {"show": "help"}),
        ("-h --version", {"show": "help"}),
        ("--version", {"show": "version"}),
        ("--faults list", {"show": "faults"}),
        ("--plant list", {"show": "plants"}),
    ],
)
def test_what_is_meant(arguments, expected):
    options = parse(arguments.split(), NAMES)
    assert {name: getattr(options, name) for name in expected} == expected


def test_lists_of_faults():
    assert fault_list("report-lost, Clock_Step,take-over") == ("report lost", "clock step", "take-over")
    assert fault_list("zombie,all,-zombie") == fault_list("-zombie")
    assert fault_list("all") == ALL_FAULTS and fault_list("none") == ()
    for some in ((), ALL_FAULTS, ALL_FAULTS[1:], ALL_FAULTS[:2], ALL_FAULTS[::2]):
        assert fault_list(fault_words(some)) == some


@pytest.mark.parametrize(
    "arguments",
    ["--seed 5", "--seed 5 --steps 100 --faults -zombie --world server", "--seed 5 --faults none"],
)
def test_the_command_for_one_seed_means_the_same_run(arguments):
    first = parse(arguments.split(), NAMES)
    again = parse(command_of(5, first), NAMES)
    for name in ("seed", "steps", "faults", "world", "seeds"):
        assert getattr(again, name) == getattr(first, name)


def test_the_help_names_everything(sim):
    done = sim("--help")
    assert done.code == 0 and done.out == help_text()
    for option in OPTIONS:
        assert f"  {f'{option.name} {option.word}'.strip()} " in done.out
    for code in EXIT_CODES:
        assert re.search(rf"^  {code} ", done.out, re.MULTILINE)
    assert max(map(len, done.out.splitlines())) <= 120


def test_what_is_listed(sim):
    assert "zombie" in sim("--faults", "list").out
    assert "bugs that can be planted" in sim("--plant", "list").out
    assert re.fullmatch(r"cronoq-trio \S+( \S+ \S+)?, code [0-9a-f]{16}\n", sim("--version").out)
