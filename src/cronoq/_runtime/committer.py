"""Group commit: the steps of a term on their way to the store.

While one transaction is being written the steps that follow pile up for the next one, of each row only the last
record; there is no linger, the next transaction starts the moment the one before it is done. A transaction that fails
is written again as it was (a store's writes are idempotent), so an unknown outcome needs no question asked. A
transaction that has `limits.MAX_COMMIT_ROWS` rows takes no further step; those that follow wait for the next one.

What follows from the end of a task is made much faster than it is written, and nobody but the store slows it down. So
when more than `limits.MAX_WAITING_ROWS` wait, cascades are held (`CascadesHeld`), and each transaction that is through
lets go of them. So they go on at the pace of the store, one portion per transaction at least, also while others keep
it busy; nothing is refused for that.

Two kinds of trouble are told to the rest of the term:

- *Stalled*: a transaction is older than `limits.COMMIT_STALLED`. Leases must not expire meanwhile: `CommitsStalled`,
  and when it is through `CommitsResumed` with the time since it began.
- *Pressure*: too many steps or too many bytes of new work wait, or a transaction is older than
  `limits.COMMIT_PRESSURE`. New work is refused and gets no flow-control credit. Outputs come under that only when very
  many of their bytes wait, and then the workers get no credit either: a lease has one outcome, so what workers may
  send is bounded anyhow, and refusing new work would not make it less. What waits is what is being written and what
  comes after it. Pressure ends with a transaction that leaves less than half of every bound, so that it does not
  flicker from one to the next.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio

from cronoq._observe.logs import get_logger
from cronoq._runtime.clock import Clock
from cronoq._runtime.faults import TermEnded
from cronoq._runtime.handover import Handover
from cronoq._stores.base import Batch, Fenced, Store, StoreError, StoreUnavailable
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND, seconds
from cronoq_sansio.engine.events import CascadesHeld, CommitsResumed, CommitsStalled
from cronoq_sansio.engine.records import Record
from cronoq_sansio.outbox import StepsDurable
from cronoq_sansio.service.messages import StorePressure

log = get_logger("store")


class CommitFigures:
    """What the writer did since the last look: for the line of statistics. Times in nanoseconds."""

    __slots__ = ("applied", "commits", "longest", "retries", "spent", "steps")

    def __init__(self) -> None:
        self.applied = 0
        """Steps that a memory has had at once; each counts as a commit."""
        self.commits = 0
        self.steps = 0
        self.retries = 0
        self.spent = 0
        self.longest = 0


class Committer:
    """Collects steps, has them written, and says what became of them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        report: Callable[[Sequence[Any]], None],
        hold: Callable[[bool, bool], None],
        end: Callable[[TermEnded], None],
    ) -> None:
        """`report` takes events for the term, `hold(calls, workers)` stops or gives credit, `end` ends the term."""
        self._store = store
        self._clock = clock
        self._report = report
        self._hold = hold
        self._end = end
        self._queue = deque([Batch()])
        """What comes after the transaction in flight, at least one; the last one takes the next step."""
        self._flight: Batch | None = None
        self._begun = 0
        self._failures = 0
        self._outcomes: Handover[StoreError | None] | None = None
        self._writing = False
        self._ended = False
        self._stalled = False
        self._refused = ""
        self._workers_held = False
        self._cascades_held = False
        self.trouble = ""
        """Text of the last failure while the transaction in flight is failing, for the operator."""
        self.figures = CommitFigures()

    # --- the driver's side

    def add(self, number: int, writes: Iterable[Record]) -> None:
        """Append the writes of step `number` to the next transaction that has room for them; then `kick` is due."""
        batch = self._queue[-1]
        if batch.rows >= limits.MAX_COMMIT_ROWS:
            batch = Batch()
            self._queue.append(batch)
        batch.add(number, writes)

    def kick(self) -> None:
        """Write what has been added, unless a transaction is in flight. Called after the answers of a read went out."""
        if not self._queue[0].steps or self._ended:
            return
        if self._flight is not None:
            self._weigh()
        elif self._outcomes is not None:
            self._flight = self._next()
            self._begun = self._clock.now()
            self._begin(self._outcomes)

    def waiting(self) -> int:
        """Steps that are not durable yet."""
        return sum(batch.steps for batch in self._unwritten())

    def age(self, now: int) -> int:
        """Nanoseconds since the transaction in flight was first tried; 0 without one."""
        return now - self._begun if self._flight is not None else 0

    def check(self, now: int) -> None:
        """Compare the age of the transaction in flight with the bounds; called on every tick."""
        age = self.age(now)
        if age > limits.COMMIT_STALLED and not self._stalled:
            self._stalled = True
            log.warning("the store stalls", seconds=round(seconds(age), 1), **self._remedy())
            self._report([CommitsStalled()])
        if age > limits.COMMIT_PRESSURE:
            self._press(f"a commit has not finished for {limits.COMMIT_PRESSURE // SECOND} s")
        if age > limits.MAX_STORE_OUTAGE:
            self._end(TermEnded(self._outage()))

    def forgive(self, lateness: int) -> None:
        """The process itself was stopped that long: it is not the store's lateness."""
        if self._flight is not None:
            self._begun += lateness

    # --- the store's side

    async def run(self) -> None:
        """Take the outcomes of transactions until the term ends. Leaves only when the store does not write any more."""
        if self._store.volatile:
            await anyio.sleep_forever()
        outcomes: Handover[StoreError | None] = Handover()
        self._outcomes = outcomes
        try:
            self.kick()
            while True:
                for error in await outcomes.take():
                    self._writing = False
                    if error is None:
                        self._succeeded()
                    else:
                        await self._failed(error)
                        self._begin(outcomes)
        finally:
            self._ended = True
            with anyio.CancelScope(shield=True):
                while self._writing:
                    for _ in await outcomes.take():
                        self._writing = False
            outcomes.close()

    def _next(self) -> Batch:
        batch = self._queue.popleft()
        if not self._queue:
            self._queue.append(Batch())
        return batch

    def _begin(self, outcomes: Handover[StoreError | None]) -> None:
        assert self._flight is not None
        self._writing = True
        self._store.begin_commit(self._flight, outcomes.put)

    def _succeeded(self) -> None:
        flight, self._flight = self._flight, None
        assert flight is not None, "an outcome without a transaction"
        took = self._clock.now() - self._begun
        figures = self.figures
        figures.commits += 1
        figures.steps += flight.steps
        figures.spent += took
        figures.longest = max(figures.longest, took)
        self._failures = 0
        self.trouble = ""
        self.kick()  # the store's thread works on while we tell what became durable
        if self._stalled:
            self._stalled = False
            log.info("the store goes on", seconds=round(seconds(took), 1))
            self._report([CommitsResumed(took)])
        self._report([StepsDurable(flight.through)])
        if self._cascades_held:
            self._cascades_held = False
            log.debug("cascades go on")
            self._report([CascadesHeld(False)])
        if self._refused:
            self._relax()

    async def _failed(self, error: StoreError) -> None:
        if isinstance(error, Fenced):
            await self._leave(f"another process took over the store: {error}")
        self._failures += 1
        self.figures.retries += 1
        outage = self._clock.now() - self._begun
        self.trouble = str(error)
        if self._failures == 1:
            log.warning("a commit failed, it is tried again", error=str(error))
        if isinstance(error, StoreUnavailable):
            if outage > limits.MAX_STORE_OUTAGE:
                await self._leave(self._outage())
        elif self._failures >= limits.MAX_COMMIT_TRIES:
            await self._leave(f"the store refused the same commit {self._failures} times: {error}")
        pause = min(limits.COMMIT_RETRY_MIN << min(self._failures - 1, 20), limits.COMMIT_RETRY_MAX)
        await anyio.sleep(seconds(pause))

    async def _leave(self, reason: str) -> None:
        """End the term, which cancels this task."""
        self._end(TermEnded(reason))
        await anyio.sleep_forever()

    # --- bounds

    def _unwritten(self) -> list[Batch]:
        return [*self._queue] if self._flight is None else [self._flight, *self._queue]

    def _sizes(self) -> tuple[int, int, int, int]:
        """Of everything that waits: steps, rows, bytes of specifications, bytes of outputs."""
        steps = rows = spec_size = output_size = 0
        for batch in self._unwritten():
            steps += batch.steps
            rows += batch.rows
            spec_size += batch.spec_size
            output_size += batch.output_size
        return steps, rows, spec_size, output_size

    def _weigh(self) -> None:
        steps, rows, spec_size, output_size = self._sizes()
        if rows > limits.MAX_WAITING_ROWS and not self._cascades_held:
            self._cascades_held = True
            log.debug("cascades are held until the store has caught up", rows=rows)
            self._report([CascadesHeld(True)])
        if steps > limits.MAX_WAITING_STEPS:
            self._press(f"more than {limits.MAX_WAITING_STEPS:,} steps wait for it")
        elif spec_size > limits.MAX_WAITING_BYTES:
            self._press(f"more than {limits.MAX_WAITING_BYTES >> 20} MiB of new tasks wait for it")
        if output_size > limits.MAX_WAITING_OUTPUT and not self._workers_held:
            self._workers_held = True
            self._press(f"more than {limits.MAX_WAITING_OUTPUT >> 20} MiB of outputs wait for it")
            self._hold(True, True)

    def _press(self, reason: str) -> None:
        if self._refused:
            return
        self._refused = reason
        log.warning(f"not ready: the store cannot keep up: {reason}", **self._remedy())
        self._hold(True, self._workers_held)
        self._report([StorePressure(reason)])

    def _relax(self) -> None:
        steps, _, spec_size, output_size = self._sizes()
        if (
            steps < limits.MAX_WAITING_STEPS // 2
            and spec_size < limits.MAX_WAITING_BYTES // 2
            and output_size < limits.MAX_WAITING_OUTPUT // 2
        ):
            self._refused = ""
            self._workers_held = False
            log.info("ready again")
            self._hold(False, False)
            self._report([StorePressure(None)])

    def _outage(self) -> str:
        cause = self.trouble or "it does not answer"
        return f"the store has not taken a commit for {limits.MAX_STORE_OUTAGE // SECOND} s: {cause}"

    def _remedy(self) -> dict[str, str]:
        return {
            "cause": self.trouble or "no answer yet",
            "remedy": "look at the disk and at other programs that hold the database's lock; it goes on by itself",
        }

    @property
    def ready(self) -> bool:
        """False while new work is refused."""
        return not self._refused
