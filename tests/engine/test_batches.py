"""Batches: all or none, the member that failed named, duplicates in their places, bounds for the sums."""

import pytest

from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import BatchOutcome, Submitted
from cronoq_sansio.engine.records import TaskInserted
from cronoq_sansio.errors import Code
from cronoq_sansio.settings import LimitSettings
from tests.engine.harness import Rig, attempts, pool, spec, total

BAD_MEMBERS = [
    (spec(pool="nowhere"), Code.UNKNOWN_POOL, "unknown pool 'nowhere'"),
    (spec(retry=attempts(0)), Code.INVALID, "max_attempts"),
    (spec("a"), Code.DUPLICATE_KEY_IN_BATCH, "key 'a' is defined by task[0] already"),
]


def test_all_members_are_admitted_in_one_step_in_the_order_of_the_request():
    rig = Rig(pool("default"), pool("other"))
    step = rig.handle(ev.BatchSubmitted("r", (spec("a"), spec(pool="other"), spec("b"))))
    (answer,) = step.once_durable
    assert answer.outcome == BatchOutcome((Submitted(1, False), Submitted(2, False), Submitted(3, False)))
    assert answer.request == "r" and answer.after == step.number
    assert [record.task_id for record in step.writes if type(record) is TaskInserted] == [1, 2, 3]
    assert total(rig, "submitted") == 3


def test_members_run_like_any_task():
    rig = Rig()
    ids = rig.batch(spec(), spec(), spec())
    rig.slots(2)
    assert rig.order() == ids[:2]


def test_an_empty_batch_is_fine_and_shows_nothing():
    rig = Rig()
    step = rig.handle(ev.BatchSubmitted("r", ()))
    (answer,) = step.once_durable
    assert (answer.outcome, answer.after, step.writes) == (BatchOutcome(()), 0, [])


@pytest.mark.parametrize(("bad", "code", "words"), BAD_MEMBERS)
@pytest.mark.parametrize("index", [1, 2, 3])
def test_one_bad_member_refuses_all_and_is_named(bad, code, words, index):
    rig = Rig()
    members = [spec("a"), spec("b"), spec("c")]
    members.insert(index, bad)
    refusal = rig.batch_refused(*members)
    assert refusal.code is code and words in refusal.message
    assert refusal.message.startswith((f"task[{index}]: ", f"task[{index}].retry."))
    assert refusal.details == (("cronoq-batch-index", str(index)),)


def test_the_first_bad_member_is_the_one_that_is_named():
    refusal = Rig().batch_refused(spec(), spec(retry=attempts(0)), spec(pool="nowhere"))
    assert refusal.details == (("cronoq-batch-index", "1"),)


def test_a_refused_batch_leaves_its_keys_free():
    rig = Rig()
    rig.batch_refused(spec("a"), spec(pool="nowhere"))
    assert rig.batch(spec("a"), spec("b")) == [1, 2]


def test_members_with_known_keys_are_duplicates_in_their_places():
    rig = Rig()
    (live, finished) = rig.submit(spec("live"), spec("finished"))
    rig.handle(ev.TaskCancelled(None, finished))
    rig.handle(ev.BatchSubmitted(None, (spec(), spec("finished", pool="nowhere"), spec("new"), spec("live"))))
    assert rig.answers[-1].members == (
        Submitted(3, False),
        Submitted(finished, True),
        Submitted(4, False),
        Submitted(live, True),
    )
    assert total(rig, "submitted") == 4


def test_a_known_key_may_be_named_twice():
    """They do not contradict each other: neither of them is inserted."""
    rig = Rig()
    (known,) = rig.submit(spec("k"))
    assert rig.batch(spec("k"), spec("k")) == [known, known]


def test_the_answer_waits_for_the_newest_step_that_it_shows():
    rig = Rig()
    rig.submit(spec("a"))
    rig.submit(spec("b"))
    written = rig.engine.number
    rig.submit(spec("c"))
    (answer,) = rig.handle(ev.BatchSubmitted(None, (spec("b"), spec("a")))).once_durable
    assert answer.after == written
    step = rig.handle(ev.BatchSubmitted(None, (spec("b"), spec())))
    assert step.once_durable[0].after == step.number


def test_two_batches_of_one_step_see_each_other():
    rig = Rig()
    rig.handle(ev.BatchSubmitted(1, (spec("a"),)), ev.BatchSubmitted(2, (spec("b"), spec("a"))))
    assert [[member.duplicate for member in outcome.members] for outcome in rig.answers] == [[False], [False, True]]


# --- bounds count the members that come before


def test_the_bound_of_a_pool_holds_for_the_sum():
    rig = Rig(pool("a", max_pending=3), pool("b"))
    rig.submit(spec(pool="a"))
    refusal = rig.batch_refused(spec(pool="a"), spec(pool="b"), spec(pool="a"), spec(pool="a"))
    assert refusal.code is Code.OVERLOADED and refusal.details == (("cronoq-batch-index", "3"),)
    assert "'a' has 3 pending tasks" in refusal.message
    assert len(rig.batch(spec(pool="a"), spec(pool="b"), spec(pool="a"))) == 3


def test_the_bound_of_all_pools_holds_for_the_sum():
    rig = Rig(pool("a"), pool("b"), limits=LimitSettings(max_pending_total=3))
    refusal = rig.batch_refused(*(spec(pool=name) for name in "abab"))
    assert refusal.code is Code.OVERLOADED and "max_pending_total is 3" in refusal.message
    assert refusal.details == (("cronoq-batch-index", "3"),)
    rig.batch(*(spec(pool=name) for name in "aba"))


def test_the_payload_budget_holds_for_the_sum():
    rig = Rig(limits=LimitSettings(max_payload_bytes=100))
    refusal = rig.batch_refused(spec(size=40), spec(size=40), spec(size=21))
    assert refusal.code is Code.OVERLOADED and "hold 80 bytes and this one 21" in refusal.message
    rig.batch(spec(size=40), spec(size=40), spec(size=20))


def test_duplicates_take_no_room():
    rig = Rig(pool(max_pending=2))
    (known,) = rig.submit(spec("k"))
    assert rig.batch(spec("k"), spec("k"), spec()) == [known, known, 2]


def test_slots_that_are_free_do_not_count_as_room():
    """Dispatch comes once, after the events of a step: bounds are about what waits at that moment."""
    rig = Rig(pool(max_pending=2))
    rig.slots(5)
    rig.batch_refused(spec(), spec(), spec())
    rig.batch(spec(), spec())
    assert rig.engine.running == 2
