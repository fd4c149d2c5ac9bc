"""Protocol rule 5: a refused lease goes to another worker, of the same label group or another, without an attempt."""

import pytest

from tests.acceptance.clients import connect, retry, word
from tests.acceptance.workers import Worker

SERVER = {
    "pools": "".join(
        f'[[pools]]\nname = "{name}"\nmax = 4\n' for name in ("default", "same", "other", "nobody", "round", "least")
    )
}

GROUPS = [({}, {}), ({"gpu": "a"}, {"gpu": "a"}), ({}, {"gpu": "a"}), ({"gpu": "a"}, {}), ({"x": "1"}, {"y": "2"})]


@pytest.fixture
def second(server):
    """A connection for the other worker."""
    with connect(server.address) as other:
        yield other


@pytest.mark.parametrize(("first_labels", "second_labels"), GROUPS)
def test_another_worker_gets_the_lease(client, second, first_labels, second_labels):
    task_id = client.submit(pool="same", retry=retry(1)).id
    with Worker(client.channel, pool="same", labels=first_labels) as refuser:
        lease = refuser.lease()
        with Worker(second.channel, pool="same", labels=second_labels) as taker:
            refuser.nack(lease.lease, "not my kind")
            moved = taker.lease()
            assert (moved.lease, moved.task_id, moved.attempt) == (lease.lease, task_id, 1)
            taker.complete(moved.lease, b"taken")
            assert client.wait(task_id).output == b"taken"
        assert refuser.silent()
    assert client.get(task_id).attempt == 1


def test_without_another_worker_the_attempt_fails_with_the_reason(client):
    task_id = client.submit(pool="nobody", retry=retry(1)).id
    with Worker(client.channel, pool="nobody", slots=2) as worker:
        worker.nack(worker.lease().lease, "no disk left")
        result = client.wait(task_id)
    assert word(result.status) == "dead_lettered"
    assert "no disk left" in result.message


def test_a_worker_without_a_free_slot_does_not_get_it(client, second):
    ids = [client.submit(pool="round", retry=retry(1)).id for _ in range(2)]
    with Worker(client.channel, pool="round") as one, Worker(second.channel, pool="round") as two:
        first, other = one.lease(), two.lease()
        one.nack(first.lease, "no")
        assert word(client.wait(first.task_id).status) == "dead_lettered"
        two.complete(other.lease)
        assert word(client.wait(other.task_id).status) == "succeeded"
    assert {first.task_id, other.task_id} == set(ids)


def test_a_lease_that_everybody_refused_fails(client, second):
    task_id = client.submit(pool="round", retry=retry(1)).id
    with Worker(client.channel, pool="round") as one:
        lease = one.lease()
        with Worker(second.channel, pool="round") as two:
            one.nack(lease.lease, "not me")
            assert two.lease().lease == lease.lease
            two.nack(lease.lease, "not me either")
            result = client.wait(task_id)
            assert word(result.status) == "dead_lettered"
            assert "not me either" in result.message
            assert one.silent()
            assert client.get(task_id).attempt == 1


def test_the_refuser_may_get_the_next_attempt(client):
    task_id = client.submit(pool="nobody", retry=retry(2)).id
    with Worker(client.channel, pool="nobody") as worker:
        worker.nack(worker.lease().lease, "not now")
        again = worker.lease()
        assert (again.task_id, again.attempt) == (task_id, 2)
        worker.complete(again.lease)
        assert word(client.wait(task_id).status) == "succeeded"


def test_the_new_holder_is_the_one_whose_report_counts(client, second):
    task_id = client.submit(pool="other", retry=retry(1)).id
    with Worker(client.channel, pool="other") as refuser:
        lease = refuser.lease().lease
        with Worker(second.channel, pool="other") as taker:
            refuser.nack(lease)
            assert taker.lease().lease == lease
            refuser.complete(lease, b"from the refuser")
            refuser.fail(lease, permanent=True)
            client.submit(pool="other", key="probe")
            assert refuser.lease().key == "probe", "what it said before was read"
            taker.complete(lease, b"from the holder")
            assert client.wait(task_id).output == b"from the holder"


def test_the_least_labelled_group_gets_it(client, second, server):
    task_id = client.submit(pool="least", retry=retry(1)).id
    with Worker(client.channel, pool="least", labels={"a": "1", "b": "2"}) as refuser:
        lease = refuser.lease().lease
        with (
            connect(server.address) as third,
            Worker(second.channel, pool="least", slots=4, labels={"a": "1"}) as labelled,
            Worker(third.channel, pool="least", slots=1) as plain,
        ):
            refuser.nack(lease)
            assert plain.lease().lease == lease
            assert labelled.silent()
            plain.complete(lease)
            assert word(client.wait(task_id).status) == "succeeded"
