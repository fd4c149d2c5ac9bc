"""Full scans: a world that has played passes all of them, and each of them finds what is changed behind its back."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Step
from cronoq_sansio.engine.records import RecurringStored, TaskFinished, TaskInserted
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.choices import RandomChoices
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.sim.faults import FAULTS, Swarm
from cronoq_sansio.sim.lockstep.workload import small_settings
from cronoq_sansio.sim.server import checks, rebuilt, wakeups, worlds
from cronoq_sansio.sim.server.callers import Ask
from cronoq_sansio.sim.server.shadow import BLOCKED, READY, RETRYING, RUNNING, SUCCEEDED
from cronoq_sansio.sim.server.world import ServerWorld
from cronoq_sansio.spec import Condition, Dependency, RecurringSpec, Scheduling, TaskSpec

FAR = 1 << 62


def submits(node, *specs):
    for asked in specs:
        ask = Ask(0, "submit", m.Submit(asked, False, None), node, "")
        node.asks[ask] = None
        node.inbox.append(m.CallReceived(ask.call, ANYONE, ask.request, None))
    node.flush()
    settle(node)


def settle(node):
    """Everything is written and told."""
    while node.flight is not None:
        assert node.apply()
        node.confirm()


def asked(key="", **scheduling):
    return TaskSpec(b"", "", "", "a", 2, key, None, None, (), 20, Scheduling(**scheduling) if scheduling else None)


@pytest.fixture
def node(monkeypatch):
    """Of pool `a`: task 1 has succeeded, 2 runs, 3 waits for a slot, 4 for 2, 5 for its start, 6 for a permit."""
    plan = replace(worlds.draw(Random(0)), settings=small_settings(), volatile=False)
    monkeypatch.setattr(worlds, "draw", lambda _random: plan)
    world = ServerWorld(4, RandomChoices(4), Swarm(dict.fromkeys((fault.name for fault in FAULTS), 0)))
    node = world.nodes[0]
    watch = Ask(0, "watch", m.Watch((), (), (), False), node, "")
    node.asks[watch] = None
    node.inbox.append(m.CallReceived(watch.call, ANYONE, watch.request, None))
    world.workers.connect(node, "a", (), 1)
    submits(node, asked("one"))
    worker = next(iter(node.workers))
    (lease,) = worker.leases
    node.inbox.append(m.WorkerSent(worker.stream, m.Complete(lease, b"x", "")))
    node.flush()
    settle(node)
    worker.leases.clear()
    submits(node, asked("two", resources=(("db", 1),)))
    first, second = sorted(world.store.rows.inserted)
    after = asked(dependencies=(Dependency(second, Condition.ON_SUCCESS),))
    submits(node, asked(), after, asked(start=world.now + world.wall_shift + 60 * SECOND))
    submits(node, asked(resources=(("db", 1),)))
    node.first, node.ids = first, sorted(world.store.rows.inserted)
    return node


def of_status(node, status):
    """The first live task with it."""
    return next(task for task in node.engine.tasks.live.values() if task.status == status)


def shadow(node, status):
    """What was written of it."""
    return node.view.live[of_status(node, status).id]


def test_a_sound_world_passes(node):
    statuses = sorted(task.status for task in node.engine.tasks.live.values())
    assert statuses == [BLOCKED, 2, READY, READY, RUNNING] and len(node.view.ends) == 1
    checks.scan(node.world)
    assert checks.at_rest(node)
    checks.idle(node)
    rebuilt.check(node)
    checks.recovered(node, [])


# --- what is changed behind the back of the checks


def live_task_is_lost(node):
    node.view.live.pop(of_status(node, READY).id)


def attempt_is_lost(node):
    of_status(node, RUNNING).attempt = 0


def budget_grows(node):
    of_status(node, READY).max_attempts += 1


def error_is_another(node):
    of_status(node, READY).message = "other"


def last_start_is_another(node):
    of_status(node, RUNNING).last_started += 1


def arrival_is_another(node):
    of_status(node, READY).arrival -= 1


def start_came_once(node):
    of_status(node, 2).attempt = shadow(node, 2).attempt = 1


def backoff_is_too_long(node):
    node.engine.retries.add(FAR, of_status(node, READY))


def stale_report_is_counted(node):
    node.engine.totals.stale_completions += 1


def stale_report_is_not_counted(node):
    node.holders.stale_least += 1


def edge_is_forgotten(node):
    shadow(node, BLOCKED).edges.clear()


def edge_is_invented(node):
    shadow(node, READY).edges = {1: [1]}


def task_can_never_run(node):
    shadow(node, BLOCKED).impossible = True


def live_key_is_lost(node):
    del node.engine.tasks.keys["two"]


def key_is_forgotten(node):
    del node.engine.tasks.keys["one"]


def key_is_kept(node):
    node.view.keys.finished["one"] = (1, 0, node.first)


def total_is_wrong(node):
    node.engine.totals.succeeded += 1


def running_is_wrong(node):
    node.view.running += 1


def pending_is_wrong(node):
    node.engine.pools["a"].pending_by_class[2] += 1


def permit_is_lost(node):
    node.engine.resources._stocks["db"].used += 1


def token_is_lost(node):
    node.engine.resources._stocks["mail"].level -= 1


def lease_is_lost(node):
    node.holders.held.clear()


def abort_is_lost(node):
    held = dict(node.holders.held)
    node.holders.held = {**held, 77: next(iter(held.values()))}


def event_is_lost(node):
    for ask in node.holders.watching:
        node.holders.watching[ask] = (0, 0)
        ask.shown.clear()


def start_is_not_told(node):
    for ask in node.holders.watching:
        ask.request = replace(ask.request, all_transitions=True)
        node.holders.watching[ask] = (1, 1)


def unit_is_gone(node):
    shadow(node, RUNNING).needs = (("nothing", 1),)


def slot_is_free(node):
    for group in node.engine.pools["a"].groups.by_labels.values():
        group.capacity += 1


def lease_is_due(node):
    for hold in node.holders.held.values():
        hold.beat -= FAR


def timeout_is_due(node):
    for hold in node.holders.held.values():
        hold.timeout = 1


def registration_is_due(node):
    node.holders.waiting[m.WorkerStream(None)] = node.now - FAR


def call_is_due(node):
    ask = Ask(0, "wait", m.Wait(1, SECOND), node, "")
    node.holders.heard([m.CallReceived(ask.call, ANYONE, ask.request, None)])


def grace_is_due(node):
    node.holders.grace = node.now


def start_is_due(node):
    shadow(node, 2).start = 0


def wait_for_a_key_is_due(node):
    shadow(node, BLOCKED).awaited = {"k": [1]}


def retry_is_due(node):
    of_status(node, READY).status = RETRYING


def row_is_lost(node):
    del node.world.store.rows.inserted[node.ids[2]]


def row_ends_too_early(node):
    rows = node.world.store.rows
    rows.states[node.ids[2]] = TaskFinished(node.ids[2], SUCCEEDED, 1, 0, 0, node.now, "")


def row_is_another(node):
    rows = node.world.store.rows
    row: TaskInserted = rows.inserted[node.ids[2]]
    rows.inserted[node.ids[2]] = replace(row, spec=replace(row.spec, kind="other"))


def edge_is_another(node):
    rows = node.world.store.rows
    child = next(task_id for task_id in node.ids if rows.inserted[task_id].edges)
    row = rows.inserted[child]
    rows.inserted[child] = replace(row, edges=(replace(row.edges[0], parent=node.ids[2]),))


def row_allows_more(node):
    rows = node.world.store.rows
    rows.inserted[node.ids[2]] = replace(rows.inserted[node.ids[2]], max_attempts=9)


def row_started_then(node):
    task = of_status(node, RUNNING)
    rows = node.world.store.rows
    rows.states[task.id] = replace(rows.states[task.id], last_started=1)


def error_is_lost(node):
    of_status(node, READY).message = "other"


def need_is_lost(node):
    of_status(node, RUNNING).plan.needs = ()


def task_is_too_large(node):
    waiting = shadow(node, READY)
    waiting.spec = replace(waiting.spec, size=1 << 40)


def schedule_is_another(node):
    spec = RecurringSpec("s1", "* * * * *", "", asked())
    node.world.store.rows.schedules["s1"] = RecurringStored(spec, node.now)


LOOKS = [
    ("live tasks are not those that were written", checks.written, live_task_is_lost),
    ("a task is not what was written of it", checks.written, attempt_is_lost),
    ("a task is not what was written of it", checks.written, budget_grows),
    ("a task is not what was written of it", checks.written, error_is_another),
    ("a task is not what was written of it", checks.written, last_start_is_another),
    ("a task is not what was written of it", checks.written, arrival_is_another),
    ("a task waits for a start that has come once", checks.written, start_came_once),
    ("a backoff is over at another time than was written", checks.written, backoff_is_too_long),
    ("reports that are stale are counted in another way", checks.stale, stale_report_is_counted),
    ("reports that are stale are counted in another way", checks.stale, stale_report_is_not_counted),
    ("a task waits for nobody, or does not wait", checks.written, edge_is_forgotten),
    ("a task waits for nobody, or does not wait", checks.written, edge_is_invented),
    ("a task lives on that can never run", checks.written, task_can_never_run),
    ("a live task does not have its key", checks.written, live_key_is_lost),
    ("a key is remembered too long, or not long enough", checks.written, key_is_forgotten),
    ("a key is remembered too long, or not long enough", checks.written, key_is_kept),
    ("counters are not what was written", checks.counted, total_is_wrong),
    ("counters are not what was written", checks.counted, running_is_wrong),
    ("counters of a pool are not what was written", checks.counted, pending_is_wrong),
    ("a resource has other units than were left", checks.taken, permit_is_lost),
    ("a resource has other units than were left", checks.taken, token_is_lost),
    ("workers do not have the leases that the engine thinks they have", checks.held, lease_is_lost),
    ("workers do not have the leases that the engine thinks they have", checks.held, abort_is_lost),
    ("a watcher was not told of an end", checks.watched, event_is_lost),
    ("a watcher was not told of a start", checks.watched, start_is_not_told),
    ("a task waits for what is there", checks.idle, slot_is_free),
    ("a task waits for what is there", lambda node: checks.glance(node.world), slot_is_free),
    ("a task lives on that the configuration does not support", lambda node: checks.recovered(node, []), unit_is_gone),
    (
        "a task lives on that the configuration does not support",
        lambda node: checks.recovered(node, []),
        task_is_too_large,
    ),
    ("a wake-up is later than what is due", wakeups.check, lease_is_due),
    ("a wake-up is later than what is due", wakeups.check, timeout_is_due),
    ("a wake-up is later than what is due", wakeups.check, registration_is_due),
    ("a wake-up is later than what is due", wakeups.check, call_is_due),
    ("a wake-up is later than what is due", wakeups.check, grace_is_due),
    ("a wake-up is later than what is due", wakeups.check, start_is_due),
    ("a wake-up is later than what is due", wakeups.check, wait_for_a_key_is_due),
    ("a wake-up is later than what is due", wakeups.check, retry_is_due),
    ("an engine rebuilt from the store is another one", rebuilt.check, row_is_lost),
    ("an engine rebuilt from the store is another one", rebuilt.check, row_ends_too_early),
    ("an engine rebuilt from the store is another one", rebuilt.check, row_is_another),
    ("an engine rebuilt from the store is another one", rebuilt.check, row_allows_more),
    ("an engine rebuilt from the store is another one", rebuilt.check, row_started_then),
    ("an engine rebuilt from the store is another one", rebuilt.check, error_is_lost),
    ("an engine rebuilt from the store is another one", rebuilt.check, need_is_lost),
    ("an engine rebuilt from the store is another one", rebuilt.check, edge_is_another),
    ("an engine rebuilt from the store is another one", rebuilt.check, schedule_is_another),
    (
        "schedules after a recovery are not those that are stored",
        lambda node: checks.recovered(node, []),
        schedule_is_another,
    ),
]


@pytest.mark.parametrize(("what", "look", "change"), LOOKS, ids=[change.__name__ for _, _, change in LOOKS])
def test_each_change_is_found(node, what, look, change):
    look(node)
    change(node)
    with pytest.raises(Violation) as caught:
        look(node)
    assert caught.value.what == what


class TestWhatIsNotStored:
    """One more task is written and not stored."""

    @pytest.fixture
    def behind(self, node):
        ask = Ask(0, "submit", m.Submit(replace(asked("three"), pool="d"), False, None), node, "")
        node.asks[ask] = None
        node.handle(m.CallReceived(ask.call, ANYONE, ask.request, None))
        assert node.unwritten() and node.flight is not None
        return node

    def test_it_is_in_the_rows_of_the_second_engine(self, behind):
        assert rebuilt.check(behind)
        behind.flight.records.clear()
        with pytest.raises(Violation, match="is only in one"):
            try:
                rebuilt.check(behind)
            except Violation as found:
                raise Violation(found.kind, found.details, "") from found

    def test_not_in_a_term_that_has_lost_the_store(self, behind):
        behind.world.store.epoch += 1
        assert not rebuilt.check(behind)

    def test_watchers_were_told_of_what_was_durable_before(self, behind):
        checks.watched(behind)
        event_is_lost(behind)
        with pytest.raises(Violation, match="not told of an end"):
            checks.watched(behind)

    def test_and_not_of_what_is_not(self, behind):
        behind.view.ends.append(of_status(behind, READY).id)
        checks.watched(behind)
        assert all(seen == (1, 2) for seen in behind.holders.watching.values())


def test_a_second_engine_is_made_when_enough_has_happened(node, monkeypatch):
    looks = []
    monkeypatch.setattr(rebuilt, "check", lambda node: looks.append(node) or len(looks) > 1)
    rebuilt.when_due(node)
    assert node.world.next_rebuilt == 0, "it was not possible"
    rebuilt.when_due(node)
    rebuilt.when_due(node)
    assert len(looks) == 2
    node.world.events = node.world.next_rebuilt
    rebuilt.when_due(node)
    assert len(looks) == 3


def test_a_stop_is_complete_when_nothing_runs_and_nobody_waits(node):
    with pytest.raises(Violation, match="said to be complete"):
        checks.stopped(node)
    node.holders.held.clear()
    node.asks.clear()
    node.view.running = 0
    for desk in node.holders.desks.values():
        desk.closing = True
    with pytest.raises(Violation, match="said to be complete"):
        checks.stopped(node)
    rows = node.world.store.rows
    rows.states[of_status(node, RUNNING).id] = TaskFinished(1, SUCCEEDED, 1, 0, 0, node.now, "")
    checks.stopped(node)
    node.asks[Ask(0, "wait", m.Wait(1, None), node, "")] = None
    with pytest.raises(Violation, match="said to be complete"):
        checks.stopped(node)


class TestStaleReports:
    def test_nothing_is_written_or_said(self, node):
        before = checks.digest(node)
        assert before
        checks.unmoved(node, Step(1), before)
        step = Step(1)
        step.at_once.append(SimpleNamespace())
        with pytest.raises(Violation, match="something follows"):
            checks.unmoved(node, step, before)

    def test_nothing_changes(self, node):
        before = checks.digest(node)
        of_status(node, READY).message = "other"
        with pytest.raises(Violation, match="changes the state"):
            checks.unmoved(node, Step(1), before)

    @pytest.mark.parametrize(
        "change",
        [
            lambda engine: engine.random.random(),
            lambda engine: engine.tasks.finished.clear(),
            lambda engine: engine.resources._stocks["mail"].take(1),
        ],
        ids=["random numbers", "what is remembered", "tokens"],
    )
    def test_down_to_the_last_field_at_times(self, node, change):
        before = checks.digest(node)
        checks.unmoved(node, Step(1), before)
        change(node.engine)
        with pytest.raises(Violation, match="changes the state"):
            checks.unmoved(node, Step(1), before)
        before = checks.digest(node)
        change(node.engine)
        checks.unmoved(node, Step(1), before)  # it was not its turn

    def test_not_where_something_else_is_due(self, node):
        node.engine._more = True
        assert checks.digest(node) is None

    def test_of_many_tasks_some_steps_are_looked_at(self, node, monkeypatch):
        monkeypatch.setattr(checks, "SMALL", 0)
        node.engine.number = 1
        assert checks.digest(node) == ()
        checks.unmoved(node, Step(1), ())
        node.engine.number = checks.SAMPLE
        assert checks.digest(node)
