"""The decision trace of a failed seed as a file: JSON, one step a line, so that people can compare and shorten it.

    {"format": "cronoq-simulation-trace", "version": 1,
     "code": "5f0c…", "world": "server", "seed": 17,
     "plant": "", "scan": 0,
     "failure": {"kind": "safety", "what": "…", "step": 3},
     "hash": "61c3…",
     "rates": {"report lost": 8, "zombie": 0},
     "steps": [
    ["submit",0,1],
    ["commit"],
    []
    ]}

A step is an act, by its name, and what was picked in it; without anything it is the first act there is.
`code` is a digest of the program that wrote it: the same program must come to the same hash and the same failure,
another one may not. An empty `hash` is not compared; whoever changes steps by hand empties it. Kinds that `rates` does
not name are off. `scan` is how many events lie between two recounts of everything; a trace that was cut down has them
closer together than the thousand of `0`. Everything in such a file is checked before it is played, and bounded.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from cronoq_sansio.sim.failure import Failure, Kind, Trace
from cronoq_sansio.sim.faults import BY_NAME, FAULTS, OFF
from cronoq_sansio.sim.run import acts_of

FORMAT = "cronoq-simulation-trace"
VERSION = 1
MAX_BYTES = 64 << 20
"""The longest seed that the command line allows has about 6 MiB."""
MAX_STEPS = 1_000_000
MAX_PICKS = 100_000
"""Of one step. A step picks a few dozen times."""
MAX_PICK = 2**31 - 1
MAX_RATE = 1_000_000
MAX_DIGITS = 20
"""Of an integer, its sign included: no value that is allowed has more than 19."""
MAX_SEED = 2**63 - 1
MAX_TEXT = 10_000
"""Characters of a text."""
WORLDS = ("server", "lockstep", "isolation")
KINDS = {kind.name.lower(): kind for kind in Kind}


class TraceError(ValueError):
    """A file is no trace that can be played; the text names the line and what is allowed."""


@dataclass(slots=True)
class Written:
    """What a file holds."""

    trace: Trace
    code: str = ""
    """Of the program that wrote it; empty = unknown."""
    kind: Kind | None = None
    """How it failed; None = it did not, or nobody wrote it down."""
    what: str = ""
    step: int = 0


def of_failure(failure: Failure, code: str = "") -> Written:
    """What is to be written of a failure."""
    return Written(failure.trace, code, failure.kind, failure.what, failure.step)


def encode(written: Written) -> str:
    """The file."""
    trace = written.trace
    failure = None
    if written.kind is not None:
        failure = {"kind": written.kind.name.lower(), "what": written.what, "step": written.step}

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()  # lone surrogates

    acts = acts_of(trace.world, trace.seed)
    named = ([acts[picks[0] % len(acts)], *picks[1:]] if picks else [] for picks in trace.steps)
    steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in named)
    return (
        f'{{"format": {text(FORMAT)}, "version": {VERSION},\n'
        f' "code": {text(written.code)}, "world": {text(trace.world)}, "seed": {trace.seed},\n'
        f' "plant": {text(trace.plant)}, "scan": {trace.scan},\n'
        f' "failure": {text(failure)},\n'
        f' "hash": {text(trace.hash)},\n'
        f' "rates": {text({fault.name: trace.rates.get(fault.name, OFF) for fault in FAULTS})},\n'
        f' "steps": [\n{steps}\n]}}\n'
    )


def is_trace(first_line: str) -> bool:
    """True when a file that begins so is meant as a decision trace."""
    return FORMAT in first_line


def decode(text: str, plants: Sequence[str] = ()) -> Written:
    """What a file says; `plants` are the names of the bugs that can be planted. Raises `TraceError`."""
    if len(text) > MAX_BYTES:
        raise TraceError(f"the file is longer than {MAX_BYTES:,} bytes, no trace is")
    reader = _Reader(text)
    whole = reader.whole()
    reader.keys(whole, "the trace", _KEYS, _KEYS)
    if whole["format"] != FORMAT:
        reader.fail("format", f"is {json.dumps(FORMAT)}", whole["format"])
    if whole["version"] != VERSION or isinstance(whole["version"], bool):
        reader.fail("version", f"is {VERSION}: this program reads no other", whole["version"])
    world, seed = reader.one_of(whole, "world", WORLDS), reader.integer(whole, "seed", 0, MAX_SEED)
    trace = Trace(
        world,
        seed,
        _rates(reader, whole["rates"]),
        _steps(reader, whole["steps"], acts_of(world, seed)),
        reader.one_of(whole, "plant", ("", *plants), "a planted bug that this program knows, or empty"),
        reader.text(whole, "hash"),
        reader.integer(whole, "scan", 0, MAX_RATE),
    )
    written = Written(trace, reader.text(whole, "code"))
    failure = whole["failure"]
    if failure is not None:
        if not isinstance(failure, dict):
            reader.fail("failure", "is an object with kind, what and step, or null", failure)
        reader.keys(failure, "failure", _FAILURE, _FAILURE)
        written.kind = KINDS[reader.one_of(failure, "kind", tuple(KINDS))]
        written.what = reader.text(failure, "what")
        written.step = reader.integer(failure, "step", 0, MAX_STEPS)
    return written


_KEYS = ("format", "version", "code", "world", "seed", "plant", "scan", "failure", "hash", "rates", "steps")
_FAILURE = ("kind", "what", "step")


def _rates(reader: "_Reader", rates: object) -> dict[str, int]:
    if not isinstance(rates, dict):
        reader.fail("rates", "is an object: of each kind of fault, once in so many chances", rates)
    reader.keys(rates, "rates", tuple(BY_NAME), ())
    return {name: reader.integer(rates, name, 0, MAX_RATE) if name in rates else OFF for name in BY_NAME}


def _steps(reader: "_Reader", steps: object, acts: Sequence[str]) -> list[list[int]]:
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        reader.fail("steps", f"is an array of at most {MAX_STEPS:,} arrays", steps)
    first: dict[object, int] = {}
    for place, act in enumerate(acts):
        first.setdefault(act, place)
    found = []
    for index, step in enumerate(steps):
        if not isinstance(step, list) or len(step) > MAX_PICKS or not all(map(_is_pick, step[1:])):
            raise TraceError(
                f"line {reader.line_of_step(index)}: step {index + 1} is an act and at most {MAX_PICKS:,} integers "
                f"from 0 to {MAX_PICK:,} in an array, not {_shown(step)}"
            )
        if step and (not isinstance(step[0], str) or step[0] not in first):
            raise TraceError(
                f"line {reader.line_of_step(index)}: step {index + 1} begins with {_shown(step[0])}, "
                f"which is no act of this world; known: {', '.join(map(str, first))}"
            )
        found.append([first[step[0]], *step[1:]] if step else [])
    return found


def _is_pick(pick: object) -> bool:
    return type(pick) is int and 0 <= pick <= MAX_PICK


def _shown(value: object) -> str:
    """A value of the file in a message: short, and nothing in it acts on a terminal."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


class _Reader:
    """The text, and where in it things stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def whole(self) -> dict[str, Any]:
        """The object of the file."""

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for key, value in pairs:
                if key in found:
                    raise TraceError(f"line {self._line_of(key)}: {_shown(key)} stands there twice")
                found[key] = value
            return found

        def integer(digits: str) -> int:
            if len(digits) > MAX_DIGITS:
                line = self._text.count("\n", 0, self._text.find(digits)) + 1
                raise TraceError(
                    f"line {line}: an integer of {len(digits):,} digits stands there; none has more than 19"
                )
            return int(digits)

        def no_number(word: str) -> NoReturn:
            place = re.search(rf"(?<![\w\"]){word}", self._text)
            line = self._text.count("\n", 0, place.start() if place is not None else 0) + 1
            raise TraceError(f"line {line}: {word} is no number of JSON")

        try:
            whole = json.loads(self._text, object_pairs_hook=unique, parse_constant=no_number, parse_int=integer)
        except json.JSONDecodeError as error:
            raise TraceError(f"line {error.lineno}: {self._reason(error)}") from None
        except RecursionError:
            raise TraceError("line 1: arrays or objects stand in each other too deep") from None
        if not isinstance(whole, dict):
            raise TraceError(f"line 1: a trace is one JSON object, not {_shown(whole)}")
        return whole

    def _reason(self, error: json.JSONDecodeError) -> str:
        before = self._text[: error.pos].rstrip()
        after = self._text[error.pos :].lstrip()[:1]
        if after == "":
            return "the file ends in the middle: it was cut off"
        if before.endswith(",") and after == "]":
            return "the last step is not followed by a comma"
        if before.endswith("]") and after == "[":
            return "a comma is missing before this step"
        return f"this is no JSON: {error.msg}, column {error.colno}"

    def keys(self, found: dict[str, Any], where: str, known: Sequence[str], needed: Sequence[str]) -> None:
        """Nothing unknown, and nothing missing."""
        for key in found:
            if key not in known:
                raise TraceError(f"line {self._line_of(key)}: {where} has no {_shown(key)}; known: {', '.join(known)}")
        missing = [key for key in needed if key not in found]
        if missing:
            raise TraceError(f"line 1: {where} lacks {missing[0]!r}; it has {', '.join(needed)}")

    def text(self, found: dict[str, Any], key: str) -> str:
        """A text."""
        value = found[key]
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            self.fail(key, f"is a text of at most {MAX_TEXT:,} characters", value)
        return value

    def one_of(self, found: dict[str, Any], key: str, allowed: Sequence[str], words: str = "") -> str:
        """One of some texts."""
        value = found[key]
        if not isinstance(value, str) or value not in allowed:
            self.fail(key, f"is {words or 'one of ' + ', '.join(allowed)}", value)
        return value

    def integer(self, found: dict[str, Any], key: str, least: int, most: int) -> int:
        """An integer within bounds."""
        value = found[key]
        if type(value) is not int or not least <= value <= most:
            self.fail(key, f"is an integer from {least:,} to {most:,}", value)
        return value

    def fail(self, key: str, rule: str, value: object) -> NoReturn:
        """A value breaks its rule."""
        raise TraceError(f"line {self._line_of(key)}: {key} {rule}, not {_shown(value)}")

    def _line_of(self, key: str) -> int:
        """Where a key stands for the first time; 1 when it is written in a way of its own."""
        position = self._text.find(f'"{key}"')
        return self._text.count("\n", 0, max(position, 0)) + 1

    def line_of_step(self, index: int) -> int:
        """Where the step with this index begins."""
        scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode
        position = self._text.index("[", self._text.index('"steps"')) + 1
        for _ in range(index):
            position = scan(self._text, self._begin(position))[1]
        return self._text.count("\n", 0, self._begin(position)) + 1

    def _begin(self, position: int) -> int:
        """Past blanks and a comma."""
        while self._text[position] in " \t\r\n,":
            position += 1
        return position
