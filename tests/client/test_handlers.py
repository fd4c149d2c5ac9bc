"""The registry of handlers by kind: registering, handing in, running, several pools."""

import dataclasses
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from cronoq.client import Client, Result
from cronoq.errors import ClientError, Permanent
from cronoq.handlers import TaskFunction, Tasks
from cronoq.testing import FakeWorker, run_handler, run_task, serve
from cronoq.worker import current_lease
from cronoq_sansio.wire import pb
from tests.client.stage import both, play, raises, stage, warnings_of

__all__ = ["stage"]


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


def registry():
    tasks = Tasks()

    @tasks.handler("order", pool="shop", retry={"max_attempts": 5}, timeout=3.0)
    async def order(order: Order, at: datetime, note: str = "none", *, urgent: bool = False) -> list[str]:
        await anyio.lowlevel.checkpoint()
        return [order.item * order.count, at.isoformat(), note, str(urgent)]

    @tasks.handler("thread")
    def in_a_thread(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return number + current_lease().attempt

    @tasks.handler("nothing")
    async def nothing() -> None:
        await anyio.lowlevel.checkpoint()

    @tasks.handler("wrong result")
    async def wrong(value: str) -> int:
        return value

    return tasks, order, in_a_thread, nothing, wrong


TASKS, ORDER, IN_A_THREAD, NOTHING, WRONG = registry()
AT = datetime(2026, 1, 31, tzinfo=UTC)


# --- registering


def test_a_registry_knows_its_functions_and_pools():
    assert list(TASKS.functions) == ["order", "thread", "nothing", "wrong result"]
    assert TASKS.pools == ("shop", "default") and TASKS.functions["order"] is ORDER
    assert (ORDER.kind, ORDER.pool, ORDER.is_async, IN_A_THREAD.is_async) == ("order", "shop", True, False)
    assert ORDER.__name__ == "order" and "order" in repr(ORDER) and isinstance(ORDER, TaskFunction)


def test_a_kind_is_registered_once():
    tasks = Tasks()

    @tasks.handler("a")
    async def first() -> None: ...

    with pytest.raises(ValueError, match=r"kind 'a' has a handler already: .*first"):

        @tasks.handler("a")
        async def second() -> None: ...


async def no_type(x): ...
async def star(*args: int): ...
async def stars(**kwargs: int): ...
async def odd(x: complex): ...
async def odd_result() -> complex: ...
async def unknown_name(x: "Missing"): ...  # noqa: F821 - the point


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_type, "no_type: parameter x has no type"),
        (star, r"parameter \*args: int has no name"),
        (stars, r"parameter \*\*kwargs: int has no name"),
        (odd, "odd: parameter x: complex has no JSON form"),
        (odd_result, "odd_result: the result: complex has no JSON form"),
        (unknown_name, "unknown_name: its parameters cannot be read"),
    ],
)
def test_functions_that_cannot_work_are_refused(function, text):
    tasks = Tasks()
    with pytest.raises(TypeError, match=text):
        tasks.handler("a")(function)
    assert not tasks.functions


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"prority": "high"}, TypeError, "prority"),
        ({"retry": {"max_tries": 3}}, ValueError, "max_tries"),
        ({"priority": "urgent"}, ValueError, "urgent"),
        ({"content_type": "x"}, TypeError, "content_type is not an option"),
        ({"payload": "x"}, TypeError, "payload is not an option"),
    ],
)
def test_options_that_cannot_work_are_refused(options, kind, text):
    with pytest.raises(kind, match=text):
        Tasks().handler("a", **options)(NOTHING.function)
    with pytest.raises(kind, match=text):
        NOTHING.with_options(**options)


def test_the_decorator_needs_a_kind():
    with pytest.raises(TypeError, match="needs its kind"):
        Tasks().handler(NOTHING.function)
    with pytest.raises(TypeError, match="needs its kind"):
        Tasks().handler("")


# --- handing in


def test_a_task_has_the_arguments_and_the_options():
    spec = ORDER.spec(Order("pen", 2), AT, urgent=True)
    assert (spec.kind, spec.pool, spec.content_type) == ("order", "shop", "application/json")
    assert spec.payload == b'{"order":{"item":"pen","count":2},"at":"2026-01-31T00:00:00+00:00","urgent":true}'
    assert (spec.retry.max_attempts, spec.timeout_s) == (5, 3.0)
    other = ORDER.with_options(key="k", timeout=9.0, pool="elsewhere", wait=True)
    spec = other.spec(Order("pen"), AT)
    assert (spec.key, spec.timeout_s, spec.pool, spec.retry.max_attempts) == ("k", 9.0, "elsewhere", 5)
    assert ORDER.spec(Order("pen"), AT).key == "", "the first is as it was"


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'order'"),
        ((Order("pen"), AT, "x", "y"), {}, "too many"),
        ((Order("pen"), AT), {"extra": 1}, "unexpected keyword argument 'extra'"),
        ((Order("pen"), "now"), {}, "at: a datetime is needed, not a string"),
        ((Order("pen"), AT.replace(tzinfo=None)), {}, "at: the time has no offset"),
        ((Order(5), AT), {}, "order.item: a string is needed, not an integer"),
        (({"item": "pen"}, AT), {}, "order: a value of Order is needed, not of dict"),
        ((Order("pen"), AT), {"urgent": 1}, "urgent: true or false is needed"),
        ((Order("pen"), AT, None), {}, "note: a string is needed, not null"),
    ],
)
def test_arguments_of_other_types_are_refused(args, kwargs, text):
    with pytest.raises(TypeError, match=text) as caught:
        ORDER.spec(*args, **kwargs)
    assert "order" in str(caught.value)


def test_a_result_is_read_back_with_its_type():
    assert ORDER.result(Result(1, "succeeded", b'["a"]')) == ["a"]
    assert NOTHING.result(Result(1, "succeeded", b"")) is None
    with pytest.raises(ValueError, match="result: an array is needed"):
        ORDER.result(Result(1, "succeeded", b"5"))
    with pytest.raises(ValueError, match="result: an array is needed, not null"):
        ORDER.result(Result(1, "succeeded", b""))
    with pytest.raises(ValueError, match="no output: its status is failed"):
        ORDER.result(Result(1, "failed", None))


# --- running


@both
def test_a_function_runs_through_its_json_form(backend):
    async def script():
        assert await run_task(ORDER, Order("ab", 2), AT, urgent=True) == ["abab", AT.isoformat(), "none", "True"]
        assert await run_task(IN_A_THREAD, 5) == 6
        assert await run_task(NOTHING) is None
        assert await ORDER(Order("a"), AT) == ["a", AT.isoformat(), "none", "False"], "called here, it is a function"
        with pytest.raises(TypeError, match="number"):
            await run_task(IN_A_THREAD, "5")
        with pytest.raises(Permanent, match="result: an integer is needed, not a string"):
            await run_task(WRONG, "x")

    play(backend, script)


@both
@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("thread", b'{"number":"5"}', "wrong payload: payload.number: an integer is needed, not a string"),
        ("thread", b"{}", "wrong payload: payload.number: is missing"),
        ("thread", b"", "wrong payload: payload.number: is missing"),
        ("thread", b'{"number":5,"more":1}', "wrong payload: payload.more: unknown"),
        ("thread", b"[5]", "wrong payload: payload: an object with the parameters is needed"),
        ("thread", b"{", "wrong payload: not valid JSON: "),
        ("order", b'{"order":{"item":1},"at":5}', "wrong payload: payload.order.item: a string is needed, not an i"),
        ("order", b'{"order":{"item":"a","zip":1},"at":"2026-01-31T00:00:00Z"}', "payload.order: unknown: zip"),
        ("thread", b'{"number":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "wrong payload: "),
    ],
)
def test_a_wrong_payload_fails_permanently_with_its_path(backend, kind, payload, message):
    async def script():
        result = await run_handler(TASKS.handle, payload, kind=kind)
        assert result.outcome == "failed" and result.permanent and message in result.message

    play(backend, script)


@both
def test_missing_parameters_take_their_defaults(backend):
    async def script():
        result = await run_handler(TASKS.handle, {"order": {"item": "a"}, "at": "2026-01-31T00:00:00Z"}, kind="order")
        assert result.json() == ["a", "2026-01-31T00:00:00+00:00", "none", "False"]
        assert result.content_type == "application/json"
        empty = await run_handler(TASKS.handle, None, kind="nothing")
        assert empty.ok and empty.output == b"" and empty.json() is None

    play(backend, script)


@both
def test_a_kind_without_a_handler_is_given_back_by_name_and_logged_once(backend, caplog):
    tasks = Tasks()

    async def script():
        for _ in range(3):
            result = await run_handler(tasks.handle, None, kind="unheard")
            assert (result.outcome, result.message) == ("rejected", "no handler for kind 'unheard'")

    play(backend, script)
    (record,) = warnings_of(caplog)
    assert "'unheard'" in record.getMessage()


def test_what_is_remembered_of_unknown_kinds_is_bounded(caplog):
    tasks = Tasks()
    caplog.set_level(logging.CRITICAL, "cronoq.client")

    async def script():
        for number in range(1_100):
            await run_handler(tasks.handle, None, kind=str(number))

    play("asyncio", script)
    assert len(tasks._unknown) == 1_000


def test_the_lease_is_there_only_in_handlers():
    with pytest.raises(RuntimeError, match="for handlers"):
        current_lease()


# --- workers of a registry


@both
def test_one_session_for_each_pool(stage, backend):
    worker = TASKS.worker("server:1", slots={"shop": 3}, name="both")
    assert sorted(worker.workers) == ["default", "shop"]

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            streams = {}
            for _ in range(2):
                stream = await stage.registered()
                streams[stream.request.pool] = stream
            await worker.wait_registered()
            assert {pool: stream.request.slots for pool, stream in streams.items()} == {"shop": 3, "default": 1}
            streams["default"].lease(1, b'{"number":1}', kind="thread")
            assert (await streams["default"].next("complete")).output == b"2"
            streams["shop"].lease(2, b"{}", kind="unheard")
            assert (await streams["shop"].next("nack")).reason == "no handler for kind 'unheard'"
            assert worker.running == 0
            await worker.stop()

    play(backend, script)


@both
def test_a_pool_that_fails_stops_the_others_and_is_raised(stage, backend):
    async def serve():
        first, second = await stage.registered(), await stage.stream()
        second.end(ClientError("not_found", f"unknown pool of {second is first}"))
        await first.left()

    async def script():
        worker = TASKS.worker("server:1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises("not_found"):
                await worker.run()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with raises("not_found"):
                async with worker:
                    raise AssertionError("not reached")

    play(backend, script)


@both
def test_the_worker_of_a_registry_is_a_block_too(stage, backend):
    async def serve():
        for _ in range(2):
            await stage.registered()

    async def script():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with TASKS.worker("server:1") as worker:
                assert all(one.worker_id == 7 for one in worker.workers.values())
                with pytest.raises(RuntimeError, match="running already"):
                    await worker.run()

    play(backend, script)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pools": ["nowhere"]}, "no handler for pool 'nowhere'; there are handlers for 'shop', 'default'"),
        ({"slots": {"nowhere": 3}}, "no handler for pool 'nowhere'"),
        ({"pools": []}, "no handler"),
        ({"slots": 0}, "slots"),
    ],
)
def test_workers_that_cannot_work_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        TASKS.worker("server:1", **options)


def test_some_pools_only():
    assert list(TASKS.worker("server:1", pools=["shop"]).workers) == ["shop"]


@both
def test_with_a_server(backend):
    async def script():
        async with serve(pools=["shop", "default"]) as server, Client(server.target) as client:
            worker = TASKS.worker(server.target, slots=2)
            async with worker:
                done = await ORDER.with_options(wait=True).submit(client, Order("pen", 2), AT)
                assert ORDER.result(done.result) == ["penpen", AT.isoformat(), "none", "False"]
                done = await TASKS.submit(client, IN_A_THREAD.with_options(wait=True), 5)
                assert IN_A_THREAD.result(done.result) == 6
                done = await client.submit(b'{"number":"x"}', kind="thread", wait=True)
                assert done.result.status == "failed" and "payload.number" in done.result.message
                specs = [IN_A_THREAD.spec(number) for number in range(3)]
                assert all(isinstance(spec, pb.TaskSpec) for spec in specs)

    play(backend, script)


def test_only_handlers_need_cattrs():
    code = "import sys; sys.modules['cattrs'] = None; import cronoq.client, cronoq.worker, cronoq.testing"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True)
    assert done.returncode == 0, done.stderr


@both
def test_a_task_of_a_function_on_a_schedule(backend):
    async def script():
        async with (
            serve(pools=["shop"]) as server,
            Client(server.target) as client,
            FakeWorker(server.target, "shop") as worker,
        ):
            await client.add_recurring("orders", "* * * * * *", ORDER.spec(Order("tea"), AT), overlap="allow")
            (schedule,) = await client.list_recurring()
            assert (schedule.pool, schedule.kind, schedule.overlap) == ("shop", "order", "allow")
            lease = await worker.next()
            assert (lease.kind, lease.tags, lease.timeout) == ("order", {"cronoq.recurring": "orders"}, 3.0)
            worker.complete(lease, (await ORDER.handle(lease)).output)
            assert await client.remove_recurring("orders")
            assert ORDER.result(await client.wait(lease.task_id)) == ["tea", AT.isoformat(), "none", "False"]

    play(backend, script)
