"""Any sequence of events, cut into any batches, keeps the rules; and in the end nothing is lost, held or left over.

A script is a list of moves that say nothing of ids: "the second open call ends", "the worker reports on its first
lease". The harness checks every action as it is performed. At the end everything is made durable, time passes, workers
finish what they have: then each call has exactly one answer, each task has one final status, and every size is back at
its baseline.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer, Submitted
from cronoq_sansio.engine.events import (
    CascadesHeld,
    CommitsResumed,
    CommitsStalled,
    Stalled,
    TimerFired,
    WallClockMoved,
)
from cronoq_sansio.engine.records import TaskFinished
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.settings import LimitSettings, OutputSettings, PoolSettings, ResourceSettings, Settings
from cronoq_sansio.spec import Condition, Dependency, MissPolicy, Overlap, RecurringSpec, RetryPolicy
from tests.service.harness import Harness, spec

RETRY = RetryPolicy(2, SECOND, 2.0, 4 * SECOND, False)
SETTINGS = Settings(
    limits=replace(LimitSettings(), max_wait=20 * SECOND, request_timeout=10 * SECOND, max_message_bytes=4096),
    outputs=OutputSettings(cache_entries=2, cache_bytes=8, info_entries=3),
    pools=(
        PoolSettings("default", max=3, lease_ttl=5 * SECOND, retry=RETRY),
        PoolSettings("other", max=2, lease_ttl=5 * SECOND, retry=RETRY, max_pending=3),
    ),
)
CROWDED = replace(
    SETTINGS,
    pools=(
        replace(SETTINGS.pools[0], max_pending=4, overflow="shed_lowest", tenant_weights=(("acme", 3.0),)),
        replace(SETTINGS.pools[1], overflow="wait", await_unknown_dependencies=5 * SECOND, fair_share=True),
    ),
    resources=(
        ResourceSettings("licence", "semaphore", permits=2),
        ResourceSettings("mail", "token_bucket", rate=0.5, burst=2),
    ),
)
"""Everything that the scheduler offers, in little room."""
FORGETFUL = replace(
    SETTINGS,
    outputs=OutputSettings(cache_entries=0, cache_bytes=8, info_entries=0),
    limits=replace(SETTINGS.limits, key_retention_max=1),
)

keys = st.sampled_from(["", "a", "b", "c"])
pools = st.sampled_from(["default", "default", "other"])
refs = st.one_of(st.integers(1, 6), st.sampled_from(["a", "b", "c"]))
labels = st.sampled_from([(), (), (("gpu", "1"),)])
which = st.integers(0, 3)
statuses = st.sampled_from([1, 3, 4, 5, 6, 8, 9, 10, 12])
timeouts = st.sampled_from([None, 0, SECOND, 8 * SECOND])
deadlines = st.sampled_from([None, None, 0, 3 * SECOND])
edges = st.builds(Dependency, refs, st.sampled_from(Condition).map(int))
asked = st.fixed_dictionaries(
    {},
    optional={
        "dependencies": st.lists(edges, max_size=3).map(tuple),
        "resources": st.sampled_from(
            [(("licence", 1),), (("licence", 2),), (("licence", 1), ("mail", 1)), (("mail", 2),)]
        ),
        "labels": st.just((("gpu", "1"),)),
        "tenant": st.sampled_from(["acme", "b"]),
        "deadline_in": st.sampled_from([0, 4 * SECOND]),
        "priority": st.integers(0, 3),
        "start_in": st.sampled_from([0, SECOND, 3 * SECOND, 8 * SECOND]),
        "tolerance": st.sampled_from([0, SECOND // 2, 2 * SECOND]),
        "on_miss": st.sampled_from(MissPolicy).map(int),
        "duration_hint": st.sampled_from([0, 2 * SECOND]),
    },
)
"""What a task asks of the scheduler; only the settings `CROWDED` have the resources."""
names = st.sampled_from(["s", "s", "t"])
times = st.sampled_from(["* * * * * *", "*/3 * * * * *", "*/20 * * * * *", "0 0 1 1 *"])
overlaps = st.sampled_from(Overlap).map(int)

move = st.one_of(
    st.tuples(st.just("submit"), pools, keys, st.sampled_from([None, 2 * SECOND]), deadlines),
    st.tuples(st.just("submit_wait"), pools, keys, timeouts, deadlines),
    *[st.tuples(st.just("submit_asking"), pools, keys, st.booleans(), asked)] * 3,
    st.tuples(st.just("submit_asking"), st.just("default"), keys, st.booleans(), st.just({"priority": 0})),
    st.tuples(st.just("batch_asking"), st.lists(st.tuples(pools, keys, asked), max_size=4)),
    st.tuples(st.just("batch"), st.lists(st.tuples(pools, keys), max_size=4)),
    st.tuples(st.just("list"), st.lists(pools, max_size=2), st.sets(statuses, max_size=2), st.integers(0, 4), which),
    st.tuples(
        st.just("watch"), st.sampled_from([(), ("default",)]), st.sets(refs, max_size=2), st.booleans(), deadlines
    ),
    st.tuples(st.just("workers")),
    st.tuples(st.just("add"), names, times, overlaps, pools, keys, asked),
    st.tuples(st.just("add"), names, times, overlaps, pools, keys, asked),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("schedules")),
    st.tuples(st.just("cancel"), refs),
    st.tuples(st.just("get"), refs, deadlines),
    st.tuples(st.just("wait"), refs, timeouts, deadlines),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("hang_up"), which),
    st.tuples(st.just("connect")),
    st.tuples(st.just("register"), which, pools, st.integers(0, 4), labels),
    st.tuples(st.just("register"), which, pools, st.integers(1, 2), labels),
    st.tuples(st.just("slots"), which, st.integers(0, 3)),
    st.tuples(st.just("gone"), which),
    st.tuples(st.just("beat"), which, which),
    st.tuples(st.just("complete"), which, which, st.sampled_from([b"", b"four", b"x" * 4000])),
    st.tuples(st.just("complete"), which, which, st.just(b"ok")),
    st.tuples(st.just("fail"), which, which, st.booleans()),
    st.tuples(st.just("nack"), which, which),
    st.tuples(st.just("nack"), which, st.just(0)),
    st.tuples(st.just("slots"), which, st.integers(1, 3)),
    st.tuples(st.just("aborted"), which, which),
    st.tuples(st.just("stale"), which, st.integers(1, 6)),
    st.tuples(st.just("durable"), st.integers(1, 3)),
    st.tuples(st.just("durable"), st.just(99)),
    st.tuples(st.just("advance"), st.sampled_from([SECOND // 2, SECOND, 4 * SECOND, 6 * SECOND])),
    st.tuples(st.just("store"), which),
    st.tuples(st.just("store_fails"), which),
    st.tuples(st.just("pressure"), st.sampled_from(["slow", None, None, None])),
    st.tuples(st.just("odd"), st.integers(0, 6)),
)
cut = st.booleans()
"""True: the batch ends after this move."""

BUSY = [
    *[(("connect",), True)] * 3,
    (("register", 0, "default", 3, ()), False),
    (("register", 1, "default", 2, ()), False),
    (("register", 2, "default", 1, (("gpu", "1"),)), False),
    *[(("submit", "default", "", None, None), False)] * 4,
    (("submit", "default", "a", None, None), False),
    (("submit", "default", "b", 2 * SECOND, None), True),
    (("durable", 99), True),
]
prelude = st.sampled_from([[], BUSY, BUSY, BUSY])


FOREIGN = ("start_in", "dependencies")


class Player:
    """Turns moves into events, against what workers and callers know at that moment."""

    def __init__(self, settings, volatile):
        self.rig = Harness(settings, volatile=volatile)
        self.rig.store_scan = 2
        self.events = []
        self.calls = []
        self.watches = []
        self.ended = set()

    def flush(self):
        batch, self.events = self.events, []
        self.rig.handle(*batch)

    def play(self, script):
        for (name, *arguments), ends in script:
            getattr(self, name)(*arguments)
            if ends:
                self.flush()
        self.flush()

    def call(self, request, deadline=None):
        call = m.Call("")
        self.calls.append((call, request))
        self.events.append(self.rig.received(call, request, deadline))
        return call

    def submit(self, pool, key, timeout, deadline):
        self.call(m.Submit(spec(pool, key, timeout=timeout), False, None), deadline)

    def submit_wait(self, pool, key, timeout, deadline):
        self.call(m.Submit(spec(pool, key), True, timeout), deadline)

    def batch(self, members):
        self.call(m.SubmitBatch(tuple(spec(pool, key) for pool, key in members)))

    def submit_asking(self, pool, key, wait, asks):
        self.call(m.Submit(spec(pool, key, **asks), wait, None))

    def batch_asking(self, members):
        self.call(m.SubmitBatch(tuple(spec(pool, key, **asks) for pool, key, asks in members)))

    def list(self, names, wanted, after, limit):
        self.call(m.ListTasks(tuple(names), tuple(sorted(wanted)), after, limit))

    def watch(self, names, named, moves, deadline):
        ids = tuple(sorted(ref for ref in named if isinstance(ref, int)))
        keys = tuple(sorted(ref for ref in named if isinstance(ref, str)))
        call = self.call(m.Watch(names, ids, keys, moves), deadline)
        self.watches.append(call)

    def workers(self):
        self.call(m.ListWorkers())

    def add(self, name, cron, overlap, pool, key, asks):
        """Fields that only a Submit may have are left out, or not, now and then."""
        keep = ("start_in", "dependencies") if overlap == Overlap.ALLOW and key else ()
        asks = {field: found for field, found in asks.items() if field in keep or field not in FOREIGN}
        self.call(mr.AddRecurring(RecurringSpec(name, cron, "", spec(pool, key, **asks), overlap)))

    def remove(self, name):
        self.call(mr.RemoveRecurring(name))

    def schedules(self):
        self.call(mr.ListRecurring())

    def cancel(self, ref):
        self.call(m.Cancel(ref))

    def get(self, ref, deadline):
        self.call(m.Get(ref), deadline)

    def wait(self, ref, timeout, deadline):
        self.call(m.Wait(ref, timeout), deadline)

    def snapshot(self):
        self.call(m.GetSnapshot())

    def hang_up(self, index):
        waiting = [call for call, _ in self.calls if call not in self.rig.answers and call not in self.ended]
        if index < len(waiting):
            self.ended.add(waiting[index])
            self.events.append(m.CallEnded(waiting[index]))

    def connect(self):
        self.events.append(m.WorkerConnected(m.WorkerStream(""), ANYONE))

    def stream(self, index):
        """One of the streams that are open as far as their peers know."""
        self.flush()
        streams = [stream for stream, peer in self.rig.peers.items() if not peer.closed]
        return streams[index] if index < len(streams) else None

    def says(self, index, message):
        stream = self.stream(index)
        if stream is not None:
            self.events.append(m.WorkerSent(stream, message))

    def register(self, index, pool, slots, labels):
        stream = self.stream(index)
        if stream is not None and not self.rig.peers[stream].registered:
            self.events.append(m.WorkerSent(stream, m.Register(pool, slots, "", 3, labels)))

    def slots(self, index, slots):
        stream = self.stream(index)
        if stream is not None and self.rig.peers[stream].registered:
            self.events.append(m.WorkerSent(stream, m.SetSlots(slots)))

    def gone(self, index):
        stream = self.stream(index)
        if stream is not None:
            self.events.append(m.WorkerGone(stream, "reset"))

    def report(self, worker, index, make):
        """A report on a lease that the worker has, written before it read what this batch sends it."""
        stream = self.stream(worker)
        if stream is None:
            return
        leases = self.rig.leases(stream)
        if index < len(leases):
            self.events.append(m.WorkerSent(stream, make(leases[index])))

    def beat(self, worker, index):
        self.report(worker, index, m.Heartbeat)

    def complete(self, worker, index, output):
        self.report(worker, index, lambda lease: m.Complete(lease, output, "text/plain"))

    def fail(self, worker, index, permanent):
        self.report(worker, index, lambda lease: m.Fail(lease, "broken", permanent, 0))

    def nack(self, worker, index):
        self.report(worker, index, lambda lease: m.Nack(lease, "busy"))

    def aborted(self, worker, index):
        self.report(worker, index, m.AttemptAborted)

    def stale(self, worker, lease):
        stream = self.stream(worker)
        if stream is None or not self.rig.peers[stream].registered:
            return
        if lease not in self.rig.leases(stream):
            self.events.append(m.WorkerSent(stream, m.Complete(lease, b"", "")))

    def durable(self, steps):
        if self.rig.waiting:
            self.events.append(self.rig.commit(steps))

    def advance(self, nanoseconds):
        self.flush()
        due = self.rig.outbox.next_timeout()
        self.rig.now += nanoseconds
        if due is not None and due <= self.rig.now:
            self.events.append(TimerFired())

    def store(self, index):
        queries = list(self.rig.queries)
        if index < len(queries):
            self.events.append(self.rig.store_answer(queries[index]))

    def store_fails(self, index):
        queries = list(self.rig.queries)
        if index < len(queries):
            rejection = Rejection(Code.UNAVAILABLE, "the store is gone")
            self.events.append(m.StoreAnswered(self.rig.queries.pop(queries[index]), rejection))

    def pressure(self, reason):
        self.events.append(m.StorePressure(reason))

    def odd(self, number):
        self.events.append(ODD[number])


ODD = (
    CommitsStalled(),
    CommitsResumed(SECOND),
    Stalled(SECOND),
    WallClockMoved(-SECOND),
    TimerFired(),
    CascadesHeld(True),
    CascadesHeld(False),
)


def finish(player):
    """Let everything come to an end: workers report, commits succeed, the store answers, time passes."""
    rig = player.rig
    rig.handle(m.StorePressure(None), CommitsResumed(0), CascadesHeld(False))
    for name in ("s", "t"):
        rig.call(mr.RemoveRecurring(name))
    helpers = [rig.worker(3, pool, **dict(labels)) for pool in ("default", "other") for labels in ((), (("gpu", "1"),))]
    for _ in range(60):
        rig.durable()
        for stream, peer in list(rig.peers.items()):
            for lease in list(peer.leases):
                rig.say(stream, m.Complete(lease, b"end", ""))
        while rig.queries:
            rig.answer_store()
        rig.advance(SECOND)
    for stream in helpers:
        rig.handle(m.WorkerGone(stream, "done"))
    rig.durable()
    for call in player.watches:
        if call not in rig.answers and call not in player.ended:
            player.ended.add(call)
            rig.handle(m.CallEnded(call))


def check_end(player):
    rig = player.rig
    for call, request in player.calls:
        assert call in rig.answers or call in player.ended, f"no answer to {request}"
    assert not rig.engine.tasks.live and not rig.schedules
    finals = [row.state for row in rig.rows.values()]
    assert all(isinstance(state, TaskFinished) for state in finals)
    for action in rig.answers.values():
        check_answer(rig, action)
    for events in rig.events.values():
        check_events(rig, events)
    assert not rig.engine.watched
    statistics = rig.service.statistics()
    for name in (
        "open_requests",
        "open_waits",
        "open_watches",
        "listed_tasks",
        "waiting_for_tasks",
        "waiting_for_store",
        "refused_leases",
        "leases",
        "backoffs",
        *rig.engine.dependencies.statistics(),
        *rig.engine.starts.statistics(),
        *rig.engine.recurring.statistics(),
        *rig.engine.resources.statistics(),
        *rig.engine.waiting_room.statistics(),
    ):
        assert statistics[name] == 0, name
    assert rig.outbox.held() == 0
    connected = sum(not peer.closed for peer in rig.peers.values())
    assert statistics["workers"] + statistics["unregistered_streams"] == connected
    assert statistics["service_timers"] == statistics["unregistered_streams"]
    rig.advance(30 * SECOND)
    assert rig.service.statistics()["service_timers"] == 0


def check_answer(rig, action):
    """What was told of an end is what the store has for good."""
    message = action.outcome if isinstance(action, Answer) else None
    result = message.result if isinstance(message, m.SubmitReply) else message
    if isinstance(result, m.TaskResult | m.TaskInfo) and result.status >= 6:
        assert rig.rows[result.task_id].state.status == result.status
    if isinstance(message, m.CancelReply | Submitted | m.SubmitReply):
        assert rig.rows
    if isinstance(message, m.BatchReply):
        assert all(member.task_id in rig.rows for member in message.members)
    if isinstance(message, m.TaskPage):
        ids = [info.task_id for info in message.tasks]
        assert ids == sorted(set(ids)) and (not ids or not message.next_after or ids[-1] <= message.next_after)
    if isinstance(result, m.TaskResult) and result.output is not None:
        assert rig.rows[result.task_id].output.output == result.output


def check_events(rig, events):
    """What a watcher was told of a task is a life that may be: attempts do not go back, and nothing follows an end."""
    ended = {}
    for event in events:
        assert event.task_id not in ended, "an event after the end"
        if event.status >= 6:
            ended[event.task_id] = event.status
            state = rig.rows[event.task_id].state
            assert (state.status, state.finished, state.message) == (event.status, event.at, event.message)


@given(
    st.lists(st.tuples(move, cut), min_size=20, max_size=80),
    prelude,
    st.booleans(),
    st.sampled_from([SETTINGS, FORGETFUL, CROWDED, CROWDED]),
)
def test_any_script_keeps_the_rules_and_comes_to_rest(script, before, volatile, configured):
    player = Player(configured, volatile)
    player.play(before + script)
    finish(player)
    check_end(player)


@given(st.lists(st.tuples(move, cut), min_size=20, max_size=60), prelude)
def test_the_same_events_in_the_same_batches_give_the_same_steps(script, before):
    logs = []
    for _ in range(2):
        player = Player(CROWDED, False)
        player.rig.log = []
        player.play(before + script)
        logs.append(player.rig.log)
    assert logs[0] == logs[1]


@given(st.lists(st.tuples(move, cut), min_size=10, max_size=40), prelude, st.integers(0, 12), st.booleans())
def test_any_script_can_be_stopped(script, before, grace, durable_late):
    player = Player(CROWDED, False)
    player.play(before + script)
    rig = player.rig
    rig.handle(m.StopRequested(grace * SECOND))
    for _ in range(grace + 1):
        if not durable_late:
            rig.durable()
        rig.advance(SECOND)
    assert not rig.engine.running
    rig.durable()
    assert rig.finished
    for stream, peer in rig.peers.items():
        assert peer.closed or stream.session is None or peer.registered
    while rig.queries:
        rig.answer_store()
    for call, request in player.calls:
        assert call in rig.answers or call in player.ended, f"no answer to {request}"
    assert rig.outbox.held() == 0
    assert rig.service.statistics()["service_timers"] == 0
