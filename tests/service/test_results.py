"""The caches of finished tasks: bounds, order of eviction, and what they say together."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.engine.actions import TaskEnded
from cronoq_sansio.engine.task import Retained
from cronoq_sansio.service.results import InfoCache, OutputCache, Results
from cronoq_sansio.settings import OutputSettings
from cronoq_sansio.spec import TaskStatus
from tests.service.harness import spec

SUCCEEDED, FAILED = int(TaskStatus.SUCCEEDED), int(TaskStatus.FAILED)


def ended(task_id, key="", output=b"out", status=SUCCEEDED, after=1):
    task = SimpleNamespace(
        id=task_id,
        spec=spec(key=key, kind="mail"),
        status=status,
        attempt=1,
        max_attempts=3,
        created=10,
        last_started=20,
        finished=30,
        message="" if status == SUCCEEDED else "broken",
    )
    return TaskEnded(task, output if status == SUCCEEDED else None, "text/plain", after)


def retained(task_id, key="", status=SUCCEEDED, stored=5):
    return Retained(task_id, "default", key, status, 0, stored)


@given(st.integers(0, 4), st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=30))
def test_infos_are_those_of_the_newest_tasks(capacity, keys):
    cache = InfoCache(capacity)
    for task_id, key in enumerate(keys, 1):
        cache.add(ended(task_id, key))
        cache.check_invariants()
    newest = list(enumerate(keys, 1))[max(len(keys) - capacity, 0) :]
    for task_id in range(1, len(keys) + 1):
        entry = cache.get(task_id)
        assert (entry is not None) == (task_id in dict(newest))
    for key in "abc":
        entry = cache.get(key)
        expected = max((task_id for task_id, other in newest if other == key), default=None)
        assert (entry.info.task_id if entry else None) == expected, "a key names the newest task that had it"


@given(st.integers(0, 4), st.integers(1, 12), st.lists(st.integers(0, 15), max_size=30))
def test_outputs_are_bounded_by_count_and_bytes_oldest_out_first(capacity, budget, sizes):
    cache = OutputCache(capacity, budget)
    model = []
    for task_id, size in enumerate(sizes, 1):
        cache.add(task_id, b"x" * size, "", 1)
        cache.check_invariants()
        if capacity and size <= budget:
            model.append((task_id, size))
            while len(model) > capacity or sum(other for _, other in model) > budget:
                model.pop(0)
        kept = [other for other in range(1, task_id + 1) if cache.get(other) is not None]
        assert kept == [other for other, _ in model]


def test_an_output_above_the_budget_does_not_evict_the_others():
    cache = OutputCache(10, 10)
    cache.add(1, b"123", "", 1)
    cache.add(2, b"x" * 11, "", 1)
    assert cache.get(1) is not None and cache.get(2) is None


def test_an_empty_output_is_an_output():
    cache = OutputCache(10, 10)
    cache.add(1, b"", "text/plain", 1)
    entry = cache.get(1)
    assert entry is not None and entry.output == b"" and entry.content_type == "text/plain"


@pytest.mark.parametrize(
    ("infos", "outputs", "status", "answers_get", "answers_wait", "output"),
    [
        (1, 1, SUCCEEDED, True, True, b"out"),
        (1, 0, SUCCEEDED, False, False, None),  # the store may have the output
        (0, 1, SUCCEEDED, False, True, b"out"),  # the store has the details
        (0, 0, SUCCEEDED, False, False, None),
        (1, 0, FAILED, True, True, None),
        (0, 0, FAILED, False, False, None),  # the store has the message
    ],
)
def test_what_memory_knows_and_when_the_store_could_add_something(
    infos, outputs, status, answers_get, answers_wait, output
):
    results = Results(OutputSettings(cache_entries=outputs, cache_bytes=100, info_entries=infos))
    results.add(ended(1, "k", status=status, after=7))
    known = results.find(1, retained(1, "k", status, stored=7))
    assert known.after == 7, "it shows the step that ended the task"
    assert (known.answers_get, known.answers_wait) == (answers_get, answers_wait)
    assert known.info.output_available == (output is not None)
    result = known.result()
    assert (result.task_id, result.status, result.output) == (1, status, output)
    assert result.content_type == ("text/plain" if output is not None else "")
    if infos and status == FAILED:
        assert result.message == "broken"


def test_a_task_that_only_key_retention_remembers_is_shown_with_what_that_knows():
    known = Results(OutputSettings()).find("k", retained(9, "k", FAILED))
    assert (known.info.task_id, known.info.status, known.info.pool, known.info.key) == (9, FAILED, "default", "k")
    assert known.info.priority == -1 and known.info.created is None and known.after == 5


def test_a_key_that_retention_forgot_is_still_found_in_the_cache():
    results = Results(OutputSettings())
    results.add(ended(1, "k"))
    assert results.find("k", None).info.task_id == 1
    assert results.find("other", None) is None and results.find(2, None) is None
