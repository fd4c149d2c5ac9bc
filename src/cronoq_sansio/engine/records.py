"""What the engine wants written: rows by value, idempotent to write again. All times are wall time in Unix nanoseconds.

A task is two rows: its specification, written once by `TaskInserted`, and its state, replaced by `TaskChanged` and
`TaskFinished`. A task without a state row is READY and has never started. A BLOCKED row may be unblocked by now:
recovery judges its edges anew. All records of one step belong to one transaction; of several records for the same row
only the last one matters.

`TaskLoaded`, `TaskDamaged` and `FinishedLoaded` come back from a store at recovery.
"""

from cronoq_sansio.spec import RecurringSpec, TaskSpec
from cronoq_sansio.values import value


@value
class Edge:
    """A dependency as stored: which task it names was decided at submit, so that a key may be used again later."""

    parent: int
    """Id of the parent; 0 = nobody has had the key yet."""
    key: str
    """Set while, and only while, `parent` is 0: the awaited key."""
    condition: int
    """A `Condition` number."""


@value
class TaskInserted:
    """The specification row, and one row per edge."""

    task_id: int
    spec: TaskSpec
    max_attempts: int
    """As promised at submit, whatever the pool's policy says later."""
    arrival: int
    edges: tuple[Edge, ...] = ()
    """Its dependencies, resolved; in the order of the specification."""


@value
class EdgeResolved:
    """The awaited key of a live task has appeared: all its edges with that key have this parent from now on."""

    task_id: int
    """The child."""
    key: str
    parent: int


@value
class TaskChanged:
    """The state row of a live task."""

    task_id: int
    status: int
    """A live `TaskStatus`."""
    attempt: int
    """Attempts started so far."""
    due: int
    """When RETRYING: the time of the next attempt. When BLOCKED and awaiting keys: when the wait ends. Else 0."""
    first_started: int
    """0 = never."""
    last_started: int
    """0 = never."""
    message: str
    """Last error, empty without."""


@value
class TaskFinished:
    """The state row of a task that has ended."""

    task_id: int
    status: int
    """A terminal `TaskStatus`."""
    attempt: int
    first_started: int
    last_started: int
    finished: int
    message: str
    """Why it did not succeed; empty for succeeded."""


@value
class OutputStored:
    """What a successful attempt returned."""

    task_id: int
    output: bytes
    content_type: str


@value
class RecurringStored:
    """A schedule was added or replaced."""

    spec: RecurringSpec
    added: int
    """Fires count from here on."""


@value
class RecurringFired:
    """How far a stored schedule has come; replaces what was said before."""

    name: str
    through: int
    """Every fire up to this moment has been dealt with."""
    local: int
    """Its time on the clock of the zone, as if that were UTC; -1 = `through` was no fire. With other rules for the zone
    after a restart the same time may be another moment."""
    last_task: int
    """Id of the last task that was made; 0 = none."""


@value
class RecurringDeleted:
    """A schedule is gone."""

    name: str


TaskRecord = TaskInserted | EdgeResolved | TaskChanged | TaskFinished | OutputStored
RecurringRecord = RecurringStored | RecurringFired | RecurringDeleted
Record = TaskRecord | RecurringRecord


@value
class TaskLoaded:
    """A live task from the store; `changed` is None when it never left READY."""

    inserted: TaskInserted
    changed: TaskChanged | None


@value
class TaskDamaged:
    """A live row that the store cannot decode: recovery ends it as failed, with the reason."""

    task_id: int
    reason: str


@value
class FinishedLoaded:
    """A finished task that is still within key retention, or that a live task depends on."""

    task_id: int
    pool: str
    key: str
    status: int
    finished: int


@value
class RecurringLoaded:
    """A schedule from the store."""

    stored: RecurringStored
    fired: RecurringFired | None


@value
class RecurringDamaged:
    """A schedule that the store cannot decode: it stays stored, and does nothing."""

    name: str
    reason: str


LoadedRecord = TaskLoaded | TaskDamaged | FinishedLoaded | RecurringLoaded | RecurringDamaged
