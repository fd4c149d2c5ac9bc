"""Records a term: everything that its driver hands to the core, so that `cronoq_sansio.sim` can replay it.

A recording never costs the term anything but time. Whatever goes wrong with it (the bound is reached, the disk is full
or slow, a line cannot be written) ends the recording with a line in the log and, if that still can be, in the file; the
term goes on without it. What `handle` raises is recorded with the events that did it, and raised again.

The form is that of `cronoq_sansio.recording.format`, the files are those of `recording_files`.
"""

from collections.abc import Sequence
from typing import Any

import trio

from cronoq import __version__
from cronoq._observe.logs import get_logger
from cronoq._runtime.faults import describe
from cronoq._runtime.recording_files import RecordingFile, Recordings
from cronoq._stores.base import Claim
from cronoq_sansio import limits
from cronoq_sansio.clock import seconds
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.cron import TZDATA_VERSION
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.records import LoadedRecord
from cronoq_sansio.outbox import Machine, Outbox
from cronoq_sansio.recording.format import BOUND, CUT, ENDED, RAISED, STOPPED, Head, Unrecordable, without_secrets
from cronoq_sansio.recording.writer import RecordingWriter
from cronoq_sansio.settings import Settings

log = get_logger("recording")

LAST_LINES = 4_096
"""Bytes of a file that are kept for the end of its last line, and for the line that says why it ends."""


class Recorder:
    """The recording of one term, from its claim to its end."""

    def __init__(self, recordings: Recordings, *, volatile: bool) -> None:
        """`volatile`: the store forgets everything with the process."""
        self._file: RecordingFile | None = recordings.next()
        self._limit = recordings.limit - LAST_LINES
        self._writer = RecordingWriter()
        self._volatile = volatile
        self._engine: Engine | None = None
        self._open = self._file is not None
        """Lines are still taken."""
        self._complete: dict[str, Any] | None = None
        """What the log says of a recording that has all of its lines, once they are written."""

    # --- recovery: each is told before it happens

    def recovering(self, engine: Engine, settings: Settings, claim: Claim, seed: int) -> None:
        """A fresh engine is about to take over what the store holds."""
        self._engine = engine
        head = Head(
            __version__,
            TZDATA_VERSION,
            without_secrets(settings),
            claim.epoch,
            seed,
            claim.first_task_id,
            claim.first_lease_id,
            engine.now,
            engine.wall_offset,
            self._volatile,
        )
        if self._file is not None:
            log.info("recording", file=self._file.path)
        self._write(lambda: self._writer.head(head))

    def loading(self, records: Sequence[LoadedRecord]) -> None:
        """`Engine.load` is about to be called."""
        self._write(lambda: "".join(self._writer.loading(records)))

    def settling(self, now: int) -> None:
        """`Engine.settle` is about to be called."""
        self._write(lambda: self._writer.settling(now))

    def beginning(self, now: int) -> None:
        """`Engine.begin` is about to be called, and `Service` to be made with the same time."""
        self._write(lambda: self._writer.beginning(now))

    def begun(self, step: Step[Any, Any]) -> None:
        """`Engine.begin` gave this step."""
        self._write(lambda: self._writer.begun(step))

    # --- service

    def outbox(self, machine: Machine) -> "RecordedOutbox":
        """An outbox around the machine of this term, all of whose steps are recorded."""
        return RecordedOutbox(machine, self, volatile=self._volatile)

    def handed_in(self, events: Sequence[Any], now: int, looked: bool) -> str | None:
        """Events are about to be handled; None when the recording is over."""
        if not self._open:
            return None
        try:
            line = self._writer.handed_in(events, now, looked)
        except Unrecordable as error:
            self._stop(CUT, str(error))
            return None
        except Exception as error:
            self._stop(CUT, f"a fault of the recording: {describe(error)}")
            return None
        return line if self._has_room(len(line)) else None

    def handled(self, line: str, events: Sequence[Any], step: Step[Any, Any]) -> None:
        """They were, and this is the step; `line` is what `handed_in` gave."""
        assert self._file is not None
        try:
            self._file.add(self._writer.handled(line, events, step))
        except Exception as error:
            self._engine = None  # whose state is one step further than the recording
            self._stop(CUT, f"a fault of the recording: {describe(error)}")

    def raised(self, line: str, error: Exception) -> None:
        """Handling them raised: the term is over."""
        assert self._file is not None
        fault = describe(error)
        self._file.add(self._writer.raised(line, fault))
        self._engine = None
        self._stop(RAISED, f"a fault of the server: {fault}")

    # --- the end

    async def end(self, ended: str | None) -> None:
        """The term is over, because of `ended` or, when that is None, gracefully. Returns when the file is closed."""
        if self._open:
            self._stop(ENDED if ended else STOPPED, ended or "the server was stopped")
        file, self._file = self._file, None
        if file is None:
            return
        with trio.move_on_after(seconds(limits.RECORDING_CLOSE), shield=True) as scope:
            await trio.to_thread.run_sync(file.close, abandon_on_cancel=True)
        if scope.cancelled_caught:
            log.warning("the end of the recording may be missing: the disk hangs", file=file.path)
        elif file.trouble:
            log.warning("the end of the recording is missing", file=file.path, cause=file.trouble)
        elif self._complete is not None:
            log.info("the recording is complete", **self._complete)

    def _write(self, lines: Any) -> None:
        if not self._open:
            return
        assert self._file is not None
        try:
            text: str = lines()
        except Exception as error:
            self._stop(CUT, f"a fault of the recording: {describe(error)}")
            return
        if self._has_room(len(text)):
            self._file.add(text)

    def _has_room(self, size: int) -> bool:
        """Whether so many more bytes may be written; otherwise the recording is over."""
        file = self._file
        assert file is not None
        if file.trouble:
            self._stop(CUT, f"it cannot be written: {file.trouble}")
        elif file.size + size > self._limit:
            self._stop(BOUND, f"it has as many bytes as it may, {self._limit + LAST_LINES}")
        elif file.waiting + size > limits.MAX_RECORDING_UNWRITTEN and file.waiting:
            self._stop(CUT, f"the disk cannot keep up: {file.waiting} bytes wait to be written")
        elif size > limits.MAX_RECORDING_LINE - LAST_LINES:
            self._stop(CUT, f"a line has {size} characters, more than {limits.MAX_RECORDING_LINE - LAST_LINES}")
        return self._open

    def _stop(self, reason: str, why: str) -> None:
        self._open = False
        file, engine, self._engine = self._file, self._engine, None
        assert file is not None
        try:
            file.add(self._writer.end(reason, why, engine))
        except Exception as error:
            log.error("the recording has no last line", file=file.path, fault=describe(error))
        counts = {"file": file.path, "steps": self._writer.steps, "events": self._writer.events, "why": why}
        if reason in (BOUND, CUT):
            log.warning("the recording has stopped, the term goes on without it", **counts)
        else:
            self._complete = counts


class RecordedOutbox(Outbox):
    """An outbox that has its recorder note all that it is given."""

    def __init__(self, machine: Machine, recorder: Recorder, *, volatile: bool = False) -> None:
        super().__init__(machine, volatile=volatile)
        self._recorder = recorder
        self._looked = False
        """The next timeout was asked for since the last step: the machine has tidied up then."""

    def handle(self, events: Sequence[Any], now: int) -> Step[Any, Any]:
        """Record the events, handle them, and record what came of it."""
        looked, self._looked = self._looked, False
        line = self._recorder.handed_in(events, now, looked)
        if line is None:
            return super().handle(events, now)
        try:
            step = super().handle(events, now)
        except Exception as error:
            self._recorder.raised(line, error)
            raise
        self._recorder.handled(line, events, step)
        return step

    def next_timeout(self) -> int | None:
        """The machine's."""
        self._looked = True
        return super().next_timeout()
