"""What the engine wants done. A `Step` is the answer to one call of `handle`.

`writes` is one transaction. `at_once` may be performed before it is durable; everything in `once_durable` shows state
to somebody and waits until the step named by its `after` is durable (0 = shows nothing that is not durable yet). The
step's type says which is which, so that a mistake is a type error and not a lost task.
"""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cronoq_sansio.engine.records import Record
from cronoq_sansio.values import value

if TYPE_CHECKING:
    from cronoq_sansio.engine.task import Lease, Task


@value
class Submitted:
    """Outcome of a submission: a new task, or the one that has the key already."""

    task_id: int
    duplicate: bool


@value
class BatchOutcome:
    """Outcome of a batch: one entry per member, in the order of the request."""

    members: tuple[Submitted, ...]


@value
class CancelOutcome:
    """Outcome of a cancel; False = it had already ended."""

    cancelled: bool


@value
class RecurringAdded:
    """Outcome of adding or replacing a schedule."""


@value
class RecurringGone:
    """Outcome of removing a schedule; False = there was none of that name."""

    removed: bool


@value
class Answer:
    """What becomes of a request.

    One class for the engine and the service, since nearly every outcome of the engine is told to a caller as it is.
    """

    request: Any
    """Of an event of the engine, which never looks at it; for the service that is a `Call`."""
    outcome: Any
    """Of the engine: what its event says, or a `Rejection`. Of the service: a `Message`; refusals are `Reject`."""
    after: int


@value
class Dispatch:
    """Give the lease to a worker of its group.

    The lease may have ended by the time this is released: then do nothing.
    """

    lease: "Lease"
    after: int


@value
class Abort:
    """The engine gave up the attempt and freed the slot; tell the worker that held it, if it was released."""

    lease: "Lease"
    reason: str
    """`attempt timed out`, `lease expired`, `cancelled`, `shutdown`."""


@value
class OccurrenceDropped:
    """Fires of a schedule did not happen, or not as asked. Nothing waits for it: it is for the log and for counters."""

    name: str
    reason: str
    """A `recurring.DROPS` word."""
    first: int
    """Wall time of the fire, or of the first of several."""
    last: int
    count: int
    """How many; with `more` at least so many."""
    more: bool
    detail: str
    """For people: why, and what to do about it."""


@value
class TaskEnded:
    """A task reached a terminal status. The task object is dead: nobody changes it any more."""

    task: "Task"
    output: bytes | None
    """Set when it succeeded."""
    content_type: str
    after: int


@value
class TaskMoved:
    """A live task reached a status, told only while `TransitionsWatched`. An end is told by `TaskEnded`."""

    task_id: int
    pool: str
    key: str
    status: int
    attempt: int
    at: int
    """Wall time."""
    message: str
    """Error of the last attempt when RETRYING, else empty."""
    after: int


AtOnce = Abort | OccurrenceDropped
OnceDurable = Answer | Dispatch | TaskMoved | TaskEnded
Action = AtOnce | OnceDurable

N = TypeVar("N")
D = TypeVar("D")


class Step(Generic[N, D]):
    """Everything that one call of `handle` wants: one transaction and what may be said, and when.

    The engine's step holds its own actions (`EngineStep`), the service's step those of the service. Steps are numbered
    by the engine; a step of the service has the number of the last engine step it drove.
    """

    __slots__ = ("at_once", "number", "once_durable", "writes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.writes: list[Record] = []
        self.at_once: list[N] = []
        self.once_durable: list[D] = []


EngineStep = Step[AtOnce, OnceDurable]
