"""Handlers: every outcome, every kind of handler, aborts during each, and heartbeats that nothing starves."""

import asyncio
import functools
import logging
import threading
import time

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from cronoq.errors import CancelTask, Permanent, Reject, Retryable
from cronoq.worker import Lease
from cronoq_sansio.wire import pb
from tests.client.stage import both, make, play, stage, warnings_of

__all__ = ["stage"]


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text")


def raiser(error):
    async def handler(lease):
        await anyio.lowlevel.checkpoint()
        raise error

    return handler


def returner(value):
    async def handler(lease):
        await anyio.lowlevel.checkpoint()
        return value

    return handler


async def first_report(stage, worker, **registered):
    """What the worker says about lease 1."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        stream = await stage.registered(**registered)
        stream.lease(1, b'{"a": 1}')
        while True:
            message = await stream.next()
            if not isinstance(message, pb.Heartbeat):
                break
        await worker.stop()
    return message


COMPLETE = [
    (b"raw", b"raw"),
    (bytearray(b"raw"), b"raw"),
    ("text ü", "text ü".encode()),
    (None, b""),
    ({"a": [1, None]}, b'{"a": [1, null]}'),
]


@both
@pytest.mark.parametrize(("value", "output"), COMPLETE)
def test_what_a_handler_returns_is_the_output(stage, backend, value, output):
    report = play(backend, first_report, stage, make(returner(value)))
    assert isinstance(report, pb.Complete) and report.output == output


LOOP = []
LOOP.append(LOOP)


@both
@pytest.mark.parametrize("value", [object(), float("nan"), LOOP, {1, 2}, "\ud800"])
def test_what_cannot_be_encoded_fails_permanently(stage, backend, value):
    report = play(backend, first_report, stage, make(returner(value)))
    assert isinstance(report, pb.Fail) and report.permanent and "JSON" in report.message


@both
def test_an_output_that_does_not_fit_fails_permanently_and_the_stream_stays_up(stage, backend):
    report = play(backend, first_report, stage, make(returner(bytes(4_000))), limit=5_000)
    assert isinstance(report, pb.Fail) and report.permanent and "message limit" in report.message


FAILURES = [
    (Reject("not mine"), pb.Nack(lease=1, reason="not mine")),
    (Reject(), pb.Nack(lease=1, reason="rejected by the handler")),
    (CancelTask("no use"), pb.Cancelled(lease=1)),
    (Permanent("broken"), pb.Fail(lease=1, message="broken", permanent=True)),
    (Permanent(), pb.Fail(lease=1, message="failed permanently", permanent=True)),
    (Retryable("later"), pb.Fail(lease=1, message="later")),
    (Retryable("later", retry_after=2.5), pb.Fail(lease=1, message="later", retry_after_s=2.5)),
    (Retryable("later", retry_after=float("nan")), pb.Fail(lease=1, message="later")),
    (Retryable("later", retry_after=-1), pb.Fail(lease=1, message="later")),
    (Retryable("later", retry_after="soon"), pb.Fail(lease=1, message="later")),
    (Retryable(), pb.Fail(lease=1, message="Retryable")),
    (ValueError("odd"), pb.Fail(lease=1, message="ValueError: odd")),
    (ValueError(), pb.Fail(lease=1, message="ValueError")),
    (Unreadable(), pb.Fail(lease=1, message="Unreadable: (its text cannot be read)")),
    (ExceptionGroup("two", [ValueError("a")]), pb.Fail(lease=1, message="ExceptionGroup: two (1 sub-exception)")),
    (StopAsyncIteration(), None),
]


@both
@pytest.mark.parametrize(("error", "expected"), FAILURES)
def test_what_a_handler_raises(stage, backend, error, expected):
    report = play(backend, first_report, stage, make(raiser(error)))
    if expected is None:
        assert isinstance(report, pb.Fail) and not report.permanent
    else:
        assert report == expected


@both
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Reject("not mine"), pb.Fail(lease=1, message="not mine")),
        (CancelTask("no use"), pb.Fail(lease=1, message="no use", permanent=True)),
    ],
)
def test_servers_of_version_1_get_what_they_know(stage, backend, error, expected):
    assert play(backend, first_report, stage, make(raiser(error)), version=1) == expected


@both
def test_failures_are_logged_with_their_traceback_and_those_on_purpose_without(stage, backend, caplog):
    caplog.set_level(logging.INFO, "cronoq.client")
    play(backend, first_report, stage, make(raiser(ValueError("odd"))))
    (record,) = warnings_of(caplog)
    assert record.exc_info is not None and "task 1001" in record.getMessage() and record.name == "cronoq.client"
    caplog.clear()
    play(backend, first_report, stage, make(raiser(Permanent("broken"))))
    assert not warnings_of(caplog)
    assert any("Permanent: broken" in record.getMessage() for record in caplog.records)


@both
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("threaded", [False, True])
def test_what_is_no_exception_is_reported_and_then_ends_the_worker(stage, backend, error, threaded):
    def in_thread(lease):
        if lease.id == 2:
            raise error
        lease.cancelled.wait_in_thread(5)

    async def in_loop(lease):
        if lease.id == 2:
            raise error
        await anyio.sleep_forever()

    worker = make(in_thread if threaded else in_loop)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with pytest.raises(type(error)):
                await worker.run()

    async def serve():
        stream = await stage.registered()
        stream.lease(1)
        stream.lease(2)
        messages = [await stream.next() for _ in range(3)]
        fail = next(message for message in messages if isinstance(message, pb.Fail))
        assert fail.lease == 2 and fail.message.startswith(type(error).__name__) and not fail.permanent
        assert any(isinstance(message, pb.SetSlots) and message.slots == 0 for message in messages)
        others = [message for message in messages if not isinstance(message, pb.SetSlots) and message.lease == 1]
        assert len(others) == 1, "the other lease is not lost"

    play(backend, script)


def test_a_cancelled_error_of_the_handlers_own_making_is_a_failure(stage):
    async def handler(lease):
        await anyio.lowlevel.checkpoint()
        raise asyncio.CancelledError("mine")

    report = play("asyncio", first_report, stage, make(handler))
    assert report == pb.Fail(lease=1, message="CancelledError: mine")

    async def cancels_itself(lease):
        asyncio.current_task().cancel()
        await anyio.sleep(1)

    report = play("asyncio", first_report, stage, make(cancels_itself))
    assert isinstance(report, pb.Fail) and report.message.startswith("CancelledError")


def test_asyncios_cancellation_is_no_end_of_a_worker_under_trio(stage):
    """Code under trio-asyncio, or in a thread, may raise it."""
    report = play("trio", first_report, stage, make(raiser(asyncio.CancelledError("theirs"))))
    assert report == pb.Fail(lease=1, message="CancelledError: theirs")


@both
@pytest.mark.parametrize("kind", [Permanent, Reject, CancelTask, Retryable, ValueError])
def test_an_exception_without_a_readable_text_ends_its_attempt_alone(stage, backend, kind):
    class Odd(kind):
        def __str__(self):
            raise RuntimeError("no text")

    report = play(backend, first_report, stage, make(raiser(Odd("x"))))
    assert "its text cannot be read" in str(report) or isinstance(report, pb.Cancelled)


# --- kinds of handlers


def sync_handler(lease):
    return f"thread {threading.current_thread() is not threading.main_thread()}"


class Callables:
    async def method(self, lease):
        return "loop"

    async def __call__(self, lease):
        return "loop"


@both
@pytest.mark.parametrize(
    ("handler", "output"),
    [
        (sync_handler, b"thread True"),
        (functools.partial(returner("loop")), b"loop"),
        (Callables().method, b"loop"),
        (Callables(), b"loop"),
        (functools.partial(Callables()), b"loop"),
        (lambda lease: returner("awaited")(lease), b"awaited"),
    ],
    ids=["sync", "partial", "method", "object", "partial of object", "sync that gives an awaitable"],
)
def test_kinds_of_handlers(stage, backend, handler, output):
    assert play(backend, first_report, stage, make(handler)).output == output


@both
def test_threads_are_as_many_as_the_slots(stage, backend):
    barrier = threading.Barrier(3, timeout=5)

    def meet(lease):
        barrier.wait()
        return "met"

    worker = make(meet, slots=3)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            for number in (1, 2, 3):
                stream.lease(number)
            assert worker.running <= 3
            for _ in range(3):
                assert (await stream.next("complete")).output == b"met"
            await worker.stop()

    play(backend, script)


@both
def test_a_lease_above_the_slots_is_given_back(stage, backend):
    async def forever(lease):
        await anyio.sleep_forever()

    worker = make(forever, slots=2)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(slots=1)
            stream.lease(1)
            stream.lease(2)
            nack = await stream.next("nack")
            assert (nack.lease, nack.reason) == (2, "worker has no free slot")
            await worker.stop(0)

    play(backend, script)


# --- aborts


@both
def test_an_abort_cancels_an_async_handler_and_frees_its_slot(stage, backend):
    seen = []

    async def handler(lease):
        if lease.id == 1:
            try:
                await anyio.sleep_forever()
            finally:
                seen.append(lease.cancelled.is_set())
        return "next"

    worker = make(handler, slots=1)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            stream.abort(1)
            stream.lease(2)
            while not isinstance(message := await stream.next(), pb.Complete):
                assert isinstance(message, pb.SetSlots)
            assert message.lease == 2 and seen == [True]
            await worker.stop()

    play(backend, script)


@both
@pytest.mark.parametrize("way", ["is_set", "wait_in_thread", "from_thread"])
def test_an_abort_of_a_handler_in_a_thread(stage, backend, way):
    started = threading.Event()

    def handler(lease):
        started.set()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if way == "is_set" and lease.cancelled.is_set():
                return "aborted"
            if way == "wait_in_thread" and lease.cancelled.wait_in_thread(5):
                return "aborted"
            if way == "from_thread":
                anyio.from_thread.check_cancelled()
            time.sleep(0.001)
        raise AssertionError("not told")

    worker = make(handler, slots=1)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            await anyio.to_thread.run_sync(started.wait)
            stream.abort(1)
            assert (await stream.next("set_slots")).slots == 0, "the thread still fills the slot"
            assert (await stream.next("set_slots")).slots == 1
            await worker.stop()
            assert [message.WhichOneof("msg") for message in stream.sent] == ["set_slots"], "nothing about the lease"

    play(backend, script)


@both
def test_a_handler_that_swallows_the_cancellation_keeps_its_slot_and_says_nothing(stage, backend):
    go_on = []

    async def stubborn(lease):
        if lease.id > 1:
            return "second"
        with anyio.CancelScope(shield=True):
            go_on.append(anyio.Event())
            await go_on[0].wait()
        return "late"

    worker = make(stubborn, slots=1)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            while not go_on:
                await anyio.lowlevel.checkpoint()
            stream.abort(1)
            assert (await stream.next("set_slots")).slots == 0
            stream.lease(2)  # it was on its way
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert not stream.sent
            go_on[0].set()
            messages = [await stream.next(), await stream.next()]
            assert [type(message).__name__ for message in messages] == ["SetSlots", "Complete"]
            assert messages[1].output == b"second"
            await worker.stop()

    play(backend, script)


@both
def test_an_abort_that_comes_with_its_lease(stage, backend):
    started = []

    async def handler(lease):
        started.append(lease.id)
        await anyio.sleep_forever()

    worker = make(handler, slots=1)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            stream.abort(1)
            stream.lease(2)
            while 2 not in started:
                await anyio.lowlevel.checkpoint()
            assert worker.running == 1
            await worker.stop(0)

    play(backend, script)


@both
def test_a_thread_that_outlives_its_connection_fills_a_slot_of_the_next(stage, backend):
    started, go_on = threading.Event(), threading.Event()

    def stuck(lease):
        started.set()
        go_on.wait(5)

    worker = make(stuck, slots=2)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            first = await stage.registered()
            first.lease(1)
            await anyio.to_thread.run_sync(started.wait)
            first.end()
            second = await stage.registered()
            assert second.request.slots == 1
            go_on.set()
            assert (await second.next("set_slots")).slots == 2
            await worker.stop()

    play(backend, script)


# --- heartbeats


@both
def test_a_blocking_handler_in_a_thread_does_not_starve_heartbeats(stage, backend):
    def blocks(lease):
        time.sleep(0.2)
        return "done"

    worker = make(blocks)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(ttl=0.06)
            stream.lease(1)
            beats = 0
            while isinstance(message := await stream.next(), pb.Heartbeat):
                beats += 1
            assert message.output == b"done" and beats >= 3
            await worker.stop()

    play(backend, script)


@both
def test_a_handler_that_blocks_the_event_loop_is_named(stage, backend, caplog):
    async def blocks(lease):
        await anyio.lowlevel.checkpoint()
        time.sleep(0.1)  # noqa: ASYNC251 - the fault under test
        await anyio.sleep(0.02)

    worker = make(blocks)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(ttl=0.03)
            stream.lease(1)
            await stream.next("complete")
            await worker.stop()

    play(backend, script)
    assert any("blocks the event loop" in record.getMessage() for record in warnings_of(caplog))


# --- the lease


@both
def test_the_lease_shows_what_was_sent(stage, backend):
    seen = []

    async def handler(lease):
        seen.append(lease)

    worker = make(handler, pool="mail", slots=3)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(ttl=9.0)
            stream.lease(1, b"")
            stream.lease(
                2,
                b'{"to": "you"}',
                content_type="application/json",
                kind="send",
                key="k",
                tags={"a": "b"},
                timeout_s=1.5,
                deadline_unix_ns=1_500_000_000,
                pool="other",
                priority=2,
                lease_ttl_s=3.0,
            )
            stream.lease(3, b"x", priority=99, lease_ttl_s=float("nan"))
            for _ in range(3):
                await stream.next("complete")
            await worker.stop()

    play(backend, script)
    first, second, third = sorted(seen, key=lambda lease: lease.id)
    assert first == Lease(1, 1001, 1, pool="mail", lease_ttl=9.0) and first.json() is None
    assert second.json() == {"to": "you"} and second.text() == '{"to": "you"}'
    assert second == Lease(
        2, 1002, 1, b'{"to": "you"}', "application/json", "send", "k", {"a": "b"}, 1.5, 1.5, "other", "high", 3.0
    )
    assert third.priority == "unknown_99" and third.lease_ttl == 9.0
    assert not first.cancelled.is_set()
