"""Random graphs against a naive evaluation: whatever the way in, the order of ends, the cuts and the crashes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine import cycles
from cronoq_sansio.engine import events as ev
from cronoq_sansio.engine.actions import BatchOutcome, Submitted
from cronoq_sansio.errors import Code
from cronoq_sansio.spec import Condition, TaskStatus
from tests.engine.harness import dep, pool, spec
from tests.engine.test_recovery import Site

#: How a task ends once it runs, and what that means for each condition.
OUTCOMES = ("SUCCEEDED", "FAILED", "CANCELLED")
MEETS = {
    Condition.ON_SUCCESS: ("SUCCEEDED",),
    Condition.ON_COMPLETE: ("SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED"),
    Condition.ON_FAILURE: ("FAILED",),
}

sizes = st.integers(2, 9)


@st.composite
def graphs(draw, circular=False):
    """Edges (parent, condition) of each node, and how each node ends. Parents come first unless `circular`."""
    size = draw(sizes)
    edges = [
        draw(
            st.lists(
                st.tuples(st.integers(0, (size if circular else node) - 1), st.sampled_from(list(Condition))),
                max_size=3,
            )
        )
        if circular or node
        else []
        for node in range(size)
    ]
    outcomes = draw(st.lists(st.sampled_from((*OUTCOMES, "SUCCEEDED")), min_size=size, max_size=size))
    return edges, outcomes


def expected(edges, outcomes):
    """How each task of an acyclic graph ends: look at all its parents."""
    ends = []
    for parents, outcome in zip(edges, outcomes, strict=True):
        met = all(ends[parent] in MEETS[condition] for parent, condition in parents)
        ends.append(outcome if met else "SKIPPED")
    return ends


def named(edges, node, ids=()):
    """The specification of a node: its parents by key, or by id as far as they have one already."""
    parents = [
        dep(ids[parent] if number % 2 and parent < len(ids) else f"n{parent}", condition)
        for number, (parent, condition) in enumerate(edges[node])
    ]
    return spec(f"n{node}", deps=parents)


def site_of(**changes):
    return Site(pool(await_unknown_dependencies=1_000 * SECOND, **changes), key_retention_max=100)


def run(site, count, data, outcomes):
    """One task after the other, in any order the scheduler and chance like, with crashes between."""
    started = []
    for _ in range(3 * count):
        if data.draw(st.integers(0, 5), label="crash?") == 0:
            site.crash(after=data.draw(st.sampled_from([0, SECOND, 10_000 * SECOND]), label="down"))
        rig = site.rig
        if all(f"n{node}" not in {task.spec.key for task in rig.engine.tasks.live.values()} for node in range(count)):
            break
        rig.slots(1)
        rig.slots(0)
        if not rig.engine.leases.live:
            continue
        (lease,) = rig.engine.leases.live.values()
        task = lease.task
        node = int(task.spec.key[1:])
        started.append(node)
        report = {
            "SUCCEEDED": ev.AttemptSucceeded(lease.id, b"", ""),
            "FAILED": ev.AttemptFailed(lease.id, "no", True, 0),
            "CANCELLED": ev.AttemptCancelled(lease.id),
        }[outcomes[node]]
        rig.handle(report)
    assert max(Counter(started).values(), default=0) <= 1, "nothing runs twice"
    return started


def check(site, ids, edges, outcomes, started):
    ends = expected(edges, outcomes)
    stored = [TaskStatus(site.store.states[task].status).name for task in ids]
    assert stored == ends
    for place, node in enumerate(started):
        for parent, _ in edges[node]:
            assert ends[parent] == "SKIPPED" or parent in started[:place], f"{node} started before {parent} ended"
    assert set(started) == {node for node, end in enumerate(ends) if end != "SKIPPED"}
    for node, task in enumerate(ids):
        if ends[node] == "SKIPPED":
            message = site.store.states[task].message
            assert any(
                message.startswith(f"task {ids[parent]} (key 'n{parent}') ended as {ends[parent].lower()}, ")
                and message.endswith(condition.name.lower())
                and ends[parent] not in MEETS[condition]
                for parent, condition in edges[node]
            ), message
    statistics = site.rig.engine.dependencies.statistics()
    assert not any(statistics.values()), statistics


@given(graphs(), st.data())
def test_one_after_the_other_parents_first(graph, data):
    edges, outcomes = graph
    site = site_of()
    ids = []
    for node in range(len(edges)):
        ids += site.rig.submit(named(edges, node, ids))
    check(site, ids, edges, outcomes, run(site, len(edges), data, outcomes))


@given(graphs(), st.data())
def test_one_after_the_other_in_any_order(graph, data):
    """Parents that are not there yet are awaited."""
    edges, outcomes = graph
    site = site_of()
    order = data.draw(st.permutations(range(len(edges))))
    ids = {}
    for node in order:
        (ids[node],) = site.rig.submit(named(edges, node))
    ids = [ids[node] for node in range(len(edges))]
    check(site, ids, edges, outcomes, run(site, len(edges), data, outcomes))


@given(graphs(), st.data())
def test_a_batch_in_any_order(graph, data):
    edges, outcomes = graph
    site = site_of(max_pending=1_000)
    order = data.draw(st.permutations(range(len(edges))))
    answers = site.rig.batch(*(named(edges, node) for node in order))
    ids = [answers[order.index(node)] for node in range(len(edges))]
    assert all(ids[parent] < ids[node] for node in range(len(edges)) for parent, _ in edges[node])
    check(site, ids, edges, outcomes, run(site, len(edges), data, outcomes))


@given(graphs(), st.data())
def test_a_batch_whose_first_parents_have_ended(graph, data):
    """Part of the graph runs before the rest of it is submitted."""
    edges, outcomes = graph
    site = site_of()
    first = data.draw(st.integers(1, len(edges) - 1))
    ids = []
    for node in range(first):
        ids += site.rig.submit(named(edges, node))
    started = run(site, first, data, outcomes)
    order = data.draw(st.permutations(range(first, len(edges))))
    known = ids if all(site.rig.engine.find(task) for task in ids) else []
    site.rig.handle(ev.BatchSubmitted(None, tuple(named(edges, node, known) for node in order)))
    outcome = site.rig.answers[-1]
    if type(outcome) is not BatchOutcome:
        assert outcome.code is Code.UNKNOWN_DEPENDENCY
        return
    if any(site.rig.engine.find(task) is None for task in ids):
        return  # some of them were forgotten over a long crash: their keys are awaited
    ids += [outcome.members[order.index(node)].task_id for node in range(first, len(edges))]
    check(site, ids, edges, outcomes, started + run(site, len(edges), data, outcomes))


# --- cycles


def on_a_cycle(edges):
    """Every node that reaches itself, by following everything."""
    found = set()
    for start in range(len(edges)):
        reached, ahead = set(), [start]
        while ahead:
            for parent, _ in edges[ahead.pop()]:
                if parent not in reached:
                    reached.add(parent)
                    ahead.append(parent)
        if start in reached:
            found.add(start)
    return found


@given(graphs(circular=True), st.data())
def test_a_batch_is_refused_exactly_when_it_has_a_cycle(graph, data):
    edges, _ = graph
    site = site_of()
    site.rig.handle(ev.BatchSubmitted(None, tuple(named(edges, node) for node in range(len(edges)))))
    outcome = site.rig.answers[-1]
    circular = on_a_cycle(edges)
    itself = [node for node in range(len(edges)) if any(parent == node for parent, _ in edges[node])]
    if not circular:
        assert type(outcome) is BatchOutcome
        return
    assert outcome.code is Code.CYCLE and not site.store.inserted
    named_first = itself[0] if itself else min(circular)
    assert outcome.details == (("cronoq-batch-index", str(named_first)),)
    way = [int(name[1:]) for name in outcome.message.rpartition(": ")[2].split(" -> ")]
    assert way[0] == way[-1] == named_first and len(set(way)) == len(way) - 1
    for node, parent in zip(way, way[1:], strict=False):
        assert parent in {other for other, _ in edges[node]}, "each waits for the next"


@given(graphs(circular=True), st.data())
def test_the_submission_that_would_close_a_cycle_is_refused_and_no_other(graph, data):
    """One after the other in a pool that awaits keys; what was refused comes again without edges."""
    edges, _ = graph
    edges = [[(parent, condition) for parent, condition in some if parent != node] for node, some in enumerate(edges)]
    site = site_of()
    present = {}
    for node in data.draw(st.permutations(range(len(edges)))):
        site.rig.handle(ev.TaskSubmitted(None, named(edges, node)))
        outcome = site.rig.answers[-1]
        closed = {**present, node: edges[node]}
        graph_now = [closed.get(other, []) for other in range(len(edges))]
        if on_a_cycle(graph_now):
            assert outcome.code is Code.CYCLE
            way = [int(name[1:]) for name in outcome.message.rpartition(": ")[2].split(" -> ")]
            assert way[0] == way[-1] == node
            site.rig.submit(spec(f"n{node}"))
            present[node] = []
        else:
            assert type(outcome) is Submitted
            present[node] = edges[node]
    run(site, len(edges), data, ["SUCCEEDED"] * len(edges))
    assert not site.rig.engine.tasks.live


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=8, max_size=8))
def test_the_topological_order_has_who_waits_for_no_cycle(parents):
    order = cycles.topological(parents)
    edges = [[(parent, None) for parent in some] for some in parents]
    circular = on_a_cycle(edges)
    behind = {node for node in range(8) if any(other in circular for other in reached(parents, node))}
    assert sorted(order) == [node for node in range(8) if node not in circular | behind]
    for place, node in enumerate(order):
        ready = [other for other in order[place:] if all(parent in order[:place] for parent in parents[other])]
        assert node == min(ready), "the first of the request among those whose turn it is"


def reached(parents, node):
    found, ahead = set(), [node]
    while ahead:
        for parent in parents[ahead.pop()]:
            if parent not in found:
                found.add(parent)
                ahead.append(parent)
    return found
