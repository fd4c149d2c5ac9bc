"""Every method of the client, against a server on grpcio that answers what the test says, and against ours."""

import asyncio
from typing import Any

import grpc
import pytest

from cronoq import client as api
from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import (
    Client,
    ClientError,
    PoolSnapshot,
    RecurringInfo,
    Result,
    Submitted,
    TaskInfo,
    WorkerGroup,
    WorkerInfo,
    task,
)
from tests.acceptance.server import Server
from tests.client.conftest import Run
from tests.client.foreign import DONE, INFO, LATE, ForeignServer, Refusal, each

# --- what each call asks for and gives back


def test_submit(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Submit=pb.SubmitResponse(id=7, duplicate=True))

    async def calls(client: Client) -> None:
        options: dict[str, Any] = {"pool": "p", "kind": "k", "key": "key", "priority": "HIGH", "tags": {"n": 1}}
        assert await client.submit({"a": [1]}, **options) == Submitted(7, True, None)

    each(run, foreign, calls)
    ((_, request),) = foreign.asked
    spec = request.task
    assert (spec.payload, spec.content_type) == (b'{"a": [1]}', "application/json")
    assert (spec.pool, spec.kind, spec.key, spec.priority, dict(spec.tags)) == ("p", "k", "key", 2, {"n": "1"})
    assert not request.wait and not request.HasField("wait_timeout_s")


def test_submit_and_wait(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Submit=pb.SubmitResponse(id=7, result=DONE))

    async def calls(client: Client) -> None:
        submitted = await client.submit(wait=True, wait_timeout=9)
        assert submitted == Submitted(7, False, Result(7, "succeeded", b"{}", "", True))
        assert submitted.result is not None and submitted.result.ok and submitted.result.json() == {}

    each(run, foreign, calls)
    ((_, request),) = foreign.asked
    assert request.wait and 8 < request.wait_timeout_s <= 9


def test_a_wait_goes_on_beyond_the_cap_of_the_server(run: Run, foreign: ForeignServer) -> None:
    named = Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "not ended", ("cronoq-task-id", "7"))
    foreign.reset(Submit=named, Wait=[LATE, DONE])

    async def calls(client: Client) -> None:
        submitted = await client.submit(wait=True)
        assert submitted.id == 7 and not submitted.duplicate and submitted.result is not None
        assert (submitted.result.status, submitted.result.output) == ("succeeded", b"{}")

    each(run, foreign, calls)
    assert [(name, str(request.task.id)) for name, request in foreign.asked[1:]] == [("Wait", "7")] * 2
    assert not foreign.asked[1][1].HasField("timeout_s")


def test_a_keyed_wait_knows_whether_it_is_a_duplicate(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Submit=pb.SubmitResponse(id=7, duplicate=True), Wait=[LATE, DONE])

    async def calls(client: Client) -> None:
        submitted = await client.submit(wait=True, key="k", wait_timeout=60)
        assert submitted.duplicate and submitted.result is not None and submitted.result.ok

    each(run, foreign, calls)
    assert 50 < foreign.asked[1][1].timeout_s <= 60


def test_wait(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Wait=[DONE, (DONE, (("cronoq-unavailable-shards", "eu, us"),))])

    async def calls(client: Client) -> None:
        assert (await client.wait("key")).unavailable_shards == ()
        assert (await client.wait(7, 3)).unavailable_shards == ("eu", "us")

    each(run, foreign, calls)
    first, second = (request for _, request in foreign.asked)
    assert first.task.key == "key" and second.task.id == 7 and 2 < second.timeout_s <= 3


@pytest.mark.realtime
def test_a_wait_ends_at_the_callers_own_time(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Wait=[LATE] * 20, Submit=[LATE] * 2)

    async def calls(client: Client) -> None:
        for wait in (client.wait(7, 0.25), client.submit(wait=True, wait_timeout=0.0)):
            with pytest.raises(TimeoutError, match="has not ended in the time to wait"):
                await wait

    each(run, foreign, calls)
    assert 2 <= len([name for name, _ in foreign.asked if name == "Wait"]) <= 5, "not in a tight loop"


@pytest.mark.realtime
def test_call_timeout_bounds_whatever_the_call_waits_for(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Wait=[LATE] * 20)

    async def calls(client: Client) -> None:
        with pytest.raises(TimeoutError):
            await client.wait(7, call_timeout=0.25)

    each(run, foreign, calls)


def test_wait_timeout_without_wait() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="wait_timeout"):
            await Client("localhost:1").submit(wait_timeout=1)

    asyncio.run(main())


def test_submit_batch(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(SubmitBatch=pb.SubmitBatchResponse(tasks=[pb.SubmitResponse(id=2), pb.SubmitResponse(id=1)]))

    async def calls(client: Client) -> None:
        assert await client.submit_batch([]) == []
        own, stub = task("a"), pb.TaskSpec(payload=b"b")
        assert await client.submit_batch([own, stub]) == [Submitted(2, False), Submitted(1, False)]
        for wrong in ([{"payload": 1}], [pb.TaskRef(id=1)], "ab"):
            with pytest.raises(TypeError, match=r"made by task\(\)"):
                await client.submit_batch(wrong)

    each(run, foreign, calls)
    assert [spec.payload for spec in foreign.asked[0][1].tasks] == [b"a", b"b"] and len(foreign.asked) == 1


def test_cancel(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Cancel=[pb.CancelResponse(cancelled=True), pb.CancelResponse()])

    async def calls(client: Client) -> None:
        assert await client.cancel("k") is True
        assert await client.cancel(3) is False

    each(run, foreign, calls)


def test_get(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Get=[INFO, pb.TaskInfo(id=1, status=77, priority=66)])

    async def calls(client: Client) -> None:
        info = await client.get(9)
        assert info == TaskInfo(
            id=9,
            status="running",
            pool="p",
            key="k",
            kind="kind",
            attempt=2,
            max_attempts=3,
            created_at=1_700_000_000.1234567,
            started_at=0.0,
            message="m",
            tenant="t",
            priority="low",
            created_at_ns=1_700_000_000_123_456_789,
            started_at_ns=0,
        )
        assert not info.done
        future = await client.get(1)
        assert (future.status, future.priority, future.created_at) == ("unknown_77", "unknown_66", None)

    each(run, foreign, calls)


def test_listing(run: Run, foreign: ForeignServer) -> None:
    page = pb.ListTasksResponse(tasks=[INFO], next_after=9, unavailable_shards=["eu"])
    foreign.reset(ListTasks=[page, pb.ListTasksResponse()])

    async def calls(client: Client) -> None:
        found = await client.list_tasks(pools=["p"], statuses=["Running", "dead_lettered"], after=3, limit=5)
        assert [info.id for info in found.tasks] == [9] and found.next_after == 9
        assert found.unavailable_shards == ("eu",)
        last = await client.list_tasks()
        assert last.tasks == () and last.next_after is None
        for wrong in (
            {"pools": "p"},
            {"statuses": "ready"},
            {"pools": [1]},
            {"after": True},
            {"limit": 1.0},
        ):
            with pytest.raises(TypeError):
                await client.list_tasks(**wrong)
        for bad in ({"statuses": ["nope"]}, {"statuses": ["unspecified"]}, {"after": -1}, {"limit": 1 << 32}):
            with pytest.raises(ValueError):
                await client.list_tasks(**bad)

    each(run, foreign, calls)
    request = foreign.asked[0][1]
    assert (list(request.pools), list(request.statuses), request.after, request.limit) == (["p"], [4, 8], 3, 5)
    assert len(foreign.asked) == 2


def test_iterating_follows_the_pages_and_tells_of_missing_shards(run: Run, foreign: ForeignServer) -> None:
    pages = [
        pb.ListTasksResponse(tasks=[pb.TaskInfo(id=1), pb.TaskInfo(id=2)], next_after=2),
        pb.ListTasksResponse(tasks=[pb.TaskInfo(id=5)], unavailable_shards=["us", "eu"]),
    ]
    foreign.reset(ListTasks=pages)

    async def calls(client: Client) -> None:
        found = []
        with pytest.raises(ClientError, match="unavailable: shards that could not be asked: eu, us"):
            async for info in client.iter_tasks(pools=iter(["p"]), page_size=2):
                found.append(info.id)
        assert found == [1, 2, 5]

    each(run, foreign, calls)
    assert [(list(r.pools), r.after, r.limit) for _, r in foreign.asked] == [(["p"], 0, 2), (["p"], 2, 2)]


def test_recurring(run: Run, foreign: ForeignServer) -> None:
    listed = pb.ListRecurringResponse(
        schedules=[
            pb.RecurringInfo(
                name="a", cron="* * * * *", overlap=pb.OVERLAP_QUEUE_ON_SUCCESS, next_unix_ns=5, last_task_id=3
            ),
            pb.RecurringInfo(name="b"),
        ],
        unavailable_shards=["eu"],
    )
    foreign.reset(
        AddRecurring=pb.Empty(), RemoveRecurring=pb.RemoveRecurringResponse(removed=True), ListRecurring=listed
    )

    async def calls(client: Client) -> None:
        assert (
            await client.add_recurring("n", "0 * * * *", {"a": 1}, tz="Europe/Berlin", overlap="QUEUE", kind="k")
            is None
        )
        await client.add_recurring("n", "0 * * * *", task("x", timeout=3))
        await client.add_recurring("n", "0 * * * *", pb.TaskSpec(kind="of the generated stubs"))
        options: dict[str, Any] = {"tolerance": 5, "on_miss": "skip", "deadline_in": 60, "key": "k", "start_in": 1}
        await client.add_recurring("n", "0 * * * *", **options)
        with pytest.raises(TypeError, match="no further options: kind"):
            await client.add_recurring("n", "0 * * * *", task("x"), kind="k")
        with pytest.raises(ValueError, match="overlap: 'maybe' is not one of skip, allow, queue, queue_on_success"):
            await client.add_recurring("n", "0 * * * *", overlap="maybe")
        with pytest.raises(ValueError, match="on_miss: 'late' is not one of run_late, skip, fail"):
            await client.add_recurring("n", "0 * * * *", on_miss="late")
        for name, cron, tz, word in ((1, "", None, "name"), ("n", None, None, "cron"), ("n", "", 1, "tz")):
            with pytest.raises(TypeError, match=f"{word}: a str is needed"):
                await client.add_recurring(name, cron, tz=tz)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="name: a str is needed"):
            await client.remove_recurring(None)  # type: ignore[arg-type]
        assert await client.remove_recurring("n") is True
        schedules = await client.list_recurring()
        assert schedules == [
            RecurringInfo("a", "* * * * *", "", "", "", "queue_on_success", 5e-9, 3, 5),
            RecurringInfo("b", "", "", "", "", "skip", None, None),
        ]
        assert schedules.unavailable_shards == ("eu",)

    each(run, foreign, calls)
    first, second, third, fourth = (request for name, request in foreign.asked if name == "AddRecurring")
    assert (first.name, first.cron, first.tz, first.overlap) == ("n", "0 * * * *", "Europe/Berlin", 3)
    assert (first.template.kind, first.template.payload, second.template.timeout_s) == ("k", b'{"a": 1}', 3)
    assert (second.overlap, second.tz, third.template.kind) == (pb.OVERLAP_SKIP, "", "of the generated stubs")
    template = fourth.template
    assert (template.tolerance_s, template.on_miss, template.deadline_in_s) == (5, pb.MISS_POLICY_SKIP, 60)
    assert (template.key, template.start_in_s) == ("k", 1), "what a template may not have is the server's to refuse"


def test_workers_and_figures(run: Run, foreign: ForeignServer) -> None:
    worker = pb.WorkerInfo(
        id=1, name="w", pool="p", labels={"gpu": "a"}, slots=4, busy=2, connected_unix_ns=2_000_000_000
    )
    pool = pb.PoolSnapshot(
        name="p", capacity=4, pending_by_class=[1, 2, 3, 4], wait_p99_s=0.5, groups=[pb.WorkerGroup(capacity=4)]
    )
    snapshot = pb.SnapshotResponse(pools=[pool], live_tasks=5, totals=pb.Totals(shed=3), unavailable_shards=["eu"])
    foreign.reset(ListWorkers=pb.ListWorkersResponse(workers=[worker]), Snapshot=snapshot)

    async def calls(client: Client) -> None:
        assert await client.list_workers() == [WorkerInfo(1, "w", "p", {"gpu": "a"}, 4, 2, 2.0, 2_000_000_000)]
        found = await client.snapshot()
        figures = found.pool("p")
        assert isinstance(figures, PoolSnapshot) and found.pool("q") is None
        assert (figures.pending, figures.pending_by_class, figures.wait_p99) == (10, (1, 2, 3, 4), 0.5)
        assert figures.groups == (WorkerGroup({}, 4, 0),)
        assert (found.live_tasks, found.totals.shed, found.unavailable_shards) == (5, 3, ("eu",))

    each(run, foreign, calls)


# --- errors


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_every_status_has_its_word(run: Run, foreign: ForeignServer, status: grpc.StatusCode) -> None:
    foreign.reset(Get=Refusal(status, "why", ("cronoq-shard", "eu"), ("cronoq-shard-endpoint", "https://eu:1")))

    async def calls(client: Client) -> BaseException:
        try:
            await client.get(1)
        except (ClientError, TimeoutError) as error:
            return error
        raise AssertionError

    error = each(run, foreign, calls)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert type(error) is TimeoutError and isinstance(error.__cause__, ClientError)
        error = error.__cause__
    assert (error.code, error.message) == (status.name.lower(), "why")
    assert (error.shard, error.endpoint) == ("eu", "https://eu:1") and ("cronoq-shard", "eu") in error.metadata


def test_a_cancellation_for_want_of_time_is_a_timeout(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Get=Refusal(grpc.StatusCode.CANCELLED, "Timeout Expired"))

    async def calls(client: Client) -> None:
        with pytest.raises(TimeoutError):
            await client.get(1)

    each(run, foreign, calls)


@pytest.mark.parametrize(
    ("ref", "error"), [(True, TypeError), (1.5, TypeError), (b"k", TypeError), (-1, ValueError), (2**64, ValueError)]
)
def test_references_that_are_none(ref: Any, error: type[Exception]) -> None:
    async def main() -> None:
        client = Client("localhost:1")
        for call in (client.get, client.wait, client.cancel):
            with pytest.raises(error):
                await call(ref)

    asyncio.run(main())


def test_compressed_answers(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Get=pb.TaskInfo(id=1, message="m" * 5_000))
    foreign.compression = grpc.Compression.Gzip
    try:
        info = each(run, foreign, lambda client: client.get(1))
    finally:
        foreign.compression = grpc.Compression.NoCompression
    assert info.message == "m" * 5_000


# --- our own server


def test_a_life_on_our_own_server(run: Run, backend: str, server: Server) -> None:
    key = f"life under {backend}"

    async def main() -> None:
        async with Client(server.address) as client:
            first = await client.submit("text", key=key, pool="other", tags={"a": "b"})
            again = await client.submit("text", key=key, pool="other")
            assert again.id == first.id and again.duplicate is True
            info = await client.get(key)
            assert (info.id, info.status, info.pool, info.priority, info.done) == (
                first.id,
                "ready",
                "other",
                "normal",
                False,
            )
            with pytest.raises(TimeoutError):
                await client.wait(first.id, timeout=0.1)
            assert await client.cancel(key) is True and await client.cancel(key) is False
            result = await client.wait(key)
            assert (result.status, result.ok, result.output, result.text()) == ("cancelled", False, None, "")
            with pytest.raises(ValueError, match="no output"):
                result.json()
            for unknown in (client.get(5), client.wait(5), client.cancel(5)):
                with pytest.raises(ClientError, match="not_found"):
                    await unknown
            with pytest.raises(ClientError, match="invalid_argument"):
                await client.get("")
            snapshot = await client.snapshot()
            assert snapshot.pool("other") is not None and snapshot.totals.submitted >= 1

    run(main)


def test_methods_that_a_server_does_not_have(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(AddRecurring=Refusal(grpc.StatusCode.UNIMPLEMENTED, "Admin.AddRecurring is not built"))

    async def calls(client: Client) -> None:
        with pytest.raises(ClientError, match=r"unimplemented: Admin\.AddRecurring is not built"):
            await client.add_recurring("n", "* * * * *")

    each(run, foreign, calls)


def test_the_api_is_what_its_description_lists() -> None:
    described = (
        "Client ClientError Event PROTOCOL_VERSION PoolSnapshot RecurringInfo Result Snapshot Submitted TaskInfo "
        "TaskPage Totals WorkerGroup WorkerInfo task"
    )
    assert set(described.split()) <= set(api.__all__)
    assert api.PROTOCOL_VERSION == 3 and api.pb.TaskSpec is not None and api.log.name == "cronoq.client"
