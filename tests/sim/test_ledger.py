"""What callers and watchers are told is compared with what is stored: each wrong answer is named."""

from dataclasses import replace

import pytest

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.events import TimerFired
from cronoq_sansio.engine.records import Edge, OutputStored, RecurringDeleted, RecurringStored
from cronoq_sansio.engine.snapshot import EngineSnapshot, GroupSnapshot, PoolSnapshot, RecurringView
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.sim.lockstep.workload import small_settings
from cronoq_sansio.spec import Condition, Dependency, RecurringSpec
from cronoq_sansio.spec import TaskStatus as S
from tests.sim.shadows import NOW, Node, blocked, completes, done, end, new, retry, spec, start

KEYED = spec(key="k")
INFO = m.TaskInfo(1, S.READY, "a", "k", "", 0, 3, NOW, None, None, "", False, 2)
ENDED = replace(INFO, status=S.SUCCEEDED, attempt=1, finished=NOW, output_available=True)
RESULT = m.TaskResult(1, S.SUCCEEDED, b"x", "", "")
EVENT = m.StatusEvent(1, "a", "k", S.SUCCEEDED, 1, NOW, "")
ALL = m.Watch((), (), (), True)
SCHEDULE = RecurringSpec("s", "* * * * *", "", spec())
LIST = m.ListTasks((), (), 0, 0)


@pytest.fixture
def node():
    """Tasks 1 and 2 are stored, 1 has a key; task 9 is written and not stored."""
    made = Node()
    made.writes(new(1, KEYED), new(2))
    made.writes(new(9), stored=False)
    return made


def ends(node):
    """Task 1 has succeeded."""
    node.writes(start(1))
    completes(1)(node.view)
    node.writes(*done(1))


def cancels(node):
    """Task 1 is cancelled."""
    node.view.cancels[1] = None
    node.writes(end(1, S.CANCELLED, 0))


def waits(node):
    """Task 10 waits for task 2."""
    edge = Edge(2, "", Condition.ON_SUCCESS)
    asked = spec(pool="b", dependencies=(Dependency(2, edge.condition),))
    node.writes(new(10, asked, edges=(edge,)), blocked(10))


def told(node, request, message, marker=""):
    ask = node.asked(request, marker=marker)
    node.world.ledger.replied(node, ask, message)
    del node.asks[ask]


def nothing(_node):
    pass


def submit(asked, wait=False):
    return m.Submit(asked, wait, None)


def unasked(node):
    """A schedule that nobody has asked for is not told of, but that is another check."""
    node.writes(RecurringStored(SCHEDULE, NOW))


def bad_schedule(node):
    """A schedule is stored whose time zone nobody knows."""
    node.writes(RecurringStored(replace(SCHEDULE, tz="Mars/Base"), NOW))


NEVER = spec(resources=(("db", 2),))


def endless(node):
    """A task is stored that needs more than there ever is."""
    node.writes(new(10, NEVER))


RIGHT = [
    (nothing, submit(KEYED), Submitted(1, True)),
    (nothing, submit(spec()), Submitted(2, False)),
    (ends, submit(KEYED, wait=True), m.SubmitReply(1, True, RESULT)),
    (nothing, m.SubmitBatch((KEYED, spec())), m.BatchReply((Submitted(1, True), Submitted(2, False)))),
    (cancels, m.Cancel(1), m.CancelReply(True)),
    (cancels, m.Cancel("k"), m.CancelReply(True)),
    (ends, m.Cancel(1), m.CancelReply(False)),
    (ends, m.Cancel("k"), m.CancelReply(False)),
    (ends, m.Wait(1, None), RESULT),
    (ends, m.Wait("k", None), RESULT),
    (nothing, m.Get(1), INFO),
    (ends, m.Get(1), INFO),
    (ends, m.Get("k"), ENDED),
    (nothing, LIST, m.TaskPage((INFO,), 1)),
    (unasked, mr.AddRecurring(SCHEDULE), mr.RecurringAddedReply()),
    (unasked, mr.ListRecurring(), mr.RecurringListReply((RecurringView(SCHEDULE, NOW, 2),))),
]


@pytest.mark.parametrize(("before", "request_", "message"), RIGHT)
def test_right_answers_pass(node, before, request_, message):
    before(node)
    told(node, request_, message)


WRONG = [
    ("an acknowledged task is not durable", nothing, submit(spec()), Submitted(9, False)),
    (
        "a duplicate is of a task that does not have its key",
        nothing,
        submit(spec(key="j")),
        Submitted(1, True),
    ),
    ("a duplicate is of a task that does not have its key", nothing, submit(spec()), Submitted(2, True)),
    ("another task was stored than was submitted", nothing, submit(spec(priority=0)), Submitted(2, False)),
    ("a submit is answered with a result exactly", nothing, submit(KEYED, wait=True), Submitted(1, True)),
    ("a submit is answered with a result exactly", ends, submit(KEYED), m.SubmitReply(1, True, RESULT)),
    ("the result of another task", ends, submit(spec(), wait=True), m.SubmitReply(2, False, RESULT)),
    ("an end that was told is not durable", nothing, submit(KEYED, wait=True), m.SubmitReply(1, True, RESULT)),
    ("not answered member by member", nothing, m.SubmitBatch((KEYED, KEYED)), m.BatchReply((Submitted(1, True),))),
    ("an acknowledged task is not durable", nothing, m.SubmitBatch((spec(),)), m.BatchReply((Submitted(9, False),))),
    ("two submissions were told", nothing, m.SubmitBatch((spec(),) * 2), m.BatchReply((Submitted(2, False),) * 2)),
    ("the answer to a cancel", nothing, m.Cancel(1), m.CancelReply(True)),
    ("the answer to a cancel", nothing, m.Cancel(1), m.CancelReply(False)),
    ("the answer to a cancel", ends, m.Cancel(1), m.CancelReply(True)),
    ("the answer to a cancel", ends, m.Cancel("k"), m.CancelReply(True)),
    ("the answer to a cancel", nothing, m.Cancel("k"), m.CancelReply(False)),
    ("a task was told of that is not durable", nothing, m.Get(9), replace(INFO, task_id=9, key="")),
    ("a look is answered with another task", ends, m.Wait(2, None), RESULT),
    ("a look is answered with another task", ends, m.Wait("j", None), RESULT),
    ("an end that was told is not durable", nothing, m.Wait(1, None), RESULT),
    ("an end that was told is not durable", ends, m.Wait(1, None), replace(RESULT, status=S.FAILED, output=None)),
    ("an output that was told is not the stored one", ends, m.Wait(1, None), replace(RESULT, output=b"y")),
    ("a result lacks the output", ends, m.Wait(1, None), replace(RESULT, output=None)),
    ("an end that was told is not durable", nothing, m.Get(1), ENDED),
    ("told in another way than it is stored", ends, m.Get(1), replace(ENDED, attempt=2)),
    ("told in another way than it is stored", ends, m.Get(1), replace(ENDED, message="odd")),
    ("said not to be there that is stored", ends, m.Get(1), replace(ENDED, output_available=False)),
    ("told of in less than is stored", ends, m.Get(1), replace(ENDED, priority=-1)),
    ("as live whose end the store has shown", ends, LIST, m.TaskPage((INFO,), 0)),
    (
        "said not to be there that is still stored",
        unasked,
        mr.RemoveRecurring("s"),
        mr.RecurringRemovedReply(False),
    ),
    ("not what there is", unasked, mr.ListRecurring(), mr.RecurringListReply(())),
    (
        "whose tasks can never run",
        bad_schedule,
        mr.AddRecurring(replace(SCHEDULE, tz="Mars/Base")),
        mr.RecurringAddedReply(),
    ),
    ("can never run", endless, submit(NEVER), Submitted(10, False)),
    (
        "an output is said to be there",
        cancels,
        m.Get(1),
        replace(ENDED, status=S.CANCELLED, attempt=0, message="broken"),
    ),
    ("whose parent has no durable end", waits, m.Get(10), replace(INFO, task_id=10, key="", pool="b")),
    ("further than is stored", nothing, m.Get(1), replace(INFO, status=S.RUNNING, attempt=1)),
    ("to be what none can be", nothing, m.Get(1), replace(INFO, finished=NOW)),
    ("to be another one", nothing, m.Get(1), replace(INFO, pool="b")),
    ("to be another one", nothing, m.Get(1), replace(INFO, max_attempts=4)),
    ("not in the order of ids", nothing, LIST, m.TaskPage((replace(INFO, task_id=2, key=""), INFO), 0)),
    ("not in the order of ids", nothing, LIST, m.TaskPage((INFO, INFO), 0)),
    ("not in the order of ids", nothing, replace(LIST, after=1), m.TaskPage((INFO,), 0)),
    ("that was not asked for", nothing, replace(LIST, pools=("b",)), m.TaskPage((INFO,), 0)),
    ("that was not asked for", nothing, replace(LIST, statuses=(6,)), m.TaskPage((INFO,), 0)),
    ("longer than asked for", nothing, replace(LIST, limit=1), m.TaskPage((INFO, replace(INFO, task_id=2, key="")), 0)),
    ("does not go on behind its end", nothing, LIST, m.TaskPage((replace(INFO, task_id=2, key=""),), 1)),
    ("an acknowledged schedule is not durable", nothing, mr.AddRecurring(SCHEDULE), mr.RecurringAddedReply()),
    ("said to be removed", unasked, mr.RemoveRecurring("s"), mr.RecurringRemovedReply(True)),
    (
        "told of that is not durable",
        nothing,
        mr.ListRecurring(),
        mr.RecurringListReply((RecurringView(SCHEDULE, 0, 0),)),
    ),
    ("to have made a task", unasked, mr.ListRecurring(), mr.RecurringListReply((RecurringView(SCHEDULE, 0, 9),))),
    ("by name, each once", unasked, mr.ListRecurring(), mr.RecurringListReply((RecurringView(SCHEDULE, 0, 0),) * 2)),
    ("the workers that are told of", nothing, m.ListWorkers(), m.WorkerList((m.WorkerInfo(1, "", "a", (), 1, 0, 0),))),
    ("figures are told", nothing, m.GetSnapshot(), m.SnapshotReply(EngineSnapshot((), 2, 0, 2, {}), 0, {})),
]


@pytest.mark.parametrize(("what", "before", "request_", "message"), WRONG)
def test_each_wrong_answer_is_named(node, what, before, request_, message):
    before(node)
    with pytest.raises(Violation, match=what):
        told(node, request_, message)


class TestFigures:
    """Of one worker with two slots, one of which is taken, and of what waits."""

    def pools(self, **changes):
        """What a snapshot says of pools: of pool `a` in other words when they are given."""
        found = []
        for pool in small_settings().pools:
            asked = {"capacity": 2, "busy": 1, "groups": (GroupSnapshot((), 2, 1),)}
            none = {"capacity": 0, "busy": 0, "groups": (GroupSnapshot((), 0, 0),)}
            asked = asked | changes if pool.name == "a" else none
            found.append(PoolSnapshot(pool.name, pending_by_class=(0, 0, 0, 0), **asked))
        return tuple(found)

    def snapshot(self, node, workers=1, **changes):
        live = len(node.view.live)
        engine = EngineSnapshot(self.pools(**changes), live, 1, live - 1, dict(node.view.counts))
        return m.SnapshotReply(engine, workers, {"a": workers} if workers else {})

    @pytest.fixture
    def busy(self, node):
        node.runs(node.worker(), 1, 1)
        return node

    def test_right_ones_pass(self, busy):
        told(busy, m.GetSnapshot(), self.snapshot(busy))
        told(busy, m.ListWorkers(), m.WorkerList((m.WorkerInfo(1, "", "a", (), 2, 1, 0),)))

    @pytest.mark.parametrize(
        "changes",
        [{"capacity": 1}, {"groups": (GroupSnapshot((), 1, 1),)}, {"groups": ()}, {"workers": 0}, {"busy": 0}],
    )
    def test_wrong_ones_are_named(self, busy, changes):
        with pytest.raises(Violation, match="told"):
            told(busy, m.GetSnapshot(), self.snapshot(busy, **changes))

    def test_slots_are_compared_beside_other_calls_too(self, busy):
        ask = busy.asked(m.GetSnapshot())
        asks = m.CallReceived(ask.call, ANYONE, ask.request, None)
        busy.hears(asks, TimerFired())
        assert busy.holders.calm and not busy.holders.alone
        with pytest.raises(Violation, match="slots are told"):
            busy.world.ledger.replied(busy, ask, self.snapshot(busy, capacity=1))
        busy.hears(asks, m.WorkerConnected(m.WorkerStream(None), ANYONE))
        assert not busy.holders.calm
        busy.world.ledger.replied(busy, ask, self.snapshot(busy, capacity=1))

    @pytest.mark.parametrize("slots", [0, 2])
    def test_workers_run_what_runs(self, busy, slots):
        with pytest.raises(Violation, match="busy with other"):
            told(busy, m.ListWorkers(), m.WorkerList((m.WorkerInfo(1, "", "a", (), 2, slots, 0),)))


class TestCalls:
    def test_one_is_answered_once(self, node):
        ask = node.asked(m.Get(1))
        node.world.ledger.replied(node, ask, INFO)
        del node.asks[ask]
        with pytest.raises(Violation, match="a call is answered that is over"):
            node.world.ledger.replied(node, ask, INFO)
        with pytest.raises(Violation, match="a call is answered that is over"):
            node.world.ledger.rejected(node, ask, Rejection(Code.UNAVAILABLE, ""))

    def test_an_end_that_was_told_stays(self, node):
        ends(node)
        told(node, m.Get(1), ENDED)
        with pytest.raises(Violation, match="live again"):
            told(node, m.Get(1), INFO)

    def test_a_task_is_made_once(self, node):
        told(node, submit(spec()), Submitted(2, False))
        with pytest.raises(Violation, match="two submissions"):
            told(node, submit(spec()), Submitted(2, False))

    def test_what_is_forgotten_has_no_duplicates(self, node):
        ends(node)
        node.world.now += node.settings.limits.key_retention - 1
        told(node, submit(KEYED), Submitted(1, True))
        node.world.now += 1
        with pytest.raises(Violation, match="that is forgotten"):
            told(node, submit(KEYED), Submitted(1, True))

    def test_a_whole_page_leaves_nothing_out(self, node):
        short = m.TaskPage((INFO,), 0)
        with pytest.raises(Violation, match="leaves out"):
            for _ in range(4):
                told(node, LIST, short)

    @pytest.mark.parametrize(
        ("request_", "page"),
        [
            (LIST, m.TaskPage((INFO,), 1)),
            (replace(LIST, after=2), m.TaskPage((), 0)),
            (replace(LIST, pools=("b",)), m.TaskPage((), 0)),
            (replace(LIST, statuses=(6,)), m.TaskPage((), 0)),
        ],
    )
    def test_a_whole_page_of_what_was_asked_for(self, node, request_, page):
        for _ in range(4):
            told(node, request_, page)

    @pytest.mark.parametrize(
        ("request_", "code", "details", "right"),
        [
            (m.Get(1), Code.NOT_FOUND, (), False),
            (m.Get("k"), Code.NOT_FOUND, (), False),
            (m.Cancel(1), Code.NOT_FOUND, (), False),
            (m.Get(9), Code.NOT_FOUND, (), True),
            (m.Get("j"), Code.NOT_FOUND, (), True),
            (m.Get(1), Code.DEADLINE_EXCEEDED, (), False),
            (m.Wait(1, SECOND), Code.DEADLINE_EXCEEDED, (), True),
            (m.Wait(1, SECOND + 1), Code.DEADLINE_EXCEEDED, (), False),
            (m.Submit(spec(), True, SECOND), Code.DEADLINE_EXCEEDED, (("cronoq-task-id", "2"),), True),
            (m.Submit(spec(), True, SECOND), Code.DEADLINE_EXCEEDED, (("cronoq-task-id", "9"),), False),
        ],
    )
    def test_refusals(self, node, request_, code, details, right):
        ask = node.asked(request_)
        node.world.now += SECOND
        rejection = Rejection(code, "", details)
        if right:
            node.world.ledger.rejected(node, ask, rejection)
        else:
            with pytest.raises(Violation):
                node.world.ledger.rejected(node, ask, rejection)

    def test_a_batch_that_was_refused_is_not_there(self, node):
        specs = (spec(marker="batch 1", start=NOW),)
        refusal = Rejection(Code.RESERVATION_CONFLICT, "", (("cronoq-batch-index", "0"),))
        node.world.ledger.batches["batch 1"] = specs
        first = node.asked(m.SubmitBatch(specs), marker="batch 1")
        node.world.events -= 1  # in the same read
        second = node.asked(m.SubmitBatch(specs), marker="batch 1")
        node.writes(new(10, specs[0]))
        node.world.ledger.rejected(node, first, refusal)
        with pytest.raises(Violation, match="a batch was refused, and is there"):
            node.world.ledger.rejected(node, second, refusal)


class TestWatches:
    WRONG = (
        ("what it does not watch for", ends, replace(ALL, ids=(2,)), EVENT),
        ("what it does not watch for", ends, replace(ALL, keys=("j",)), EVENT),
        ("what it does not watch for", ends, replace(ALL, keys=("k",), pools=("b",)), EVENT),
        ("what it does not watch for", nothing, m.Watch((), (), (), False), replace(EVENT, status=S.READY, attempt=0)),
        ("a task that is not durable", nothing, ALL, replace(EVENT, task_id=9, key="", status=S.READY, attempt=0)),
        ("what is not durable", nothing, ALL, EVENT),
        ("what is not durable", nothing, ALL, replace(EVENT, status=S.RUNNING)),
        ("whose parent has no durable end", waits, ALL, m.StatusEvent(10, "b", "", S.READY, 0, NOW, "")),
        ("another end", ends, ALL, replace(EVENT, status=S.FAILED)),
        ("another end", ends, ALL, replace(EVENT, at=NOW + 1)),
    )

    @pytest.mark.parametrize(("what", "before", "request_", "event"), WRONG)
    def test_each_wrong_event_is_named(self, node, what, before, request_, event):
        before(node)
        ask = node.asked(request_)
        with pytest.raises(Violation, match=what):
            node.world.ledger.told(node, ask, event)

    def test_events_come_in_order(self, node):
        node.writes(start(1))
        node.writes(retry(1))
        node.writes(start(1, 2, first=NOW))
        ask = node.asked(ALL)
        tell = node.world.ledger.told
        tell(node, ask, replace(EVENT, status=S.RUNNING, attempt=2))
        tell(node, ask, replace(EVENT, status=S.READY, attempt=1))  # the dispatch was taken back
        with pytest.raises(Violation, match="wrong order"):
            tell(node, ask, replace(EVENT, status=S.RUNNING, attempt=1))

    def test_an_end_comes_once_and_last(self, node):
        ends(node)
        ask = node.asked(ALL)
        tell = node.world.ledger.told
        tell(node, ask, EVENT)
        with pytest.raises(Violation, match="twice"):
            tell(node, ask, EVENT)
        with pytest.raises(Violation, match="wrong order"):
            tell(node, ask, replace(EVENT, status=S.RUNNING))
        del node.asks[ask]
        with pytest.raises(Violation, match="after its end"):
            tell(node, ask, EVENT)


class TestRows:
    def test_a_transaction_may_be_written_again(self, node):
        ends(node)
        records = [start(1), OutputStored(1, b"x", ""), end(1, S.SUCCEEDED)]
        node.world.store.rows.write(records)
        node.world.ledger.committed(records)

    @pytest.mark.parametrize("record", [start(1, 2), end(1, S.FAILED), blocked(1)])
    def test_an_end_is_never_replaced(self, node, record):
        ends(node)
        node.world.store.rows.write([record])
        with pytest.raises(Violation, match="is replaced"):
            node.world.ledger.committed([record])

    def test_nor_is_an_output(self, node):
        ends(node)
        with pytest.raises(Violation, match="a stored output is replaced"):
            node.world.ledger.committed([OutputStored(1, b"y", "")])

    def test_a_schedule_of_the_file_is_the_operators(self, node):
        node.writes(RecurringStored(replace(SCHEDULE, configured=True), NOW))
        with pytest.raises(Violation, match="replaced by a caller"):
            node.world.ledger.committed([RecurringStored(SCHEDULE, NOW)])
        node.world.ledger.committed([RecurringDeleted("s"), RecurringStored(SCHEDULE, NOW)])

    def test_a_schedule_goes_when_somebody_wants_that(self, node):
        node.writes(RecurringStored(SCHEDULE, NOW))
        with pytest.raises(Violation, match="nobody has removed"):
            node.world.ledger.committed([RecurringDeleted("s")])
        node.asked(mr.RemoveRecurring("s"))
        node.world.ledger.committed([RecurringDeleted("s")])

    def test_a_lease_is_sent_when_its_dispatch_is_stored(self, node):
        worker = node.worker()
        node.writes(start(1), stored=False)
        with pytest.raises(Violation, match="a worker has a lease that is not durable"):
            node.world.ledger.leased(node, worker, node.lease(1, 1))
