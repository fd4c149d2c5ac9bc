"""Writes a recording: from what a driver hands in and what comes of it to lines of text, without I/O.

Every call gives the lines that are due, each with its end. Whoever keeps them decides how many there may be, and closes
the recording with `end`. The form of the lines is that of `format.py`.
"""

import json
from collections.abc import Sequence
from typing import Any

from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.limits import RECORDED_PORTION
from cronoq_sansio.recording.format import (
    FORMAT,
    VERSION,
    End,
    Head,
    Recorded,
    References,
    Said,
    too_large,
)
from cronoq_sansio.recording.state_hash import state_hash

_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class RecordingWriter:
    """One recording, of one term."""

    def __init__(self) -> None:
        self.steps = 0
        self.events = 0
        self._references = References()
        words = self._references.words()
        self._head = words.encoder(Head)
        self._end = words.encoder(End)
        self._records = words.encoder(tuple[LoadedRecord, ...])
        self._events = words.encoder(tuple[Recorded, ...])
        self._said = Said(self._references)

    def head(self, head: Head) -> str:
        """The first line. `head.settings` are `without_secrets`."""
        return f"{_dumps({'format': FORMAT, 'version': VERSION, **self._head(head)})}\n"

    def loading(self, records: Sequence[LoadedRecord]) -> list[str]:
        """A portion of what the store holds is about to be loaded."""
        portions = (records[at : at + RECORDED_PORTION] for at in range(0, len(records), RECORDED_PORTION))
        return [f'{{"load":{_dumps(self._records(portion))}}}\n' for portion in portions]

    def settling(self, now: int) -> str:
        """`Engine.settle` is about to be called."""
        return f'{{"settle":{now}}}\n'

    def beginning(self, now: int) -> str:
        """`Engine.begin` is about to be called; what is handed in comes from then on, after `begun`."""
        return f'{{"begin":{now}}}\n'

    def begun(self, step: Step[Any, Any]) -> str:
        """It gave this step."""
        return f'{{"begun":"{self._said.take_begin(step)}"}}\n'

    def handed_in(self, events: Sequence[Any], now: int, looked: bool) -> str:
        """What is about to be handed in, as the begin of its line. `looked`: the next timeout was asked for before."""
        unlooked = "" if looked else '"looked":false,'
        return f'{{"at":{now},{unlooked}"events":{_dumps(self._events(events))}'

    def handled(self, line: str, events: Sequence[Any], step: Step[Any, Any]) -> str:
        """What came of it; `line` is what `handed_in` gave."""
        self.steps += 1
        self.events += len(events)
        said = self._said.take(step)
        self._references.forget(events, step)
        return f'{line},"said":"{said}"}}\n'

    def raised(self, line: str, error: str) -> str:
        """`handle` raised: the line of the events that did it, and the last but one. `error` quotes nobody's data."""
        return f'{line},"raised":{_dumps(error)}}}\n'

    def end(self, reason: str, why: str, engine: Engine | None) -> str:
        """The last line. `engine`: whose state is hashed, unless it is too large; None when it is not to be trusted."""
        if engine is None:
            left_out = "it may be half changed"
        else:
            left_out = "it had not begun to serve" if engine.recovering else too_large(engine)
        state = None if left_out or engine is None else state_hash(engine)
        return f"{_dumps(self._end(End(reason, why, self.steps, self.events, state, left_out)))}\n"
