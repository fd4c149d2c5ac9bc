"""A whole server in one process, on memory transports and the test's clock: serving, faults, and the stop sequence."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.serve import DONE, FAILED
from cronoq._stores.base import Fenced, StoreGone, StoreHeld, StoreUnavailable
from cronoq._stores.memory import MemoryStore
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.errors import GrpcStatus
from cronoq_sansio.service.messages import Submit
from cronoq_sansio.service.service import Service
from cronoq_sansio.spec import TaskStatus
from cronoq_sansio.wire import pb
from tests.runtime.house import GRACE, SETTINGS, DurableStore, House


@pytest.fixture
def durable() -> DurableStore:
    return DurableStore()


@pytest.fixture
async def house(nursery: trio.Nursery, durable: DurableStore) -> AsyncIterator[House]:
    yield await House(nursery, durable).open()
    durable.go_on()
    nursery.cancel_scope.cancel()


def break_on_key(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A bug in the core: a submission with this key raises."""
    handle = Service.handle

    def broken(self: Service, events: Sequence[Any], now: int) -> Any:
        for event in events:
            request = getattr(event, "request", None)
            if isinstance(request, Submit) and request.spec.key == key:
                raise ZeroDivisionError("the payload is secret")
        return handle(self, events, now)

    monkeypatch.setattr(Service, "handle", broken)


async def test_a_task_goes_in_and_its_result_comes_out(autojump_clock: MockClock, house: House) -> None:
    client, other = house.caller(), house.caller()
    worker = await other.work(slots=1)
    reply = await client.submit(payload=b"in")
    lease = await worker.next("lease")
    assert (lease.task_id, lease.payload) == (reply.id, b"in")
    worker.say(complete=pb.Complete(lease=lease.lease, output=b"out"))
    result = await client.wait(reply.id)
    assert (result.status, result.output) == (TaskStatus.SUCCEEDED, b"out")


async def test_the_real_address_is_announced_when_the_server_serves(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    durable.loading = trio.Event()
    house = await House(nursery, durable).open()
    assert house.bound == []
    refused = await house.caller().submit()
    assert refused.status is GrpcStatus.UNAVAILABLE and "starting" in refused.fields["grpc-message"]
    client = house.caller()
    durable.loading.set()
    await trio.testing.wait_all_tasks_blocked()
    ((host, port),) = house.bound
    assert host == "127.0.0.1" and port > 0
    assert (await client.submit()).id, "a connection from before goes on"
    nursery.cancel_scope.cancel()


async def test_nothing_is_acknowledged_before_it_is_stored(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.hanging = True
    stream = house.caller().start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.sleep(0.5)
    assert not stream.ended
    store.go_on()
    await trio.testing.wait_all_tasks_blocked()
    assert stream.status is GrpcStatus.OK


async def test_a_full_disk_refuses_new_work_and_recovers_by_itself(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.trouble = StoreUnavailable("disk full")
    client = house.caller()
    held = client.start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.sleep(6)
    refused = await client.submit()
    assert refused.status is GrpcStatus.UNAVAILABLE
    assert not held.ended
    store.trouble = None
    await trio.sleep(6)
    assert held.status is GrpcStatus.OK
    assert (await client.submit()).id


async def test_a_store_that_stalls_costs_no_lease(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    client = house.caller()
    worker = await house.caller().work(slots=2)
    reply = await client.submit()
    lease = await worker.next("lease")
    store.hanging = True
    client.start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.sleep(40)
    store.go_on()
    await trio.sleep(1)
    worker.say(complete=pb.Complete(lease=lease.lease, output=b"late but fine"))
    result = await client.wait(reply.id)
    assert result.status == TaskStatus.SUCCEEDED
    (term,) = [house.server.terms.service]
    assert term is not None and term.engine.totals.lease_expiries == 0


async def test_a_fault_of_ours_ends_the_term_and_the_next_one_recovers(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_on_key(monkeypatch, "bug")
    client, bystander, other = house.caller(), house.caller(), house.caller()
    worker = await other.work(slots=1)
    kept = await bystander.submit(payload=b"kept")
    waiting = bystander.start("Tasks/Wait", pb.WaitRequest(task=pb.TaskRef(id=kept.id)))
    await worker.next("lease")
    await trio.testing.wait_all_tasks_blocked()  # the Wait has arrived
    refused = await client.submit(key="bug", payload=b"secret")
    assert refused.status is GrpcStatus.UNAVAILABLE
    assert waiting.status is GrpcStatus.UNAVAILABLE
    assert (await worker.next("shutdown")).not_leader
    assert "the outcome of this call is unknown" in waiting.fields["grpc-message"]
    assert not bystander.closed.is_set()
    between = await house.caller().submit()
    assert between.status is GrpcStatus.UNAVAILABLE
    assert "no term serves now" in between.fields["grpc-message"], "this call was refused: its outcome is known"
    await trio.sleep(2.5)
    assert bystander.closed.is_set() and other.closed.is_set(), "streams of a term that is over"
    logged = capsys.readouterr().out
    assert "ZeroDivisionError at" in logged and "CallReceived" in logged
    assert "secret" not in logged and "Traceback" not in logged
    again = house.caller()
    info = await again.call("Tasks/Get", pb.GetRequest(task=pb.TaskRef(id=kept.id)), pb.TaskInfo)
    assert info.attempt == 1, "the attempt that ran is counted, the task is there"
    assert (await again.submit()).id > kept.id


async def test_five_faults_in_ten_minutes_end_the_process(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on_key(monkeypatch, "bug")
    begun = trio.current_time()
    while house.error is None:
        await house.caller().submit(key="bug")
        await trio.sleep(1)
    assert "5 terms failed" in str(house.error)
    pauses = 1 + 2 + 4 + 8
    assert pauses <= trio.current_time() - begun <= pauses + 5, "each new term is found up to a second late"


async def test_on_the_memory_store_faults_never_end_the_process(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on_key(monkeypatch, "bug")
    house = await House(nursery, MemoryStore(key_retention=SECOND, key_retention_max=10)).open()
    kept = await house.caller().submit()
    for _ in range(8):
        while not house.server.lobby.serving:
            await trio.sleep(1)
        await house.caller().submit(key="bug")
    await trio.sleep(61)
    assert house.error is None
    assert (await house.caller().submit()).id > kept.id
    nursery.cancel_scope.cancel()


async def test_a_fenced_commit_is_not_acknowledged(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.trouble = Fenced("epoch 1 is over")
    refused = await house.caller().submit()
    assert refused.status is GrpcStatus.UNAVAILABLE
    store.trouble = None
    await trio.sleep(1.5)
    assert house.server.terms.claim is not None and house.server.terms.claim.epoch == 2
    assert (await house.caller().submit()).id


async def test_a_server_that_lost_its_store_to_a_living_one_ends(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.trouble, store.holder = Fenced("epoch 1 is over"), StoreHeld("in use by the server with pid 7")
    refused = await house.caller().submit()
    assert refused.status is GrpcStatus.UNAVAILABLE
    await trio.sleep(limits.TERM_RESTART_MIN / SECOND + 0.5)
    assert str(house.error) == "this server lost its store to another one: in use by the server with pid 7"


async def test_the_wait_for_an_outage_has_an_end(autojump_clock: MockClock, house: House) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.trouble = StoreUnavailable("no space left")
    held = house.caller().start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.sleep(limits.MAX_STORE_OUTAGE / SECOND + 10)
    assert held.status is not GrpcStatus.OK
    store.trouble = None
    await trio.sleep(10)
    assert (await house.caller().submit()).id


# --- readiness


async def test_ready_means_that_work_would_be_taken(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    durable.loading = trio.Event()
    house = await House(nursery, durable).open()
    assert house.server._unready() == "standby", "it reads its store"
    durable.loading.set()
    await trio.testing.wait_all_tasks_blocked()
    assert house.server._unready() == ""
    durable.hanging = True
    house.caller().start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.sleep(limits.COMMIT_PRESSURE / SECOND - 1)
    assert house.server._unready() == ""
    await trio.sleep(2)
    assert house.server._unready() == "store"
    durable.go_on()
    await trio.sleep(1)
    assert house.server._unready() == ""
    worker = await house.caller().work(slots=1)
    await worker.next("lease")
    house.server.request_stop()
    assert house.server._unready() == "stopping"
    nursery.cancel_scope.cancel()


async def test_a_server_between_two_terms_is_not_ready(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on_key(monkeypatch, "bug")
    await house.caller().submit(key="bug")
    assert house.server._unready() == "standby"
    await trio.sleep(1.5)
    assert house.server._unready() == ""


# --- the stop sequence


async def test_a_stop_without_running_attempts_is_over_after_the_farewell(
    autojump_clock: MockClock, house: House
) -> None:
    client = house.caller()
    await client.submit()
    begun = trio.current_time()
    house.server.request_stop()
    await client.closed.wait()
    assert client.goaways == [2**31 - 1, 1], "GOAWAY in two steps"
    await trio.testing.wait_all_tasks_blocked()
    assert house.code == DONE
    assert house.ended_at - begun == pytest.approx(1.0, abs=0.3)


async def test_running_attempts_may_finish_and_report_within_the_grace(autojump_clock: MockClock, house: House) -> None:
    client = house.caller()
    worker = await house.caller().work(slots=1)
    reply = await client.submit()
    second = await client.submit()
    lease = await worker.next("lease")
    waiting = client.start("Tasks/Wait", pb.WaitRequest(task=pb.TaskRef(id=reply.id)))
    house.server.request_stop()
    await trio.sleep(5)
    refused = await house.caller().submit()
    assert refused.status is GrpcStatus.UNAVAILABLE, "new work is refused, on new connections too"
    info = await client.call("Tasks/Get", pb.GetRequest(task=pb.TaskRef(id=second.id)), pb.TaskInfo)
    assert info.status == TaskStatus.READY, "reads go on, nothing new is dispatched"
    worker.say(complete=pb.Complete(lease=lease.lease, output=b"in time"))
    await client.until(waiting, lambda: waiting.ended)
    assert waiting.status is GrpcStatus.OK
    assert not (await worker.next("shutdown")).not_leader
    await client.closed.wait()
    client.transport.close()
    await trio.sleep(1.1)
    assert house.code == DONE


async def test_attempts_left_after_the_grace_are_retried_by_the_next_server(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    house = await House(nursery, durable).open()
    client = house.caller()
    worker = await house.caller().work(slots=1)
    reply = await client.submit()
    await worker.next("lease")
    begun = trio.current_time()
    house.server.request_stop()
    assert (await worker.next("abort")).reason == "shutdown"
    assert trio.current_time() - begun == pytest.approx(10, abs=0.3)
    await worker.next("shutdown")
    await trio.sleep(2.5)
    assert house.code == DONE
    again = await House(nursery, durable).open()
    info = await again.caller().call("Tasks/Get", pb.GetRequest(task=pb.TaskRef(id=reply.id)), pb.TaskInfo)
    assert info.attempt == 1 and info.status in (TaskStatus.RETRYING, TaskStatus.READY)
    nursery.cancel_scope.cancel()


async def test_a_second_request_forces_the_stop(autojump_clock: MockClock, house: House) -> None:
    worker = await house.caller().work(slots=1)
    await house.caller().submit()
    await worker.next("lease")
    house.server.request_stop()
    await trio.sleep(1)
    house.server.request_stop()
    await trio.testing.wait_all_tasks_blocked()
    assert house.code == FAILED
    assert house.abandoned == []


async def test_a_forced_stop_on_the_memory_store_is_no_fault(
    autojump_clock: MockClock, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> None:
    house = await House(nursery, MemoryStore(key_retention=SECOND, key_retention_max=10)).open()
    worker = await house.caller().work(slots=1)
    await house.caller().submit()
    await worker.next("lease")
    house.server.request_stop()
    await trio.testing.wait_all_tasks_blocked()
    house.server.request_stop()
    await trio.testing.wait_all_tasks_blocked()
    assert house.code == FAILED
    logged = capsys.readouterr().out
    assert "the stop is forced" in logged and "[error" not in logged
    nursery.cancel_scope.cancel()


async def test_a_store_whose_file_is_gone_at_the_end_is_told(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    durable.gone = StoreGone("tasks.db was moved")
    house = await House(nursery, durable).open()
    house.server.request_stop()
    await trio.testing.wait_all_tasks_blocked()
    assert house.code is None and str(house.error) == "tasks.db was moved"


async def test_a_stop_that_hangs_is_abandoned_after_the_grace_and_fifteen_seconds(
    autojump_clock: MockClock, house: House
) -> None:
    store = house.store
    assert isinstance(store, DurableStore)
    store.hanging = True
    house.caller().start("Tasks/Submit", pb.SubmitRequest(task=pb.TaskSpec()))
    await trio.testing.wait_all_tasks_blocked()
    house.server.request_stop()
    await trio.sleep((GRACE + limits.STOP_SLACK) / SECOND - 0.1)
    assert house.abandoned == []
    await trio.sleep(0.2)
    assert house.abandoned == [FAILED]
    store.go_on()


async def test_a_stop_before_the_server_serves_is_quick(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    durable.loading = trio.Event()
    house = await House(nursery, durable).open()
    house.server.request_stop()
    await trio.testing.wait_all_tasks_blocked()
    assert house.code == DONE
    assert house.bound == []


async def test_a_stop_between_two_terms_is_quick(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on_key(monkeypatch, "bug")
    await house.caller().submit(key="bug")
    house.server.request_stop()
    await trio.sleep(2.5)
    assert house.code == DONE


async def test_a_grace_of_zero_ends_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery, durable: DurableStore
) -> None:
    settings = replace(SETTINGS, server=replace(SETTINGS.server, shutdown_grace=0))
    house = await House(nursery, durable, settings).open()
    worker = await house.caller().work(slots=1)
    await house.caller().submit()
    await worker.next("lease")
    house.server.request_stop()
    await worker.next("abort")
    await worker.next("shutdown")
    nursery.cancel_scope.cancel()


# --- events and pages


async def test_a_watcher_hears_of_a_task_when_it_is_stored(autojump_clock: MockClock, house: House) -> None:
    client, other = house.caller(), house.caller()
    watch = other.start("Tasks/Watch", pb.WatchRequest(all_transitions=True))
    await other.until(watch, lambda: watch.fields)
    assert watch.fields[":status"] == "200" and not watch.ended
    reply = await client.submit(payload=b"in")
    await other.until(watch, lambda: len(watch.messages(pb.StatusEvent)) == 2)
    assert [(event.id, event.status) for event in watch.messages(pb.StatusEvent)] == [
        (reply.id, TaskStatus.BLOCKED),
        (reply.id, TaskStatus.READY),
    ]
    house.server.request_stop()
    await other.until(watch, lambda: watch.ended)
    assert watch.status is GrpcStatus.UNAVAILABLE


async def test_a_term_that_is_lost_ends_watches(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = house.caller()
    watch = client.start("Tasks/Watch", pb.WatchRequest())
    await client.until(watch, lambda: watch.fields)
    break_on_key(monkeypatch, "boom")
    await house.caller().submit(key="boom")
    await client.until(watch, lambda: watch.ended)
    assert watch.status is GrpcStatus.UNAVAILABLE


async def test_a_page_on_the_memory_store_shows_what_is_live_and_what_is_remembered(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = MemoryStore(key_retention=3_600 * SECOND, key_retention_max=1_000)
    house = await House(nursery, store).open()
    client, other = house.caller(), house.caller()
    worker = await other.work(slots=1)
    first, second = await client.submit(payload=b"1"), await client.submit(payload=b"2")
    lease = await worker.next("lease")
    worker.say(complete=pb.Complete(lease=lease.lease, output=b"out"))
    await client.wait(first.id)
    await worker.next("lease")
    page = await client.call("Tasks/ListTasks", pb.ListTasksRequest(limit=2), pb.ListTasksResponse)
    assert [(info.id, info.status, info.output_available) for info in page.tasks] == [
        (first.id, TaskStatus.SUCCEEDED, True),
        (second.id, TaskStatus.RUNNING, False),
    ]
    assert page.next_after == 0
    nursery.cancel_scope.cancel()
