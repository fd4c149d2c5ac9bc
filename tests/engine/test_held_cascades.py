"""Cascades that are held because the store is behind: they stand still, nothing else does, and nothing is lost."""

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.records import Edge, EdgeResolved, TaskFinished
from cronoq_sansio.limits import MAX_UNITS
from cronoq_sansio.spec import Condition
from tests.engine.harness import Rig, dep, pool, spec, total
from tests.engine.test_recovery import Site

COMPLETE, SUCCESS = Condition.ON_COMPLETE, Condition.ON_SUCCESS


def unsettled(rig):
    return rig.engine.dependencies.statistics()["unsettled_parents"]


def test_an_end_is_not_passed_on_while_cascades_are_held():
    rig = Rig()
    parent, child = rig.submit(spec("p"), spec(deps=["p"]))
    rig.slots(1)
    rig.handle(ev.CascadesHeld(True))
    rig.complete(parent)
    assert parent in rig.ended and rig.status(child) == "BLOCKED" and unsettled(rig) == 1
    rig.handle(ev.CascadesHeld(False))
    assert rig.status(child) == "RUNNING" and unsettled(rig) == 0, "a portion goes with the event itself"


def test_what_is_held_is_not_due_and_other_timers_are():
    rig = Rig(pool(await_unknown_dependencies=5 * SECOND))
    rig.handle(ev.CascadesHeld(True))
    parent, child, late = rig.submit(spec("p"), spec(deps=["p"]), spec(deps=["never"]))
    rig.handle(ev.TaskCancelled(None, parent))
    assert rig.engine.next_timeout() == rig.now + 5 * SECOND, "nothing to do before that"
    step = rig.handle(ev.TimerFired())
    assert not step.writes and rig.status(child) == "BLOCKED"
    rig.advance(5 * SECOND)
    assert late in rig.ended and rig.engine.next_timeout() is None
    rig.handle(ev.CascadesHeld(False))
    assert rig.status(child) == "SKIPPED"


def test_everything_else_goes_on():
    rig = Rig(pool(await_unknown_dependencies=5 * SECOND))
    parent, child = rig.submit(spec("p"), spec(deps=["p"]))
    rig.handle(ev.CascadesHeld(True))
    rig.handle(ev.TaskCancelled(None, parent))
    (other,) = rig.submit(spec("other"))
    rig.slots(1)
    assert rig.status(other) == "RUNNING"
    judged, new = rig.submit(spec(deps=[dep("p", COMPLETE)]), spec(deps=["other"]))
    assert rig.status(judged) == "READY", "a parent that has ended is judged at once, whoever else still waits for it"
    rig.handle(ev.TaskCancelled(None, child))
    rig.complete(other)
    assert rig.status(judged) == "RUNNING" and rig.status(new) == "BLOCKED"
    rig.handle(ev.CascadesHeld(False))
    assert rig.status(child) == "CANCELLED" and rig.status(new) == "READY"


def test_rows_do_not_say_that_a_key_came_before_the_release():
    rig = Rig(pool(await_unknown_dependencies=5 * SECOND))
    (child,) = rig.submit(spec(deps=["k", dep("l", COMPLETE)]))
    rig.handle(ev.CascadesHeld(True))
    step = rig.handle(ev.TaskSubmitted(None, spec("k")), ev.TaskSubmitted(None, spec("l")))
    assert not any(type(record) is EdgeResolved for record in step.writes)
    rig.advance(9 * SECOND)
    assert rig.status(child) == "BLOCKED", "the keys came in time"
    step = rig.handle(ev.CascadesHeld(False))
    first, second = (rig.engine.find(key).id for key in "kl")
    assert step.writes == [EdgeResolved(child, "k", first), EdgeResolved(child, "l", second)]


def test_after_the_release_they_go_in_portions():
    rig = Rig()
    count = 2 * MAX_UNITS + 7
    (parent,) = rig.submit(spec("p"))
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["p"])) for _ in range(count)], rig.now)
    rig.engine.handle([ev.CascadesHeld(True), ev.TaskCancelled(None, parent)], rig.now)
    assert total(rig, "skipped") == 0 and rig.engine.next_timeout() is None
    done = []
    events = [ev.CascadesHeld(False)]
    while events:
        rig.engine.handle(events, rig.now)
        done.append(total(rig, "skipped"))
        due = rig.engine.next_timeout()
        events = [ev.TimerFired()] if due is not None and due <= rig.now else []
    assert done == [MAX_UNITS, 2 * MAX_UNITS, count]


def test_held_again_in_the_middle_of_a_wave():
    rig = Rig()
    (parent,) = rig.submit(spec("p"))
    rig.engine.handle([ev.TaskSubmitted(None, spec(deps=["p"])) for _ in range(2 * MAX_UNITS)], rig.now)
    rig.handle(ev.TaskCancelled(None, parent))
    assert rig.engine.next_timeout() <= rig.now
    rig.handle(ev.CascadesHeld(True))
    assert total(rig, "skipped") == MAX_UNITS and rig.engine.next_timeout() is None
    rig.handle(ev.TimerFired())
    assert total(rig, "skipped") == MAX_UNITS
    rig.handle(ev.CascadesHeld(False))
    assert total(rig, "skipped") == 2 * MAX_UNITS


def test_a_crash_while_they_are_held_loses_nothing():
    site = Site(pool(await_unknown_dependencies=60 * SECOND))
    parent, skipped, runs, waits, last = site.rig.submit(
        spec("p"), spec("s", deps=["p"]), spec(deps=[dep("p", COMPLETE)]), spec(deps=["k"]), spec(deps=["s"])
    )
    site.rig.handle(ev.CascadesHeld(True))
    site.rig.handle(ev.TaskCancelled(None, parent))
    (key,) = site.rig.submit(spec("k"))
    assert site.store.inserted[waits].edges == (Edge(0, "k", SUCCESS),), "the row does not know"
    for _ in range(2):  # a second crash comes before the first step
        rig = site.crash()
    assert rig.status(runs) == "READY" and rig.status(waits) == "BLOCKED"
    assert [type(site.store.states[task]) for task in (skipped, last)] == [TaskFinished] * 2
    rig.handle(ev.TimerFired())
    assert site.store.inserted[waits].edges == (Edge(key, "", SUCCESS),)
    (child,) = rig.submit(spec(deps=["k"]))
    rig.handle(ev.TaskCancelled(None, key))
    assert rig.status(child) == rig.status(waits) == "SKIPPED", "a new term holds nothing"
