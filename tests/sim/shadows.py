"""A term without an engine: what it writes, and is told, is made by hand."""

from types import SimpleNamespace

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.records import OutputStored, TaskChanged, TaskFinished, TaskInserted
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.lockstep.store import NaiveStore
from cronoq_sansio.sim.lockstep.workload import small_settings
from cronoq_sansio.sim.server.callers import Ask
from cronoq_sansio.sim.server.holders import Holders
from cronoq_sansio.sim.server.ledger import Ledger
from cronoq_sansio.sim.server.view import View
from cronoq_sansio.sim.server.workers import Worker
from cronoq_sansio.spec import Scheduling, TaskSpec, TaskStatus

NOW = 1_000_000 * SECOND
S = TaskStatus


def world(rows=None):
    """Stands for a `ServerWorld` in which nothing has happened but what `rows` say."""
    store = SimpleNamespace(rows=rows or NaiveStore(), volatile=False, epoch=1)
    made = SimpleNamespace(now=NOW, wall_shift=0, latest_wall=0, store=store, events=0, nodes=[])
    made.ledger = Ledger(made)
    return made


def view(rows=None, settings=None):
    """A term that has just recovered from `rows`, on a clock that is the world's."""
    made = View(world(rows), settings or small_settings(), 0, NOW)
    if rows is None:
        made.begun()
    return made


def spec(pool="a", key="", priority=2, marker="", tags=(), retry=None, **asked):
    """A specification; more than the pool and class as keywords of `Scheduling`."""
    scheduling = Scheduling(**asked) if asked else None
    return TaskSpec(b"", marker, "", pool, priority, key, None, retry, tags, 10, scheduling)


def new(task_id, asked=None, at=NOW, edges=()):
    """A task is inserted."""
    asked = asked or spec()
    attempts = 3 if asked.retry is None or asked.retry.max_attempts is None else asked.retry.max_attempts
    return TaskInserted(task_id, asked, attempts, at, edges)


def start(task_id, attempt=1, at=NOW, first=None, message=None):
    """An attempt starts; when it is not the first one, the one before has failed."""
    if message is None:
        message = "broken" if attempt > 1 else ""
    return TaskChanged(task_id, S.RUNNING, attempt, 0, first or at, at, message)


def ready(task_id, attempt=0, first=0, message=None):
    """A dispatch is taken back."""
    if message is None:
        message = "broken" if attempt else ""
    return TaskChanged(task_id, S.READY, attempt, 0, first, first, message)


def blocked(task_id, due=0):
    """It waits for others."""
    return TaskChanged(task_id, S.BLOCKED, 0, due, 0, 0, "")


def retry(task_id, attempt=1, due=NOW):
    """An attempt has failed."""
    return TaskChanged(task_id, S.RETRYING, attempt, due, NOW, NOW, "broken")


def end(task_id, status, attempt=1, at=NOW, message=None, last=NOW):
    """A task has ended; what did not succeed says that it is broken, unless it says something else."""
    if message is None:
        message = "" if status == S.SUCCEEDED else "broken"
    first, last = (NOW, last) if attempt else (0, 0)
    return TaskFinished(task_id, status, attempt, first, last, at, message)


def done(task_id, attempt=1):
    """The same with success."""
    return [OutputStored(task_id, b"x", ""), end(task_id, S.SUCCEEDED, attempt)]


def says(task_id, message):
    """Whoever runs it reports that."""

    def report(term):
        term.live[task_id].report = message

    return report


def completes(task_id):
    """Whoever runs it has finished."""
    return says(task_id, m.Complete(0, b"x", ""))


def played(term, *steps):
    """Steps of a term: lists of records, times that pass, and what is done to the term otherwise."""
    for step in steps:
        if isinstance(step, int):
            term._world.now += step
        elif callable(step):
            step(term)
        else:
            term.wrote(step, term._world.now)
    return term


class Node:
    """Stands for a `Node`: a term that says what the test makes it say."""

    def __init__(self, rows=None):
        self.world = world(rows)
        self.settings = small_settings()
        self.skew, self.epoch = 0, 1
        self.asks = {}
        self.serving = True
        self.written = self.durable = 0
        self.view = View(self.world, self.settings, 0, NOW)
        self.view.begun()
        self.holders = Holders(self)
        self.world.nodes.append(self)

    @property
    def now(self):
        """Its clock is the world's."""
        return self.world.now

    def settled(self):
        """Everything that was written is durable."""
        return self.durable >= self.written

    def writes(self, *records, stored=True):
        """A step; in the store unless told otherwise."""
        self.view.wrote(records, self.now)
        if stored:
            self.world.store.rows.write(records)
            self.world.ledger.committed(records)

    def hears(self, *events):
        """A step is about to handle these; whether all of them are stale."""
        self.world.events += len(events)
        return self.holders.heard(events)

    def worker(self, pool="a", labels=(), slots=2, number=1):
        """One that has registered."""
        made = Worker(number, self, pool, labels, slots)
        self.hears(m.WorkerConnected(made.stream, ANYONE))
        self.holders.told(made, m.Registered(number, 0, slots, 0))
        return made

    def lease(self, number, task_id, attempt=1, asked=None):
        """What a worker is sent."""
        task = SimpleNamespace(id=task_id, spec=asked or self.view.live[task_id].spec)
        return SimpleNamespace(id=number, task=task, attempt=attempt)

    def runs(self, worker, number, task_id, attempt=1):
        """The attempt starts, and the worker is given it."""
        self.writes(start(task_id, attempt, at=self.now, first=self.view.live[task_id].first_started or self.now))
        self.holders.leased(worker, self.lease(number, task_id, attempt))

    def asked(self, request, op="", marker="", deadline=None):
        """Somebody asks."""
        ask = Ask(1, op, request, self, marker)
        self.asks[ask] = None
        self.hears(m.CallReceived(ask.call, ANYONE, request, deadline))
        return ask
