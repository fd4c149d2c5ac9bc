"""The ten protocol rules of the worker stream, on real streams."""

import contextlib
import threading
import time

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, reference, refused, retry, submission, wait_until, word
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

TTL = 0.5
POOLS = """
[[pools]]
name = "default"
max = 4
[[pools]]
name = "large"
max = 5000
max_slots_per_worker = 7
"""
for _name in ["expiry", "alive", "timeout", "cut", "stale", "gone", "twice", "abort", "shrink", "flicker", "groups"]:
    POOLS += f'[[pools]]\nname = "{_name}"\nmax = 4\nlease_ttl_s = {TTL}\n'

SERVER = {"limits": "max_slots_per_worker = 9\nmax_tags = 2\nmax_tag_len = 16", "pools": POOLS}


@pytest.fixture(scope="module", autouse=True)
def silence(server):
    """A stream that says nothing, beside all other tests of the module: its end, and the seconds until then."""
    found = []

    def listen():
        begun = time.monotonic()
        with connect(server.address) as client, Worker(client.channel, register=False) as worker:
            found.append((*worker.ended(bound=100), time.monotonic() - begun))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield lambda: (thread.join(HANG), found[0])[1]
    thread.join(HANG)


# --- 1: register first


@pytest.mark.parametrize(
    "message",
    [
        {"heartbeat": pb.Heartbeat(lease=1)},
        {"complete": pb.Complete(lease=1)},
        {"fail": pb.Fail(lease=1)},
        {"set_slots": pb.SetSlots(slots=1)},
        {"nack": pb.Nack(lease=1)},
        {"cancelled": pb.Cancelled(lease=1)},
        {},
    ],
    ids=lambda message: next(iter(message), "nothing"),
)
def test_the_first_message_must_be_a_register(client, message):
    with Worker(client.channel, register=False) as worker:
        worker.send(**message)
        code, details = worker.ended()
    assert code is Status.INVALID_ARGUMENT
    assert "Register" in details


def test_a_stream_closed_without_a_message_is_refused(client):
    with Worker(client.channel, register=False) as worker:
        worker.half_close()
        assert worker.ended()[0] is Status.INVALID_ARGUMENT


def test_a_second_register_ends_the_stream(client):
    task_id = client.submit(pool="twice", retry=retry(5)).id
    with Worker(client.channel, pool="twice") as worker:
        assert worker.lease().task_id == task_id
        worker.register(pool="twice", slots=1)
        assert worker.ended()[0] is Status.INVALID_ARGUMENT
    with serving(client.channel, pool="twice"):
        assert word(client.wait(task_id).status) == "succeeded"
    assert client.get(task_id).attempt == 2


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"pool": "nowhere"}, Status.NOT_FOUND, "nowhere"),
        ({"pool": "p" * 65}, Status.INVALID_ARGUMENT, "pool"),
        ({"pool": "a\0b"}, Status.INVALID_ARGUMENT, "pool"),
        ({"labels": {"": "x"}}, Status.INVALID_ARGUMENT, "labels"),
        ({"labels": {"a": "1", "b": "2", "c": "3"}}, Status.INVALID_ARGUMENT, "labels"),
        ({"labels": {"a": "x" * 17}}, Status.INVALID_ARGUMENT, "labels"),
        ({"protocol_version": 2}, Status.FAILED_PRECONDITION, "3"),
        ({"protocol_version": 0}, Status.FAILED_PRECONDITION, "3"),
        ({"protocol_version": 2, "pool": "nowhere"}, Status.FAILED_PRECONDITION, "3"),
    ],
)
def test_a_register_is_checked(client, fields, code, text):
    with Worker(client.channel, register=False) as worker:
        worker.register(slots=1, **fields)
        found, details = worker.ended()
    assert found is code
    assert text in details


def test_a_newer_protocol_version_is_fine(client):
    with Worker(client.channel, register=False) as worker:
        worker.register(slots=1, protocol_version=4)
        assert worker.receive("registered").protocol_version == 3


# --- 2: capacity is slots


@pytest.mark.parametrize(
    ("pool", "asked", "granted"), [("", 3, 3), ("", 5, 4), ("", 0, 0), ("large", 100, 7), ("large", 2**32 - 1, 7)]
)
def test_slots_are_capped(client, pool, asked, granted):
    with Worker(client.channel, pool=pool, slots=asked) as worker:
        told = worker.registered
        assert (told.slots, told.protocol_version, told.max_message_bytes) == (granted, 3, 16 << 20)
        assert told.lease_ttl_s == 30
        assert told.worker_id > 0


def test_never_more_leases_than_slots(client):
    for _ in range(6):
        client.submit(pool="large")
    with Worker(client.channel, pool="large", slots=2) as worker:
        leases = [worker.lease(), worker.lease()]
        client.snapshot()
        assert worker.silent()
        for _ in range(4):
            worker.complete(leases.pop(0).lease)
            leases.append(worker.lease())
            assert worker.silent()
        for lease in leases:
            worker.complete(lease.lease)


def test_slots_can_be_changed(client):
    before = client.snapshot().totals.lease_expiries
    for _ in range(5):
        client.submit(pool="shrink", retry=retry(3))
    with Worker(client.channel, pool="shrink", slots=0) as worker, beating(worker) as held:
        client.snapshot()
        assert worker.silent()
        worker.set_slots(3)
        leases = [worker.lease() for _ in range(3)]
        held.update(lease.lease for lease in leases)
        worker.set_slots(1)
        wait_until(lambda: capacity(client, "shrink") == 1, "one slot")
        for lease in leases[:2]:
            held.discard(lease.lease)
            worker.complete(lease.lease)
        wait_until(lambda: client.snapshot().running == 1, "two are done")
        assert worker.silent(), "one lease runs on one slot"
        worker.set_slots(0)
        held.discard(leases[2].lease)
        worker.complete(leases[2].lease)
        wait_until(lambda: client.snapshot().running == 0, "all are done")
        assert worker.silent()
        worker.set_slots(2)
        for _ in range(2):
            worker.complete(worker.lease().lease)
    assert client.snapshot().totals.lease_expiries == before


def test_slots_that_change_all_the_time_cost_no_attempt(client):
    """A dispatch that meets a slot which has just gone is taken back: each of these tasks has one attempt only."""
    count = 200
    calls = [
        client.tasks.Submit.future(submission(wait=True, pool="flicker", retry=retry(1)), timeout=3 * HANG)
        for _ in range(count)
    ]
    over = threading.Event()

    def flicker(worker):
        number = 0
        while not over.is_set():
            worker.set_slots(number % 5)
            number += 1
            time.sleep(0.001)

    with (
        connect_to(client) as other,
        serving(client.channel, pool="flicker", slots=4) as one,
        serving(other.channel, pool="flicker", slots=4) as two,
    ):
        threads = [threading.Thread(target=flicker, args=(worker,), daemon=True) for worker in (one, two)]
        for thread in threads:
            thread.start()
        ends = [word(call.result(3 * HANG).result.status) for call in calls]
        over.set()
        for thread in threads:
            thread.join(HANG)
    assert ends == ["succeeded"] * count


def test_groups_go_with_their_last_worker(client):
    labelled = [{}, {"host": "a"}, {"host": "b"}]
    with contextlib.ExitStack() as stack:
        for labels in ({"host": "b"}, {"host": "a"}, {"host": "a"}):
            stack.enter_context(Worker(client.channel, pool="groups", slots=2, labels=labels))
        assert groups(client) == list(zip(labelled, (0, 4, 2), strict=True))
    wait_until(lambda: groups(client) == [({}, 0)], "only the group that is always there is left")


def groups(client):
    (pool,) = [pool for pool in client.snapshot().pools if pool.name == "groups"]
    return [(dict(group.labels), group.capacity) for group in pool.groups]


def capacity(client, name):
    (pool,) = [pool for pool in client.snapshot().pools if pool.name == name]
    return pool.capacity


# --- 3: heartbeats


class beating:
    """While it is open, the leases in its set get a heartbeat every third of their time to live."""

    def __init__(self, worker, ttl=TTL):
        self.worker, self.ttl = worker, ttl
        self.held = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self.held

    def __exit__(self, *_error):
        self._over.set()
        self._thread.join(HANG)

    def _run(self):
        while not self._over.wait(self.ttl / 3):
            for lease in tuple(self.held):
                self.worker.heartbeat(lease)


def test_a_lease_without_heartbeats_expires(client):
    before = client.snapshot().totals
    task_id = client.submit(pool="expiry", retry=retry(2)).id
    with Worker(client.channel, pool="expiry") as worker:
        lease = worker.lease()
        leased = time.monotonic()
        abort = worker.receive("abort")
        assert (abort.lease, abort.reason) == (lease.lease, "lease expired")
        assert TTL * 0.9 <= time.monotonic() - leased < 10 * TTL
        again = worker.lease()
        assert (again.task_id, again.attempt) == (task_id, 2)
        assert again.lease != lease.lease
        worker.heartbeat(lease.lease)  # of a lease that is gone: ignored
        worker.receive("abort")
        result = client.wait(task_id)
    assert (word(result.status), result.message) == ("dead_lettered", "lease expired")
    after = client.snapshot().totals
    assert after.lease_expiries - before.lease_expiries == 2
    assert after.stale_completions == before.stale_completions


def test_heartbeats_keep_a_lease(client):
    task_id = client.submit(pool="alive", retry=retry(2)).id
    with Worker(client.channel, pool="alive") as worker, beating(worker) as held:
        lease = worker.lease().lease
        held.add(lease)
        with refused(Status.DEADLINE_EXCEEDED):
            client.wait(task_id, timeout=3 * TTL)
        assert worker.silent()
        worker.complete(lease, b"late but well")
        assert client.wait(task_id).output == b"late but well"
    assert client.get(task_id).attempt == 1


def test_a_heartbeat_of_another_worker_does_not_count(client):
    task_id = client.submit(pool="alive", retry=retry(1)).id
    with Worker(client.channel, pool="alive") as worker:
        lease = worker.lease().lease
        with connect_to(client) as other, Worker(other.channel, pool="alive", slots=0) as thief, beating(thief) as held:
            held.add(lease)
            assert worker.receive("abort").reason == "lease expired"
    assert word(client.wait(task_id).status) == "dead_lettered"


def connect_to(client):
    return connect(client.channel._channel.target().decode())


def test_the_timeout_of_an_attempt_ends_it_whatever_the_heartbeats(client):
    before = client.snapshot().totals.timeouts
    task_id = client.submit(pool="timeout", timeout_s=0.8, retry=retry(1)).id
    with Worker(client.channel, pool="timeout") as worker, beating(worker) as held:
        lease = worker.lease()
        held.add(lease.lease)
        abort = worker.receive("abort")
        assert (abort.lease, abort.reason) == (lease.lease, "attempt timed out")
        result = client.wait(task_id)
    assert (word(result.status), result.message) == ("dead_lettered", "attempt timed out")
    assert client.snapshot().totals.timeouts - before == 1


# --- 4 and 6: one outcome per lease; an Abort is final


def test_reports_for_leases_that_are_not_held_change_nothing(client):
    before = client.snapshot().totals
    task_id = client.submit(pool="stale", payload=b"mine").id
    with Worker(client.channel, pool="stale") as worker, connect_to(client) as other:
        lease = worker.lease().lease
        with Worker(other.channel, pool="stale", slots=0) as thief:
            thief.complete(lease, b"stolen")
            thief.fail(lease, permanent=True)
            thief.cancelled(lease)
            thief.nack(lease)
            thief.complete(2**64 - 1)
            wait_until(lambda: stale(client) - before.stale_completions == 4, "the false reports were read")
        assert client.status(task_id) == "running"
        worker.complete(lease, b"mine")
        worker.complete(lease, b"twice")
        worker.fail(lease, permanent=True)
        assert client.wait(task_id).output == b"mine"
        wait_until(lambda: stale(client) - before.stale_completions == 6, "the double reports were read")
        assert client.wait(task_id).output == b"mine"


def stale(client):
    return client.snapshot().totals.stale_completions


def test_after_an_abort_the_slot_is_free_at_once_and_reports_are_ignored(client):
    before = client.snapshot().totals
    task_id = client.submit(pool="abort").id
    with Worker(client.channel, pool="abort") as worker:
        lease = worker.lease().lease
        assert client.cancel(task_id)
        assert worker.receive("abort").lease == lease
        next_id = client.submit(pool="abort").id
        assert worker.lease().task_id == next_id
        worker.complete(lease, b"too late")
        worker.cancelled(lease)
        wait_until(lambda: stale(client) - before.stale_completions >= 1, "the late report was read")
        assert client.status(task_id) == "cancelled"
        assert stale(client) - before.stale_completions == 1, "a Cancelled that answers an Abort is none"
        assert client.cancel(next_id)
        assert worker.receive("abort").reason == "cancelled"


# --- 7: a worker that does not read


def test_a_worker_that_stops_reading_is_cut_off(client):
    """Each of its leases expires and makes an Abort that it does not read, until the queue for it is full."""
    payload = bytes(1 << 20)
    for _ in range(40):
        client.submit(pool="cut", payload=payload, retry=retry(1_000))
    with connect_to(client) as other:
        lazy = Worker(other.channel, pool="cut", slots=4, read=False)
        wait_until(lambda: workers_of(client, "cut") == 1, "registered")
        wait_until(lambda: workers_of(client, "cut") == 0, "cut off", bound=100)
        with pytest.raises(grpc.RpcError):
            list(lazy.call)
        lazy.leave()
    with serving(client.channel, pool="cut", slots=4):
        wait_until(lambda: client.snapshot().live_tasks == 0 or pending(client, "cut") == 0, "others do the work")


def workers_of(client, name):
    (pool,) = [pool for pool in client.snapshot().pools if pool.name == name]
    return pool.workers_connected


def pending(client, name):
    (pool,) = [pool for pool in client.snapshot().pools if pool.name == name]
    return sum(pool.pending_by_class) + pool.busy


# --- 8: disconnects


@pytest.mark.parametrize("how", ["half_close", "leave"])
def test_a_worker_that_goes_loses_its_leases_and_the_task_is_tried_again(client, how):
    task_id = client.submit(pool="gone", retry=retry(2)).id
    with Worker(client.channel, pool="gone") as worker:
        worker.lease()
        getattr(worker, how)()
        wait_until(lambda: client.get(task_id).message == "worker disconnected", "noticed")
        with serving(client.channel, pool="gone"):
            assert word(client.wait(task_id).status) == "succeeded"
        if how == "half_close":
            assert worker.ended()[0] is Status.OK
    assert client.get(task_id).attempt == 2


def test_a_connection_that_breaks_takes_all_its_workers_with_it(client):
    ids = [client.submit(pool="gone", retry=retry(2)).id for _ in range(4)]
    other = grpc.insecure_channel(client.channel._channel.target().decode())
    workers = [Worker(other, pool="gone", slots=2) for _ in range(2)]
    for worker in workers:
        worker.lease()
        worker.lease()
    other.close()
    with serving(client.channel, pool="gone"):
        assert {word(client.wait(task_id).status) for task_id in ids} == {"succeeded"}
    assert {client.get(task_id).attempt for task_id in ids} == {2}
    for worker in workers:
        worker.leave()


def test_the_last_attempt_of_a_worker_that_goes_is_final(client):
    task_id = client.submit(pool="gone", retry=retry(1)).id
    wait = client.tasks.Wait.future(pb.WaitRequest(task=reference(task_id)), timeout=HANG)
    with Worker(client.channel, pool="gone") as worker:
        worker.lease()
    result = wait.result(HANG)
    assert (word(result.status), result.message) == ("dead_lettered", "worker disconnected")


# --- 1 again, last in this file because it takes as long as some others together


def test_ten_seconds_of_silence_end_the_stream(silence):
    code, details, seconds = silence()
    assert code is Status.DEADLINE_EXCEEDED
    assert "Register" in details
    assert 9.9 <= seconds < 15
