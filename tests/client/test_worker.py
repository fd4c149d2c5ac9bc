"""The worker's life: registering, connecting again, redirects, and what its owner sees of it."""

import pickle
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from cronoq import errors
from cronoq.errors import ClientError
from cronoq.worker import Worker
from tests.client.stage import both, make, play, raises, stage, warnings_of

__all__ = ["stage"]

MOVED = "cronoq-shard-endpoint"


async def echo(lease):
    await anyio.lowlevel.checkpoint()
    return lease.payload


@both
def test_serves_and_stops(stage, backend):
    worker = make(echo, name="tester", labels={"zone": 1}, slots=4)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered(slots=3, ttl=9.0, limit=5_000_000)
            request = stream.request
            assert (request.pool, request.slots, request.worker_name) == ("default", 4, "tester")
            assert request.protocol_version == 3 and dict(request.labels) == {"zone": "1"}
            await worker.wait_registered()
            assert (worker.worker_id, worker.lease_ttl, worker.granted_slots) == (7, 9.0, 3)
            assert (worker.server_protocol, worker.max_message_bytes, worker.connections) == (3, 5_000_000, 1)
            assert stream.max_receive_bytes > 5_000_000, "the largest lease must fit"
            stream.lease(1, b"hello")
            complete = await stream.next("complete")
            assert (complete.lease, complete.output) == (1, b"hello")
            await worker.stop()
            assert (await stream.next("set_slots")).slots == 0
            assert stream.half_closed and worker.running == 0

    play(backend, script)


@both
def test_the_object_can_run_again_on_another_loop(stage, backend):
    worker = make(echo)
    assert worker.worker_id is None and worker.granted_slots is None and worker.last_shutdown is None

    async def script():
        async with worker:
            pass

    async def serve():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(script)
            await stage.registered()

    play(backend, serve)
    play("asyncio" if backend == "trio" else "trio", serve)
    assert worker.connections == 2


@both
def test_a_second_run_is_refused(stage, backend):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await stage.registered()
            with pytest.raises(RuntimeError, match="running already"):
                await worker.run()
            with pytest.raises(RuntimeError, match="running already"):
                async with worker:
                    pass
            await worker.stop()

    play(backend, script)


@both
def test_starting_in_a_nursery_returns_once_registered(stage, backend):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.registered)
            await tasks.start(worker.run)
            assert worker.worker_id == 7
            await worker.stop()

    play(backend, script)


@both
def test_starting_raises_what_run_fails_with(stage, backend):
    stage.unreachable, stage.refuse = True, ClientError("permission_denied", "a client's token")
    worker = make(echo)

    async def script():
        with raises("permission_denied"):
            await worker.run()
        with raises("permission_denied"):
            await worker.wait_registered()
        with raises("permission_denied"):
            async with worker:
                raise AssertionError("not reached")
        with pytest.raises(BaseExceptionGroup):
            async with anyio.create_task_group() as tasks:
                await tasks.start(worker.run)

    play(backend, script)


@both
def test_a_failure_ends_the_block_and_is_raised_there(stage, backend):
    worker = make(echo)

    async def serve():
        stream = await stage.registered()
        stream.end(ClientError("unauthenticated", "the token was revoked"))

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises("unauthenticated"):
                async with worker:
                    await anyio.sleep_forever()

    play(backend, script)


@both
def test_an_error_in_the_block_comes_out_as_it_is_and_cuts_handlers_off(stage, backend):
    async def forever(lease):
        await anyio.sleep_forever()

    worker = make(forever)
    seen = []

    async def serve():
        stream = await stage.registered()
        stream.lease(1)
        assert (await stream.next("set_slots")).slots == 0
        seen.append(await stream.next("nack"))

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with pytest.raises(ZeroDivisionError):
                async with worker:
                    while not worker.running:
                        await anyio.lowlevel.checkpoint()
                    raise ZeroDivisionError

    play(backend, script)
    assert seen[0].lease == 1


@both
def test_cancelling_the_block_ends_everything(stage, backend):
    exited = []

    async def forever(lease):
        try:
            await anyio.sleep_forever()
        finally:
            exited.append((lease.id, lease.cancelled.is_set()))

    worker = make(forever)

    async def serve():
        stream = await stage.registered()
        stream.lease(1)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with anyio.CancelScope() as scope:
                async with worker:
                    while not worker.running:
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught and worker.running == 0

    play(backend, script)
    assert [lease for lease, _ in exited] == [1]


@both
def test_wait_registered_has_a_timeout_and_tells_of_a_stop(stage, backend):
    worker = make(echo)
    stage.unreachable = True

    async def wait():
        with raises("cancelled", "stopped before"):
            await worker.wait_registered()

    async def script():
        with pytest.raises(TimeoutError):
            await worker.wait_registered(timeout=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            tasks.start_soon(wait)
            while not (stage.attempts and worker._waiters):
                await anyio.lowlevel.checkpoint()
            await worker.stop()

    play(backend, script)


@both
def test_stop_without_run_does_nothing(stage, backend):
    worker = make(echo)

    async def script():
        await worker.stop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.registered()
            stream.lease(1)
            await stream.next("complete")
            await worker.stop()

    play(backend, script)


# --- connecting again


@both
@pytest.mark.parametrize("end", [True, ClientError("unavailable", "gone"), ClientError("internal", "reset")])
def test_a_lost_stream_is_replaced(stage, backend, end, caplog):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            first = await stage.registered()
            await worker.wait_registered()
            first.end(end)
            second = await stage.registered()
            second.lease(5)
            await second.next("complete")
            assert worker.connections == 2
            await worker.stop()

    play(backend, script)
    (record,) = warnings_of(caplog)
    assert "connecting again" in record.getMessage()
    assert end is True or end.message in record.getMessage()


def late():
    error = TimeoutError("late")
    error.__cause__ = ClientError("deadline_exceeded", "no Register within 10 s")
    return error


@both
def test_a_deadline_of_the_server_is_an_end_like_others(stage, backend):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            (await stage.stream()).end(late())
            await stage.registered()
            await worker.stop()

    play(backend, script)


@both
@pytest.mark.parametrize(
    ("end", "code"), [(True, "unavailable"), (ClientError("internal", "x"), "internal"), (late(), "deadline_exceeded")]
)
def test_without_reconnecting_the_end_is_raised(stage, backend, end, code):
    worker = make(echo, reconnect=False)

    async def serve():
        (await stage.registered()).end(end)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises(code):
                await worker.run()

    play(backend, script)


@both
def test_a_server_that_goes_away_is_remembered_and_replaced(stage, backend):
    cut = []

    async def forever(lease):
        try:
            await anyio.sleep_forever()
        finally:
            cut.append(lease.cancelled.is_set())

    worker = make(forever)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            first = await stage.registered()
            first.lease(1)
            first.tell(shutdown={"reason": "", "not_leader": True})
            await stage.registered()
            assert worker.last_shutdown == "shutdown" and cut == [True] and not first.sent
            await worker.stop()

    play(backend, script)


@both
def test_a_server_that_breaks_the_protocol_is_left(stage, backend, caplog):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            first = await stage.stream()
            first.lease(1)
            await first.left()
            await stage.registered()
            await worker.stop()

    play(backend, script)
    assert "broke the worker protocol" in warnings_of(caplog)[0].getMessage()


@both
def test_messages_that_are_new_are_ignored(stage, backend):
    worker = make(echo)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            stream = await stage.stream()
            stream.tell()
            stream.register()
            stream.tell()
            stream.lease(1)
            await stream.next("register")
            await stream.next("complete")
            await worker.stop()

    play(backend, script)


# --- redirects


def moved(endpoint):
    return ClientError("failed_precondition", "other shard", metadata=((MOVED, endpoint),))


@both
def test_a_redirect_is_followed_and_any_failure_leads_back(stage, backend):
    worker = make(echo, reconnect=True)

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            (await stage.stream()).end(moved("http://127.0.0.1:9"))
            (await stage.stream()).end(ClientError("internal", "x"))
            await stage.registered()
            assert stage.attempts == ["server:1", "http://127.0.0.1:9", "server:1"]
            await worker.stop()

    play(backend, script)


@both
def test_a_redirect_that_would_show_the_token_is_refused(stage, backend):
    with pytest.warns(UserWarning, match="in clear"):
        worker = make(echo, token="secret")

    async def serve():
        (await stage.stream()).end(moved("http://far.example:9"))

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises("failed_precondition", "insecure_redirect_http"):
                await worker.run()

    play(backend, script)


@both
def test_no_more_than_three_redirects_in_a_row(stage, backend):
    worker = make(echo)

    async def serve():
        for port in range(1, 5):
            (await stage.stream()).end(moved(f"http://127.0.0.1:{port}"))

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises("failed_precondition", "4 times"):
                await worker.run()

    play(backend, script)


# --- arguments


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"slots": 0}, ValueError, "slots"),
        ({"slots": True}, TypeError, "slots"),
        ({"slots": 1.5}, TypeError, "slots"),
        ({"backoff": (0, 1)}, ValueError, "backoff"),
        ({"backoff": (2, 1)}, ValueError, "backoff"),
        ({"backoff": ("1", 2)}, TypeError, "backoff"),
        ({"grace": -1}, ValueError, "grace"),
        ({"grace": None}, TypeError, "grace"),
        ({"name": 5}, TypeError, "name"),
        ({"pool": None}, TypeError, "pool"),
        ({"credentials": object()}, TypeError, "credentials"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, kind, text):
    with pytest.raises(kind, match=text):
        make(echo, **options)


def test_wrong_targets_and_handlers_are_refused_at_once():
    with pytest.raises(ValueError, match="host:port"):
        Worker("nowhere", "default", echo)
    with pytest.raises(TypeError, match="handler"):
        Worker("server:1", "default", None)


@pytest.mark.parametrize(
    "error",
    [
        errors.Retryable("later", retry_after=2.5),
        errors.Permanent("never"),
        errors.Reject("not mine"),
        errors.CancelTask("no use"),
        ClientError("not_found", "no such pool"),
    ],
)
def test_errors_pickle_with_their_attributes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_the_worker_needs_neither_grpcio_nor_the_server():
    code = (
        "import sys; import cronoq.worker; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('grpc', 'cattrs', 'attr') "
        "or m.startswith(('cronoq._runtime', 'cronoq._stores', 'cronoq_sansio.engine', 'cronoq_sansio.service'))]; "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True)
    assert done.returncode == 0, done.stderr
