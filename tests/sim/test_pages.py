"""What lists must show of what came before them in the same read, and of what changed since."""

from dataclasses import replace

import pytest

from cronoq_sansio.engine.actions import Submitted
from cronoq_sansio.engine.records import RecurringDeleted, RecurringStored
from cronoq_sansio.engine.snapshot import RecurringView
from cronoq_sansio.service import messages as m
from cronoq_sansio.service import messages_recurring as mr
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.sim.failure import Violation
from cronoq_sansio.sim.server.callers import Ask
from cronoq_sansio.spec import RecurringSpec
from cronoq_sansio.spec import TaskStatus as S
from tests.sim.shadows import NOW, Node, end, new, spec

LIST = m.ListTasks((), (), 0, 0)
SCHEDULE = RecurringSpec("s", "* * * * * *", "", spec())
OTHER = replace(SCHEDULE, cron="*/7 * * * * *")


def info(task_id, **rest):
    return m.TaskInfo(task_id, S.READY, "a", "", "", 0, 3, NOW, None, None, "", False, 2, **rest)


def reads(node, *requests):
    """All of these come in one read."""
    asks = [Ask(number, "", request, node, "") for number, request in enumerate(requests)]
    node.asks.update(dict.fromkeys(asks))
    node.hears(*(m.CallReceived(ask.call, ANYONE, ask.request, None) for ask in asks))
    return asks


def tell(node, ask, message):
    node.world.ledger.replied(node, ask, message)
    del node.asks[ask]


def listed(*specs):
    return mr.RecurringListReply(tuple(RecurringView(one, NOW, 0) for one in specs))


class TestTasks:
    @pytest.mark.parametrize(
        ("request_", "page", "right"),
        [
            (LIST, m.TaskPage((info(1),), 0), True),
            (LIST, m.TaskPage((), 0), False),
            (replace(LIST, pools=("a",)), m.TaskPage((), 0), False),
            (replace(LIST, pools=("b",)), m.TaskPage((), 0), True),
            (replace(LIST, after=1), m.TaskPage((), 0), True),
        ],
    )
    def test_what_came_before_in_the_same_read_is_there(self, request_, page, right):
        node = Node()
        submit, question = reads(node, m.Submit(spec(), False, None), request_)
        node.writes(new(1))
        tell(node, submit, Submitted(1, False))
        if right:
            tell(node, question, page)
        else:
            with pytest.raises(Violation, match="came before it in the same read"):
                tell(node, question, page)

    def test_what_came_behind_need_not(self):
        node = Node()
        question, submit = reads(node, LIST, m.Submit(spec(), False, None))
        node.writes(new(1))
        tell(node, submit, Submitted(1, False))
        tell(node, question, m.TaskPage((), 0))

    @pytest.mark.parametrize(("length", "right"), [(4_000, True), (4_090, False)])
    def test_a_page_fits_a_message(self, length, right):
        node = Node()
        node.settings = replace(node.settings, limits=replace(node.settings.limits, max_message_bytes=8_200))
        rows = node.world.store.rows
        rows.write([new(1), new(2)])
        node.world.ledger.committed([new(1), new(2)])
        message = "e" * length
        ended = [replace(end(number, S.CANCELLED, 0), message=message) for number in (1, 2)]
        node.world.store.rows.write(ended)
        node.world.ledger.committed(ended)
        told = [replace(info(number), status=S.CANCELLED, finished=NOW, message=message, pool="a") for number in (1, 2)]
        (question,) = reads(node, LIST)
        if right:
            tell(node, question, m.TaskPage(tuple(told), 0))
        else:
            with pytest.raises(Violation, match="larger than a message"):
                tell(node, question, m.TaskPage(tuple(told), 0))

    def test_a_term_without_a_store_of_ends_tells_what_it_remembers(self):
        node = Node()
        node.world.store.volatile = True
        node.writes(new(1), new(2))
        node.view.cancels[1] = node.view.cancels[2] = None
        node.writes(end(1, S.CANCELLED, 0), end(2, S.CANCELLED, 0))
        node.settings = replace(node.settings, outputs=replace(node.settings.outputs, info_entries=1))
        less = m.TaskInfo(1, S.CANCELLED, "a", "", "", 0, 0, None, None, None, "", False, -1)
        for task_id in (1, 2):
            (question,) = reads(node, m.Get(task_id))
            if task_id == 1:
                tell(node, question, less)
            else:
                with pytest.raises(Violation, match="in less than is remembered"):
                    tell(node, question, replace(less, task_id=2))


class TestSchedules:
    @pytest.fixture
    def node(self):
        made = Node()
        made.writes(RecurringStored(SCHEDULE, NOW))
        return made

    def test_all_are_there_as_they_are(self, node):
        (question,) = reads(node, mr.ListRecurring())
        tell(node, question, listed(SCHEDULE))
        for wrong in (listed(), listed(OTHER)):
            (question,) = reads(node, mr.ListRecurring())
            with pytest.raises(Violation, match=r"not what there is|not durable"):
                tell(node, question, wrong)

    def test_what_was_removed_is_not(self, node):
        node.asked(mr.RemoveRecurring("s"))
        node.writes(RecurringDeleted("s"))
        (question,) = reads(node, mr.ListRecurring())
        with pytest.raises(Violation, match="not what there is"):
            tell(node, question, listed(SCHEDULE))

    def test_what_changed_since_may_be_either(self, node):
        (question,) = reads(node, mr.ListRecurring())
        node.hears()
        node.world.events += 1
        node.writes(RecurringStored(OTHER, NOW))
        tell(node, question, listed(SCHEDULE))

    @pytest.mark.parametrize(("before", "right"), [(True, False), (False, True)])
    def test_what_the_same_read_changed(self, node, before, right):
        requests = [mr.AddRecurring(OTHER), mr.ListRecurring()]
        asks = reads(node, *(requests if before else reversed(requests)))
        node.writes(RecurringStored(OTHER, NOW))
        question = asks[1 if before else 0]
        if right:
            tell(node, question, listed(SCHEDULE))
        else:
            with pytest.raises(Violation, match="not what there is"):
                tell(node, question, listed(SCHEDULE))
