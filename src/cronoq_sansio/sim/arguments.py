"""The command line of the simulator: a table of options, a strict parser, and the help text. Nothing here does I/O."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from cronoq_sansio.sim.faults import FAULTS
from cronoq_sansio.sim.run import ALL_FAULTS, ISOLATION_SHARE, LOCKSTEP_SHARE, STEPS
from cronoq_sansio.values import value

PROGRAM = "python -m cronoq_sansio.sim"
SEEDS = 100
"""Seeds of a run for which nothing is said: half a minute."""
PLANT_SEEDS = 200
"""Seeds within which a planted bug must be found."""
MAX_STEPS = 200_000
"""Acts of one seed: what was picked in each of them is kept until its end, a few hundred bytes an act."""
MAX_SEED = 2**63 - 1
"""JSON programs of others may keep no larger integers."""
MAX_SEEDS = 10_000_000
"""The hash of each seed is kept until the end, about 100 bytes."""
MAX_EVENTS = 10**12
"""Half a year of one core."""
MAX_JOBS = 256
"""A process has 25 MiB or more; there may be at most four for each CPU besides."""
MAX_BUDGET = 604_800
"""Seconds: a week."""

RUN, PLANT, REPLAY, SCENARIO = "run", "plant", "replay", "scenario"
WORLDS = ("all", "server", "lockstep", "isolation")
COVERAGE = ("kinds", "pairs", "off")


class UsageError(ValueError):
    """The command line cannot be followed; the text is the sentence for people."""


@dataclass(slots=True)
class Options:
    """What is to be done."""

    mode: str = RUN
    show: str = ""
    """Print `help`, `version`, `faults` or `plants`, and do nothing else."""
    seed: int = 0
    seeds: int | None = SEEDS
    """None: until the time or the events are over."""
    steps: int = STEPS
    faults: tuple[str, ...] = ALL_FAULTS
    plant: str = ""
    """A name, or `all`."""
    world: str = ""
    """As `run_seed` takes it: empty = the seed decides."""
    budget: float | None = None
    events: int | None = None
    jobs: int | None = None
    """None: as many as this process has CPUs."""
    twice: bool = False
    coverage: str = "kinds"
    shrink: bool | None = None
    """None: the first failure alone."""
    trace_dir: str = "."
    file: str = ""
    """To replay, or the scenario."""
    json: bool = False
    quiet: bool = False
    given: set[str] = field(default_factory=set)
    """The options that were there."""


@value
class Option:
    """One option."""

    name: str
    word: str
    """What stands for its value in the help; empty = it takes none."""
    modes: tuple[str, ...]
    """Where it may be given."""
    what: str


SEEDED = (RUN, PLANT)
ALWAYS = (RUN, PLANT, REPLAY, SCENARIO)
OPTIONS = (
    Option("--seed", "N", SEEDED, "the first seed (default 0); alone: this seed and no other"),
    Option(
        "--seeds",
        "N",
        SEEDED,
        f"how many seeds, one after the other (default {SEEDS}; with --plant {PLANT_SEEDS}; with --budget or --events "
        "no end of their own)",
    ),
    Option(
        "--steps",
        "N",
        SEEDED,
        f"acts of each seed before everything is healed (default {STEPS:,}); a lockstep seed plays "
        f"1/{LOCKSTEP_SHARE} of them, an isolation seed 1/{ISOLATION_SHARE}",
    ),
    Option(
        "--faults",
        "LIST",
        SEEDED,
        "kinds of faults that may strike, with commas between: names, all, none, and -NAME to leave one out; "
        "`--faults list` shows them all",
    ),
    Option(
        "--world",
        "WORLD",
        SEEDED,
        "server, lockstep (engine beside the model), isolation (with and without a neighbour), or all (default: by the "
        "seed)",
    ),
    Option("--budget", "SECONDS", SEEDED, "start no new seed after this time"),
    Option("--events", "N", SEEDED, "go on until so many events were handed in"),
    Option(
        "--jobs",
        "N",
        SEEDED,
        "processes (default: the CPUs that this one may use, at most 4 for each); the report does not depend on it",
    ),
    Option("--twice", "", (RUN,), "run every seed a second time in another process and compare; else only the first"),
    Option(
        "--coverage",
        "WHAT",
        (RUN,),
        "kinds: every kind of fault must have struck; pairs: it must have met every operation that it can meet; "
        "off: neither is shown or judged (default kinds)",
    ),
    Option("--plant", "NAME", SEEDED, "plant a bug and look for it; all: each of them; `--plant list` shows them"),
    Option(
        "--replay", "FILE", (REPLAY,), "play the trace of a failed seed, or a recording of `cronoq-trio serve --record`"
    ),
    Option("--scenario", "FILE", (SCENARIO,), "run the workload that the file describes against a configuration"),
    Option(
        "--shrink",
        "",
        (RUN, PLANT, REPLAY),
        "cut every kept failure down to fewer faults and steps (default: the first failure of a run alone)",
    ),
    Option("--no-shrink", "", (RUN, PLANT, REPLAY), "cut none down"),
    Option("--trace-dir", "DIR", (RUN, PLANT, REPLAY), "where traces of failed seeds are written (default: here)"),
    Option("--json", "", ALWAYS, "the report as JSON"),
    Option("--quiet", "", ALWAYS, "no progress on stderr"),
    Option("--help", "", ALWAYS, "this text; also -h"),
    Option("--version", "", ALWAYS, "the version"),
)
BY_NAME = {option.name: option for option in OPTIONS}

EXIT_CODES = {
    0: "nothing was broken; with --plant: every bug was found",
    1: "the simulator could not go on: a process of its own died, a trace could not be written",
    2: "the command line, or a file that it names, cannot be followed",
    3: "safety: a promise or an invariant was broken",
    4: "liveness: when all faults were healed, something did not come to its end",
    5: "divergence: engine and model, or two runs of the same seed or trace, differ",
    6: "a hole in the coverage: a kind of fault met nothing; with --plant: the bug was not found",
    130: "Ctrl-C or SIGTERM; what was found until then is in the report",
    141: "whoever read the output closed it",
}

INTRODUCTION = f"""\
{PROGRAM} [OPTIONS]

Runs the whole server in virtual time, from a seed, with faults: crashes, lost and repeated messages, a store that
refuses, dying workers, clocks that jump. The same seed does the same every time. Nothing is listened to, no other file
is written than the trace of a seed that failed.

  {PROGRAM}                        {SEEDS} seeds
  {PROGRAM} --seed 17              seed 17 once more
  {PROGRAM} --budget 240           as many seeds as four minutes allow
  {PROGRAM} --replay FILE          a failed seed, or a recorded server
  {PROGRAM} --scenario FILE        a workload against a configuration
  {PROGRAM} --plant list           the bugs that can be planted
"""


def parse(arguments: Sequence[str], plants: Iterable[str]) -> Options:
    """What the command line says. `plants` are the names of the bugs there are. Raises `UsageError`."""
    options = Options()
    words = list(arguments)
    while words:
        _take(options, words, list(plants))
    given = options.given
    if options.show:
        return options
    if "--replay" in given and "--scenario" in given:
        raise UsageError("--replay and --scenario name a file each; give one of them")
    if "--shrink" in given and "--no-shrink" in given:
        raise UsageError("--shrink and --no-shrink say the opposite; give one of them")
    options.mode = REPLAY if "--replay" in given else SCENARIO if "--scenario" in given else options.mode
    wrong = [option.name for option in OPTIONS if option.name in given and options.mode not in option.modes]
    if wrong:
        raise UsageError(f"{wrong[0]} cannot be given with --{options.mode}")
    return _with_defaults(options)


def _with_defaults(options: Options) -> Options:
    given = options.given
    if "--seeds" not in given:
        if options.mode == RUN and ("--budget" in given or "--events" in given):
            options.seeds = None
        elif options.mode == PLANT:
            options.seeds = PLANT_SEEDS
        elif "--seed" in given:
            options.seeds = 1
    last = options.seed + (options.seeds or MAX_SEEDS) - 1
    if last > MAX_SEED:
        raise UsageError(f"--seed {options.seed} leaves no room for the seeds after it: at most {MAX_SEED:,}")
    return options


def _take(options: Options, words: list[str], plants: list[str]) -> None:
    """The next option and its value."""
    word = words.pop(0)
    name, equals, text = word.partition("=")
    name = "--help" if name == "-h" else name
    option = BY_NAME.get(name)
    if option is None:
        if not word.startswith("-"):
            raise UsageError(f"{word!r} stands alone; every value follows an option, see --help")
        near = get_close_matches(name, BY_NAME, 1)
        raise UsageError(f"there is no option {name}" + (f"; did you mean {near[0]}?" if near else ", see --help"))
    if name in options.given:
        raise UsageError(f"{name} is given twice")
    options.given.add(name)
    if not option.word:
        if equals:
            raise UsageError(f"{name} takes no value, here it has {text!r}")
        _SWITCHES[name](options)
        return
    if not equals:
        if not words or words[0].startswith("--"):
            raise UsageError(f"{name} needs a value: {name} {option.word}")
        text = words.pop(0)
    if not text:
        raise UsageError(f"{name} needs a value, here it is empty")
    if name == "--plant":
        _plant(options, text, plants)
    else:
        _VALUES[name](options, text)


def _integer(name: str, text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]+(_[0-9]+)*", text) or len(text) > 30 or not least <= int(text) <= most:
        raise UsageError(f"{name} is an integer from {least:,} to {most:,}, not {text!r}")
    return int(text)


def _seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not 0 < float(text) <= MAX_BUDGET:
        raise UsageError(f"{name} is a number of seconds above 0 and up to {MAX_BUDGET:,}, not {text!r}")
    return float(text)


def _one_of(name: str, text: str, allowed: Sequence[str]) -> str:
    if text not in allowed:
        raise UsageError(f"{name} is one of {', '.join(allowed)}, not {text!r}")
    return text


def _plain(name: str) -> str:
    """As names are compared: in lower case, with hyphens for spaces."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


FAULT_NAMES = {_plain(fault.name): fault.name for fault in FAULTS}


def fault_list(text: str) -> tuple[str, ...]:
    """`all`, `none`, names, and names with a minus; from the left to the right. Raises `UsageError`."""
    items = [item.strip() for item in text.split(",")]
    wanted = set(ALL_FAULTS) if items[0].startswith("-") else set[str]()
    for item in items:
        name = _plain(item.removeprefix("-"))
        if item == "all":
            wanted = set(ALL_FAULTS)
        elif item == "none":
            wanted = set()
        elif name not in FAULT_NAMES:
            near = get_close_matches(name, FAULT_NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else "; `--faults list` shows them"
            raise UsageError(f"--faults: there is no kind of fault {item!r}{hint}")
        elif item.startswith("-"):
            wanted.discard(FAULT_NAMES[name])
        else:
            wanted.add(FAULT_NAMES[name])
    return tuple(name for name in ALL_FAULTS if name in wanted)


def fault_words(faults: Iterable[str]) -> str:
    """The shortest value of `--faults` that means these."""
    on = [name for name in ALL_FAULTS if name in set(faults)]
    off = [name for name in ALL_FAULTS if name not in on]
    if not on or not off:
        return "all" if on else "none"
    return ",".join(map(_plain, on)) if len(on) <= len(off) else ",".join(f"-{_plain(name)}" for name in off)


def _faults(options: Options, text: str) -> None:
    if text == "list":
        options.show = options.show or "faults"
    else:
        options.faults = fault_list(text)


def _plant(options: Options, text: str, plants: list[str]) -> None:
    if text == "list":
        options.show = options.show or "plants"
    elif text != "all" and text not in plants:
        near = get_close_matches(text, plants, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "; `--plant list` shows them"
        raise UsageError(f"--plant: there is no planted bug {text!r}{hint}")
    else:
        options.plant = text
        options.mode = PLANT


def _set(key: str, read: Callable[[str], Any]) -> Callable[[Options, str], None]:
    def put(options: Options, text: str) -> None:
        setattr(options, key, read(text))

    return put


def _show(what: str) -> Callable[[Options], None]:
    def put(options: Options) -> None:
        options.show = options.show or what

    return put


def _switch(key: str, to: bool = True) -> Callable[[Options], None]:
    def put(options: Options) -> None:
        setattr(options, key, to)

    return put


_SWITCHES: Mapping[str, Callable[[Options], None]] = {
    "--help": _show("help"),
    "--version": _show("version"),
    "--twice": _switch("twice"),
    "--shrink": _switch("shrink"),
    "--no-shrink": _switch("shrink", to=False),
    "--json": _switch("json"),
    "--quiet": _switch("quiet"),
}
_VALUES: Mapping[str, Callable[[Options, str], None]] = {
    "--seed": _set("seed", lambda text: _integer("--seed", text, 0, MAX_SEED)),
    "--seeds": _set("seeds", lambda text: _integer("--seeds", text, 1, MAX_SEEDS)),
    "--steps": _set("steps", lambda text: _integer("--steps", text, 1, MAX_STEPS)),
    "--faults": _faults,
    "--world": _set("world", lambda text: "" if _one_of("--world", text, WORLDS) == "all" else text),
    "--budget": _set("budget", lambda text: _seconds("--budget", text)),
    "--events": _set("events", lambda text: _integer("--events", text, 1, MAX_EVENTS)),
    "--jobs": _set("jobs", lambda text: _integer("--jobs", text, 1, MAX_JOBS)),
    "--coverage": _set("coverage", lambda text: _one_of("--coverage", text, COVERAGE)),
    "--trace-dir": _set("trace_dir", str),
    "--replay": _set("file", str),
    "--scenario": _set("file", str),
}


def command_of(seed: int, options: Options) -> list[str]:
    """The arguments that run one seed of a run again."""
    words = ["--seed", str(seed)]
    if options.mode == PLANT:
        words += ["--seeds", "1", "--plant", options.plant]
    if options.steps != STEPS:
        words += ["--steps", str(options.steps)]
    if options.faults != ALL_FAULTS:
        words += ["--faults", fault_words(options.faults)]
    if options.world:
        words += ["--world", options.world]
    return words


def help_text() -> str:
    """What `--help` prints."""
    lines = [INTRODUCTION, "Options:"]
    for option in OPTIONS:
        head = f"  {f'{option.name} {option.word}'.strip():<20}"
        lines += hung(head, option.what)
    lines += ["", "Exit codes:"]
    for code, what in EXIT_CODES.items():
        lines += hung(f"  {code:<6}", what)
    return "\n".join(lines) + "\n"


def hung(head: str, text: str, width: int = 100) -> list[str]:
    """The head, and the text behind it, in lines of at most `width` characters."""
    rows = [""]
    for word in text.split():
        if rows[-1] and len(head) + len(rows[-1]) + 1 + len(word) > width:
            rows.append("")
        rows[-1] += f" {word}" if rows[-1] else word
    return [f"{' ' * len(head) if number else head}{row}".rstrip() for number, row in enumerate(rows)]
