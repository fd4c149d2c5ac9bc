"""Where a batch ends is part of the input, and no rule depends on it: what becomes of tasks and calls does not either.

Each task has a fate (how workers treat it), so that its end does not depend on who runs it when. The same callers'
events are then cut into batches in two ways, commits come at different moments, workers report one by one or all at
once: the tasks end alike, and every call gets the same kind of answer.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import Rejection
from cronoq_sansio.service import messages as m
from cronoq_sansio.service.access import ANYONE
from cronoq_sansio.settings import LimitSettings, OutputSettings, PoolSettings, Settings
from cronoq_sansio.spec import RetryPolicy
from tests.service.harness import Harness, spec

SETTINGS = Settings(
    limits=replace(LimitSettings(), max_wait=1_000 * SECOND),
    outputs=OutputSettings(cache_entries=1, info_entries=2),
    pools=(PoolSettings(retry=RetryPolicy(2, SECOND, 2.0, 4 * SECOND, False)),),
)
FATES = ("succeed", "fail", "break", "refuse", "give up")
KEYS = ("a", "b", "c", "d", "e")

caller = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(KEYS)),
    st.tuples(st.just("submit and wait"), st.sampled_from(KEYS)),
    st.tuples(st.just("cancel"), st.sampled_from(KEYS)),
    st.tuples(st.just("get"), st.sampled_from(KEYS)),
)
callers = st.lists(caller, min_size=1, max_size=12)
fates = st.tuples(*[st.sampled_from(FATES)] * len(KEYS))
manner = st.tuples(st.lists(st.booleans(), min_size=12, max_size=12), st.booleans(), st.booleans())
"""Where the callers' events are cut; whether each batch is committed at once; whether workers report one by one."""


def request_of(move, key, fate):
    if move == "cancel":
        return m.Cancel(key)
    if move == "get":
        return m.Get(key)
    return m.Submit(spec(key=key, kind=fate), move == "submit and wait", None)


def report(lease, refused):
    """What a worker does with a lease, by the fate of its task."""
    fate = lease.task.spec.kind
    if fate == "refuse" and lease.id not in refused:
        refused.add(lease.id)
        return m.Nack(lease.id, "not me")
    if fate == "fail":
        return m.Fail(lease.id, "hopeless", True, 0)
    if fate == "break":
        return m.Fail(lease.id, "broken", False, 0)
    if fate == "give up":
        return m.AttemptAborted(lease.id)
    return m.Complete(lease.id, lease.task.spec.key.encode(), "")


def ask(rig, script, fate_of, cuts, commit):
    calls, batch = [], []
    for (move, key), cut in zip(script, cuts, strict=False):
        calls.append(m.Call(key))
        batch.append(rig.received(calls[-1], request_of(move, key, fate_of[key])))
        if cut:
            rig.handle(*batch)
            batch = []
            if commit:
                rig.durable()
    rig.handle(*batch)
    return calls


def work(rig, one_by_one):
    """Workers that can run everything side by side, until nothing is left."""
    refused = set()
    streams = [m.WorkerStream("") for _ in range(3)]
    for stream in streams:
        register = m.Register("default", 10, "", 3, ())
        rig.handle(m.WorkerConnected(stream, ANYONE), m.WorkerSent(stream, register))
    for _ in range(20):
        rig.durable()
        while rig.queries:
            rig.answer_store()
        leases = [(stream, lease) for stream in streams for lease in rig.peers[stream].leases.values()]
        reports = [m.WorkerSent(stream, report(lease, refused)) for stream, lease in leases]
        for batch in [[event] for event in reports] if one_by_one else [reports]:
            rig.handle(*batch)
        rig.advance(SECOND)


def outcome(rig, calls):
    """What must not depend on the cut. A Get may see any status: it says which task it saw, no more."""
    tasks = {key: [row.state.status for row in rig.rows.values() if row.inserted.spec.key == key] for key in KEYS}
    outputs = {row.inserted.spec.key: row.output.output for row in rig.rows.values() if row.output}
    answers = []
    for call in calls:
        answer = rig.answer(call)
        if isinstance(answer, Rejection):
            answers.append(answer.code)
        elif isinstance(answer, m.TaskInfo):
            answers.append(answer.key)
        else:
            answers.append(answer)
    return tasks, outputs, answers


def run(script, fate_of, manner):
    cuts, commit, one_by_one = manner
    rig = Harness(SETTINGS)
    calls = ask(rig, script, fate_of, cuts, commit)
    work(rig, one_by_one)
    assert not rig.engine.tasks.live and rig.outbox.held() == 0
    return outcome(rig, calls)


@given(callers, fates, manner, manner)
def test_what_becomes_of_tasks_and_calls_does_not_depend_on_the_cut(script, fates, one, other):
    fate_of = dict(zip(KEYS, fates, strict=True))
    assert run(script, fate_of, one) == run(script, fate_of, other)
