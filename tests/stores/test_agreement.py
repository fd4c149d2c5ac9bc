"""The memory and the SQLite store in lockstep under random batches, compared with each other and with a plain model."""

import tempfile
from dataclasses import replace
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cronoq_sansio.engine.records import (
    Edge,
    EdgeResolved,
    FinishedLoaded,
    OutputStored,
    RecurringLoaded,
    RecurringStored,
    TaskInserted,
)
from cronoq_sansio.service.messages import ListFinished, StoredPage
from cronoq_sansio.spec import (
    Condition,
    Dependency,
    MissPolicy,
    Overlap,
    RecurringSpec,
    RetryOverride,
    Scheduling,
    TaskSpec,
    TaskStatus,
)
from tests.stores.support import (
    UNIX,
    WALL,
    Harness,
    as_loaded,
    attempt,
    batch,
    changed,
    ended,
    find,
    finished,
    fired,
    gone,
    live,
    loaded,
    schedules,
)

LIVE = [TaskStatus.BLOCKED, TaskStatus.SCHEDULED, TaskStatus.READY, TaskStatus.RUNNING, TaskStatus.RETRYING]
ENDS = [status for status in TaskStatus if status.terminal]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = ["", "a", "b", "c", "d"]
OUTPUTS = st.one_of(st.binary(max_size=20), st.just(b"x" * 1_024), st.just(b"y" * 3_000))

retries = st.builds(
    RetryOverride,
    st.none() | st.integers(1, 100),
    st.none() | st.integers(0, 1 << 62),
    st.none() | st.floats(1, 1_000),
    st.none() | st.integers(0, 1 << 62),
    st.none() | st.booleans(),
)
schedulings = st.builds(
    Scheduling,
    deadline=st.none() | st.integers(0, 1 << 62),
    deadline_in=st.none(),
    duration_hint=st.none() | st.integers(0, 1 << 61),
    dependencies=st.just(()),
    resources=st.just(()) | st.just((("gpu", 2),)),
    labels=st.just(()) | st.just((("zone", "a"),)),
    tenant=st.sampled_from(["", "acme"]),
    start=st.none() | st.integers(0, 1 << 62),
    tolerance=st.integers(0, 1 << 61),
    on_miss=st.sampled_from(MissPolicy),
)
SCHEDULES = ["hourly", "daily", "ünfrei"]
recurring = st.builds(
    RecurringSpec,
    name=st.sampled_from(SCHEDULES),
    cron=TEXT,
    tz=st.sampled_from(["", "Europe/Berlin"]),
    template=st.builds(
        TaskSpec,
        *(st.binary(max_size=20), TEXT, TEXT, st.just("p"), st.integers(0, 3), TEXT, st.none()),
        *(st.none(), st.just(()), st.just(7)),
        st.builds(Scheduling, deadline_in=st.none() | st.integers(0, 99), tenant=st.sampled_from(["", "acme"])).filter(
            lambda asked: asked != Scheduling()
        ),
    ),
    overlap=st.sampled_from(Overlap),
    gap=st.sampled_from(["shift", "skip"]),
    fold=st.sampled_from(["first", "last", "both"]),
    configured=st.booleans(),
)
tags = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda found: tuple(sorted(found.items())))


def with_edges(task, edges):
    """The row with these edges, and the dependencies that they name."""
    named = tuple(Dependency(edge.parent or edge.key, edge.condition) for edge in edges)
    asked = replace(task.spec.scheduling or Scheduling(), dependencies=named)
    spec = replace(task.spec, scheduling=None if asked == Scheduling() else asked)
    return replace(task, spec=spec, edges=edges)


class Agreement(RuleBasedStateMachine):
    """`self.specs`, `self.states`, `self.ends`, `self.outputs` are what must be in the stores."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="stores-")
        self.portal_manager = start_blocking_portal("trio")
        self.portal = self.portal_manager.__enter__()
        self.harnesses = [Harness(kind, "trio", Path(self.folder.name)) for kind in ("memory", "sqlite")]
        self.stores = []
        self.specs, self.states, self.ends, self.outputs, self.tenants = {}, {}, {}, {}, {}
        self.schedules = {}
        """Of a name: its definition, and how far it has come."""
        self.highest = 0
        self.clock = WALL
        self.pending = batch()

    def call(self, function, *arguments):
        return self.portal.call(function, *arguments)

    @initialize()
    def first_term(self):
        self.begin_term()

    @rule()
    def next_term(self):
        self.commit_pending()
        self.begin_term()

    def begin_term(self):
        """Every store has a fresh term; ids are chosen above the first ones of both, so that they agree."""
        for store in self.stores:
            self.call(store.close)
        self.stores = [harness.make() for harness in self.harnesses]
        for store in self.stores:
            self.call(store.open)
            claim = self.call(store.claim, UNIX)
            assert claim.first_task_id > max([*self.specs, *self.ends], default=0)
            self.highest = max(self.highest, claim.first_task_id)

    @rule(
        key=st.sampled_from(KEYS), payload=st.binary(max_size=40), kind=TEXT, priority=st.integers(0, 3), data=st.data()
    )
    def submit(self, key, payload, kind, priority, data):
        if key and any(task.spec.key == key for task in self.specs.values()):
            key = ""
        self.highest += 1
        timeout = data.draw(st.none() | st.integers(1, 1 << 61))
        retry = data.draw(st.none() | retries)
        made = TaskSpec(payload, kind[:5], kind, "p", priority, key, timeout, retry, data.draw(tags), len(payload))
        made = replace(made, scheduling=data.draw(st.none() | schedulings))
        task = TaskInserted(self.highest, made, data.draw(st.integers(1, 1_000)), self.clock)
        self.specs[self.highest] = with_edges(task, self.draw_edges(data, key))
        self.tenants[self.highest] = made.scheduling.tenant if made.scheduling else ""
        self.add(self.specs[self.highest], *self.appeared(key, self.highest))

    def draw_edges(self, data, key):
        """To live tasks, as the engine writes them, and to keys that nobody has."""
        parents = st.sampled_from([0, *sorted(self.specs)])
        missing = sorted({*KEYS[1:], "never"} - {task.spec.key for task in self.specs.values()} - {key})
        edges = []
        for parent in data.draw(st.lists(parents, max_size=4)):
            awaited = "" if parent else data.draw(st.sampled_from(missing))
            edges.append(Edge(parent, awaited, data.draw(st.sampled_from(Condition))))
        return tuple(edges)

    def appeared(self, key, parent):
        """The records for those who await this key."""
        records = []
        for child, task in self.specs.items():
            if key and any(edge.key == key for edge in task.edges):
                edges = [Edge(parent, "", edge.condition) if edge.key == key else edge for edge in task.edges]
                self.specs[child] = with_edges(task, tuple(edges))
                records.append(EdgeResolved(child, key, parent))
        return records

    def named(self):
        return {edge.parent for task in self.specs.values() for edge in task.edges}

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), status=st.sampled_from(LIVE), attempts=st.integers(0, 9), message=TEXT)
    def change(self, data, status, attempts, message):
        task_id = data.draw(st.sampled_from(sorted(self.specs)))
        state = changed(task_id, status, attempts, message)
        self.states[task_id] = state
        self.add(state)

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), status=st.sampled_from(ENDS), message=TEXT)
    def finish(self, data, status, message):
        task_id = data.draw(st.sampled_from(sorted(self.specs)))
        self.clock += data.draw(st.integers(0, 2))
        state = finished(task_id, status, self.clock, message)
        spec = self.specs.pop(task_id).spec
        self.states.pop(task_id, None)
        self.ends[task_id] = FinishedLoaded(task_id, spec.pool, spec.key, status, self.clock)
        records = [state]
        if status == TaskStatus.SUCCEEDED:
            self.outputs[task_id] = data.draw(OUTPUTS)
            records.append(OutputStored(task_id, self.outputs[task_id], "t"))
        self.add(*records)

    @rule(spec=recurring, added=st.integers(0, 1 << 62))
    def put_schedule(self, spec, added):
        known = self.schedules.get(spec.name)
        record = RecurringStored(spec, added)
        self.schedules[spec.name] = RecurringLoaded(record, known.fired if known else None)
        self.add(record)

    @precondition(lambda self: self.schedules)
    @rule(data=st.data(), local=st.integers(-1, 1 << 62))
    def fire_schedule(self, data, local):
        """With a task of its own, as the engine does it."""
        name = data.draw(st.sampled_from(sorted(self.schedules)))
        self.highest += 1
        made = TaskSpec(b"", "", "", "p", 2, "", None, None, (), 0, Scheduling(start=self.clock))
        self.specs[self.highest] = TaskInserted(self.highest, made, 3, self.clock)
        self.tenants[self.highest] = ""
        record = fired(name, self.clock, local, self.highest)
        self.schedules[name] = replace(self.schedules[name], fired=record)
        self.add(record, self.specs[self.highest])

    @precondition(lambda self: self.schedules)
    @rule(data=st.data())
    def remove_schedule(self, data):
        name = data.draw(st.sampled_from(sorted(self.schedules)))
        del self.schedules[name]
        self.add(gone(name))

    def add(self, *records):
        self.pending.add(self.pending.steps + 1, records)

    @rule(again=st.booleans())
    def commit(self, again):
        self.commit_pending(2 if again else 1)

    def commit_pending(self, times=1):
        made, self.pending = self.pending, batch()
        for store in self.stores:
            for _ in range(times):
                assert self.call(attempt, store, made) is None

    @rule(data=st.data())
    def prune(self, data):
        self.commit_pending()
        before = data.draw(st.integers(WALL, self.clock + 1))
        named = self.named()
        gone = [task_id for task_id, end in self.ends.items() if end.finished < before and task_id not in named]
        for store in self.stores:
            assert self.call(store.prune, before) == len(gone)
        for task_id in gone:
            del self.ends[task_id]
            self.outputs.pop(task_id, None)

    @rule(data=st.data())
    def compare(self, data):
        self.commit_pending()
        since = data.draw(st.integers(WALL, self.clock + 1))
        tasks = [as_loaded(task, self.states.get(task_id)) for task_id, task in sorted(self.specs.items())]
        named = self.named()
        kept = [end for end in self.ends.values() if end.finished >= since or end.task_id in named]
        kept.sort(key=lambda end: (end.finished, end.task_id))
        for store in self.stores:
            records = self.call(loaded, store, since)
            assert schedules(records) == self.schedules
            assert live(records) == tasks
            assert records == [*schedules(records).values(), *live(records), *ended(records)]
            newest = [end for end in ended(records) if end.finished >= since]
            assert newest == [end for end in kept if end.finished >= since]
            assert sorted(ended(records), key=lambda end: (end.finished, end.task_id)) == kept

    @rule()
    def look_up(self):
        self.commit_pending()
        memory, sqlite = self.stores
        for task_id, task in self.specs.items():
            answer = self.call(find, memory, task_id)
            assert answer == self.call(find, sqlite, task_id)
            assert answer.info.created == task.arrival
            if task.spec.key:
                assert self.call(find, memory, task.spec.key) == self.call(find, sqlite, task.spec.key) == answer
        for task_id, end in self.ends.items():
            assert self.call(find, memory, task_id) is None
            answer = self.call(find, sqlite, task_id)
            assert (answer.info.status, answer.info.finished) == (end.status, end.finished)
            assert answer.info.tenant == self.tenants[task_id]
            assert answer.output == self.outputs.get(task_id)

    @rule(data=st.data(), statuses=st.sets(st.sampled_from(ENDS), max_size=3), limit=st.integers(1, 5))
    def list(self, data, statuses, limit):
        self.commit_pending()
        after = data.draw(st.sampled_from([0, *sorted(self.ends)]))
        query = ListFinished(1, data.draw(st.sampled_from([(), ("p",)])), tuple(map(int, statuses)), after, limit)
        memory, sqlite = self.stores
        assert self.call(memory.list, query) == StoredPage((), 0)
        page = self.call(sqlite.list, query)
        wanted = [end for end in self.ends.values() if end.task_id > after and (not statuses or end.status in statuses)]
        expected = sorted((end.task_id, end.status, end.finished) for end in wanted)[:limit]
        assert [(info.task_id, info.status, info.finished) for info in page.tasks] == expected
        assert [info.tenant for info in page.tasks] == [self.tenants[task_id] for task_id, _, _ in expected]
        assert page.looked == (expected[-1][0] if len(expected) == limit else 0)

    def teardown(self):
        try:
            self.commit_pending()
            for store in self.stores:
                self.call(store.close)
        finally:
            self.portal_manager.__exit__(None, None, None)
            self.folder.cleanup()


Agreement.TestCase.settings = settings(max_examples=20, stateful_step_count=25)
TestAgreement = Agreement.TestCase
