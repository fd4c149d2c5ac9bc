"""Replays a recording of production through the code that is here: the same events, the same steps, the same state.

A recording (`cronoq-trio serve --record FILE`) has everything that a driver handed to the core in one term. A replay
builds the same engine, service and outbox, hands in the same batches at the same times, and compares the checksum of
each step and in the end the hash of the state. So a fault that came up in production comes up here, as often as it is
asked for, under a debugger if need be; and a change of the rules shows where it decides otherwise.

A recording that ends in the middle of a line, because the process or the machine went down, is replayed as far as it
goes. What is malformed is refused with the number of its line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.cron import TZDATA_VERSION
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.inert import escape
from cronoq_sansio.limits import MAX_RECORDING_LINE
from cronoq_sansio.outbox import Outbox
from cronoq_sansio.recording.format import (
    FORMAT,
    RAISED,
    REASONS,
    VERSION,
    End,
    Head,
    Recorded,
    References,
    Said,
    too_large,
)
from cronoq_sansio.recording.plausible import CHECKS, MAX_TIME, Rows, check_head, within
from cronoq_sansio.recording.state_hash import state_hash
from cronoq_sansio.recording.words import Malformed, fields_of, shown
from cronoq_sansio.service.service import Service
from cronoq_sansio.values import value

#: How a replay ends, and the exit code for it.
SAME, CUT_OFF, INTERRUPTED, DIVERGED, BROKEN, REPRODUCED, UNUSABLE = (
    "same",
    "cut off",
    "interrupted",
    "diverged",
    "invariant broken",
    "fault reproduced",
    "unusable",
)
EXIT_CODES = {SAME: 0, CUT_OFF: 0, INTERRUPTED: 130, DIVERGED: 5, BROKEN: 3, REPRODUCED: 3, UNUSABLE: 2}

FULL_CHECK = 1_000  #: steps between two recounts of everything
MAX_TOLD = 20  #: words of a step that differs, and kinds of its events, which the report shows
SAID_DIGITS = 8  #: of a checksum
MAX_DETAIL = 2_000  #: characters of a sentence of the report, most of which a file may have written


@value
class RecordingReport:
    """What came of a replay."""

    outcome: str
    """`same`, `cut off` (the same as far as the recording goes), `interrupted` (the same until then), `diverged`,
    `invariant broken`, `fault reproduced`, or `unusable`."""
    line: int
    """Of the file, from 1, that was looked at last."""
    steps: int
    events: int
    detail: str
    """What differs, what is broken or wrong; how the recording ended."""
    state: str | None = None
    """Hash of the state at the end; None when it was not reached, or is too large."""
    notes: tuple[str, ...] = ()
    """What may be a cause, such as another version."""

    @property
    def exit_code(self) -> int:
        """0 the same, 2 an unusable file, 3 a broken invariant or a fault again, 5 it diverged, 130 interrupted."""
        return EXIT_CODES[self.outcome]

    def text(self) -> str:
        """For people, and safe to print: what a file says in it does nothing to a terminal."""
        done = (
            f"{self.outcome} after {_count(self.steps, 'step')} with {_count(self.events, 'event')}, line {self.line:,}"
        )
        lines = [done, *(f"  {_inert(told)}" for told in (self.detail, *self.notes))]
        if self.state is not None:
            lines.append(f"  state {_inert(self.state)}")
        return "\n".join(lines)


def is_recording(first_line: str) -> bool:
    """Whether a file that begins with this line is a recording, of whatever version."""
    try:
        found = _parse(first_line)
    except Malformed:
        return False
    return type(found) is dict and found.get("format") == FORMAT


def bounded_lines(readline: Callable[[int], str]) -> Iterator[str]:
    """The lines of a file, by its `readline`; of one that is too long a begin, which `replay_recording` refuses."""
    while line := readline(MAX_RECORDING_LINE + 1):
        yield line
        if len(line) > MAX_RECORDING_LINE:
            return


def replay_recording(
    lines: Iterable[str], *, checks: bool = True, interrupted: Callable[[], bool] = lambda: False
) -> RecordingReport:
    """Replay a recording, given line by line; `checks`: also look at the invariants of the core after every step.

    `interrupted` is asked after every line; True ends the replay, and the report says so.
    """
    replay = _Replay(checks)
    try:
        for line in lines:
            replay.take(line)
            if interrupted():
                raise _Over(INTERRUPTED, "every step until here did what it did when it was recorded")
        return replay.report()
    except _Over as over:
        return replay.made(over.outcome, over.detail)
    except Malformed as error:
        return replay.made(UNUSABLE, f"line {replay.line}: {error}")
    except UnicodeDecodeError:
        return replay.made(UNUSABLE, f"line {replay.line + 1}: this is not text")


class _Over(Exception):
    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class _Replay:
    def __init__(self, checks: bool) -> None:
        self.line = 0
        self.steps = 0
        self.events = 0
        self._checks = checks
        self._references = References()
        words = self._references.words(CHECKS)
        self._head = words.decoder(Head)
        self._end = words.decoder(End)
        self._records = words.decoder(tuple[LoadedRecord, ...])
        self._batch = words.decoder(tuple[Recorded, ...])
        self._said = Said(self._references)
        self._engine: Engine | None = None
        self._service: Service | None = None
        self._outbox: Outbox | None = None
        self._told: Head | None = None
        self._now = 0
        self._rows: Rows | None = None
        self._notes: list[str] = []
        self._began: Step[Any, Any] | None = None
        self._ended: RecordingReport | None = None
        self._cut = False

    def take(self, line: str) -> None:
        self.line += 1
        if self._ended is not None or self._cut:
            raise Malformed("something follows the end of the recording")
        if len(line) > MAX_RECORDING_LINE:
            raise Malformed(f"it has more than {MAX_RECORDING_LINE} characters")
        try:
            found = _parse(line)
        except Malformed:
            if line.endswith("\n") or self._told is None:
                raise
            self._cut = True  # the process went down while it was written
            return
        if type(found) is not dict:
            raise Malformed(f"expected an object, found {shown(found)}")
        self._route(found)

    def _route(self, found: dict[str, Any]) -> None:
        if self._told is None:
            self._begin(found)
        elif "end" in found:
            self._close(found)
        elif self._outbox is not None:
            self._step(found)
        elif self._began is not None:
            self._serve(_checksum(fields_of(found, {"begun": True}), "begun"))
        elif "load" in found:
            records = fields_of(found, {"load": True})["load"]
            loaded = self._load(records)
            self._recovering(lambda engine: engine.load(loaded))
        elif "settle" in found:
            now = self._time(fields_of(found, {"settle": True}), "settle")
            self._recovering(lambda engine: engine.settle(now))
        else:
            now = self._time(fields_of(found, {"begin": True}), "begin")
            self._recovering(lambda engine: self._keep(engine.begin(now)))

    # --- recovery

    def _begin(self, found: dict[str, Any]) -> None:
        if found.get("format") != FORMAT:
            raise Malformed(f"this is no recording: its first line does not begin with the format {FORMAT}")
        if found.get("version") != VERSION:
            version = shown(found.get("version"))
            raise Malformed(f"the recording has version {version} of the format; this program reads version {VERSION}")
        self._told = head = self._head(
            {name: each for name, each in found.items() if name not in ("format", "version")}
        )
        check_head(head)
        self._now = head.now
        self._rows = Rows(head.first_task_id)
        try:
            self._engine = Engine.recover(
                head.settings,
                first_task_id=head.first_task_id,
                first_lease_id=head.first_lease_id,
                seed=head.seed,
                now=head.now,
                wall_offset=head.wall_offset,
            )
        except Exception as error:
            raise Malformed(f"no engine can be made of these settings: {_fault(error)}") from error

    def _load(self, found: object) -> tuple[LoadedRecord, ...]:
        rows = self._rows
        assert rows is not None

        def checked(found: object) -> tuple[LoadedRecord, ...]:
            records: tuple[LoadedRecord, ...] = self._records(found)
            self._notes += rows.check(records)[: MAX_TOLD - len(self._notes)]
            return records

        loaded: tuple[LoadedRecord, ...] = self._decode("load", checked, found)
        return loaded

    def _recovering(self, act: Callable[[Engine], object]) -> None:
        assert self._engine is not None
        try:
            act(self._engine)
        except Exception as error:
            raise _Over(REPRODUCED, f"line {self.line}: recovery raises {_fault(error)}") from error

    def _keep(self, step: Step[Any, Any]) -> None:
        self._began = step

    def _serve(self, said: str) -> None:
        engine, head, step = self._engine, self._told, self._began
        assert engine is not None and head is not None and step is not None
        if self._said.take_begin(step) != said:
            raise _Over(DIVERGED, f"line {self.line}: what recovery wrote is not what it wrote when it was recorded")
        try:
            self._service = Service(engine, head.settings, self._now, volatile=head.volatile)
        except Exception as error:
            raise Malformed(f"no service can be made of these settings: {_fault(error)}") from error
        self._outbox = Outbox(self._service, volatile=head.volatile)
        self._check(None)

    # --- service

    def _step(self, found: dict[str, Any]) -> None:
        known = fields_of(found, {"at": True, "looked": False, "events": True, "said": False, "raised": False})
        outbox = self._outbox
        assert outbox is not None
        now, events = self._time(known, "at"), self._decode("events", self._batch, known["events"])
        looked = known.get("looked", True)
        if type(looked) is not bool:
            raise Malformed(f"expected true or false, found {shown(looked)}", "looked")
        raised = _text(known, "raised") if "raised" in known else ""
        said = "" if raised else _checksum(known, "said")
        try:
            if looked:
                outbox.next_timeout()
            step = outbox.handle(events, now)
        except Exception as error:
            if not raised:
                raise self._differs(f"it raises {_fault(error)}, and did not when it was recorded", events) from error
            raise _Over(REPRODUCED, f"{self._place()} raises {_fault(error)}; recorded: {raised}") from error
        if raised:
            raise self._differs(f"it raised {raised} when it was recorded, and does not now", events)
        words = self._said.words(step)
        if self._said.take(step) != said:
            shown_words = ", ".join(map(str, words[1 : 1 + MAX_TOLD])) or "nothing"
            raise self._differs(f"what it writes and says is not what was recorded; now it is: {shown_words}", events)
        self._references.forget(events, step)
        self.steps += 1
        self.events += len(events)
        self._check(step)

    def _time(self, found: dict[str, Any], name: str) -> int:
        """A time of the server's scale, which never goes back."""
        now = found[name]
        if type(now) is not int:
            raise Malformed(f"expected nanoseconds, found {shown(now)}", name)
        if within(now, MAX_TIME, name) < self._now:
            raise Malformed(f"expected at least {self._now}, which it was before, found {now}", name)
        self._now = now
        return now

    def _place(self) -> str:
        return f"step {self.steps + 1}, line {self.line},"

    def _differs(self, what: str, events: Sequence[object]) -> _Over:
        kinds = ", ".join(type(event).__name__ for event in events[:MAX_TOLD])
        if len(events) > MAX_TOLD:
            kinds += f" and {len(events) - MAX_TOLD} more"
        return _Over(DIVERGED, f"{self._place()} of {kinds or 'nothing'}: {what}")

    def _check(self, step: Any) -> None:
        if not self._checks:
            return
        assert self._engine is not None and self._service is not None
        try:
            if step is not None:
                self._engine.check_invariants(step)
            if step is None or self.steps % FULL_CHECK == 0:
                self._service.check_invariants()
        except AssertionError as error:
            raise _Over(BROKEN, f"after step {self.steps}, line {self.line}: {error}") from error

    # --- the end

    def _close(self, found: dict[str, Any]) -> None:
        end = self._end(found)
        if end.end not in REASONS:
            raise Malformed(f"expected one of {', '.join(REASONS)}, found {shown(end.end)}", "end")
        if (end.steps, end.events) != (self.steps, self.events) and end.end != RAISED:
            raise Malformed(f"it counts {end.steps} steps and {end.events} events; lines are missing")
        how = f"the recording ended: {end.end}, {end.why}"
        if self._outbox is not None:
            self._check(None)
        state = self._state()
        if end.state is not None and state is not None and state != end.state:
            raise _Over(DIVERGED, f"all steps are the same, the state is not: it was {end.state} and is {state}")
        self._ended = self.made(SAME, how, state)

    def report(self) -> RecordingReport:
        if self._ended is not None:
            return self._ended
        if self._told is None:
            raise Malformed("the file is empty")
        if self._outbox is not None:
            self._check(None)
        how = "in the middle of a line" if self._cut else "without a last line"
        text = f"the recording ends {how}: its process was killed, or it is still being written"
        return self.made(CUT_OFF, text, self._state())

    def made(self, outcome: str, detail: str, state: str | None = None) -> RecordingReport:
        notes = list(self._notes)
        if self._told is not None and self._told.zones != TZDATA_VERSION:
            notes.append(f"recorded with the time zones of tzdata {self._told.zones}, replayed with {TZDATA_VERSION}")
        if self._told is not None and outcome not in (SAME, CUT_OFF, INTERRUPTED):
            notes.append(f"recorded by version {self._told.program}")
        told = tuple(map(_inert, notes))
        return RecordingReport(outcome, self.line, self.steps, self.events, _inert(detail), state, told)

    def _state(self) -> str | None:
        engine = self._engine
        if engine is None or engine.recovering or too_large(engine):
            return None
        return state_hash(engine)

    def _decode(self, place: str, decode: Callable[[Any], Any], found: object) -> Any:
        try:
            return decode(found)
        except Malformed as error:
            raise error.within(place) from None


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _inert(text: str) -> str:
    """Text that a file may have written, as a report shows it."""
    shown_text = escape(text[: MAX_DETAIL + 1])
    return shown_text if len(shown_text) <= MAX_DETAIL else f"{shown_text[: MAX_DETAIL - 1]}…"


def _parse(line: str) -> Any:
    def refuse(word: str) -> None:
        raise Malformed(f"{word} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Malformed("a name stands there twice in one object")
        return found

    try:
        return json.loads(line, parse_constant=refuse, object_pairs_hook=unique)
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    except ValueError as error:
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise Malformed(f"it is not JSON{at}") from None


def _checksum(found: dict[str, Any], name: str) -> str:
    text = _text(found, name)
    if len(text) != SAID_DIGITS or set(text) - set("0123456789abcdef"):
        raise Malformed(f"expected {SAID_DIGITS} hexadecimal digits, found {shown(text)}", name)
    return text


def _text(found: dict[str, Any], name: str) -> str:
    text = found.get(name)
    if type(text) is not str:
        raise Malformed(f"expected a text, found {shown(text)}", name)
    return text


def _fault(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
