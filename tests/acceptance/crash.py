"""`kill -9` of a loaded server, again and again, and the books that say whether it kept its word.

The load is a foreign client that always has 64 keyed submits in flight, and two foreign worker processes with 32 slots
each. The books: which submit was acknowledged with which id; which result a Wait has brought; which worker held which
lease from when to when. A submit that was not acknowledged is repeated with its key, as a client would.

Afterwards: every acknowledged task is there under its id and its key; every result that was seen is still the same;
every task has run to its end; no task was held by two workers at once. The lease of a server that was killed does not
count any more once its worker has noticed that the stream broke.
"""

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import reference
from tests.acceptance.crash_worker import OPTIONS, output_of
from tests.acceptance.ledger import percentiles, record
from tests.acceptance.server import HANG, Server, environment, free_port

IN_FLIGHT = 64
WAITERS = 32
WORKERS, SLOTS = 2, 32
PER_CYCLE = 500
"""Acknowledged submits before the server is killed, at a random instant of the next `SPREAD` seconds."""
SPREAD = 0.3
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
"""How a call ends whose server was killed."""
PAUSE = 0.01
"""Seconds before a call is repeated: a server that recovers has other things to do than to refuse."""
SERVES_AGAIN = 10.0
"""Seconds from the restart to the first acknowledged submit; 0.4 to 0.9 s were measured."""


class Books:
    """What the server has said, and what it must therefore still know."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        """Key to id."""
        self.results: dict[int, pb.TaskResult] = {}
        """Id to the result that a Wait has brought."""
        self.repeated = 0
        """How often a submit was repeated because its server was killed or recovered."""
        self.in_flight: list[int] = []
        """Submits without an answer at the instants of the kills."""
        self.faults: list[str] = []

    def acknowledge(self, key: str, reply: pb.SubmitResponse, first: bool) -> None:
        known = self.acknowledged.setdefault(key, reply.id)
        if known != reply.id:
            self.faults.append(f"{key} has two ids, {known} and {reply.id}")
        if first and reply.duplicate:
            self.faults.append(f"{key} was new and is called a duplicate")

    def shown(self, info: pb.TaskInfo) -> None:
        """A Get after a kill brought this."""

    def result(self, result: pb.TaskResult, key: str) -> None:
        if result.status != pb.TASK_STATUS_SUCCEEDED or result.output != output_of(key.encode()):
            self.faults.append(f"wrong result of {key}: {result}")
        known = self.results.setdefault(result.id, result)
        if known != result:
            self.faults.append(f"two results of {key}: {known} and {result}")


class Load:
    """The client: submits, and waits for some of what it has submitted."""

    def __init__(self, channel: "grpc.aio.Channel", books: Books) -> None:
        self.tasks = stubs.TasksStub(channel)
        self.books = books
        self.numbers = itertools.count()
        self.fresh: list[str] = []
        self.open = 0
        self.stopping = False
        self.killed = 0.0
        """When the server was killed last."""
        self.first_again: float | None = None
        """When the first submit that began after that was acknowledged."""

    async def submit_forever(self) -> None:
        while not self.stopping:
            key = f"task-{next(self.numbers)}"
            task = pb.TaskSpec(
                key=key,
                payload=key.encode(),
                retry=pb.RetryPolicy(max_attempts=1_000, initial_backoff_s=0.02, multiplier=1, max_backoff_s=0.02),
            )
            reply, first = await self.until_answered(self.tasks.Submit, pb.SubmitRequest(task=task))
            self.books.acknowledge(key, reply, first)
            self.fresh.append(key)

    async def until_answered(self, method: Any, request: Any) -> tuple[Any, bool]:
        """The answer to a call that is repeated as long as servers are killed, and whether the first try brought it."""
        first = True
        while True:
            begun = time.monotonic()
            self.open += 1
            try:
                reply = await method(request, timeout=HANG, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                assert error.code() in AGAIN, error
                self.books.repeated += 1
                first = False
                await asyncio.sleep(PAUSE)
                continue
            finally:
                self.open -= 1
            if self.first_again is None and begun > self.killed:
                self.first_again = time.monotonic()
            return reply, first

    async def wait_forever(self) -> None:
        while not self.stopping:
            if not self.fresh:
                await asyncio.sleep(0.005)
                continue
            key = self.fresh.pop(random.randrange(len(self.fresh)))
            await self.see(key)

    async def see(self, key: str) -> None:
        """Wait for the result of a task, whatever happens to the server meanwhile."""
        request = pb.WaitRequest(task=reference(self.books.acknowledged[key]))
        while True:
            try:
                result = await self.tasks.Wait(request, timeout=2 * HANG, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() in AGAIN:
                    await asyncio.sleep(PAUSE)
                    continue
                self.books.faults.append(f"{key}, acknowledged as {request.task.id}: {error.code()} {error.details()}")
                return
            self.books.result(result, key)
            return

    async def check(self, key: str) -> None:
        """An acknowledged task must be there, under its id and under its key."""
        task_id = self.books.acknowledged[key]
        for ref in (task_id, key):
            try:
                info = await self.tasks.Get(pb.GetRequest(task=reference(ref)), timeout=HANG)
            except grpc.aio.AioRpcError as error:
                self.books.faults.append(f"{key}, acknowledged as {task_id}: {error.code()} {error.details()}")
                continue
            if (info.id, info.key) != (task_id, key):
                self.books.faults.append(f"{key}, acknowledged as {task_id}, is now {info}")
            self.books.shown(info)
        seen = self.books.results.get(task_id)
        if seen is not None:
            await self.see(key)


class Crash:
    """The whole rig: server, workers, load, books."""

    LOAD: type[Load] = Load
    BOOKS: type[Books] = Books
    TABLES: ClassVar[dict[str, str]] = {}
    """Of the server's configuration."""
    SUBMITTERS = IN_FLIGHT
    WORKERS: tuple[tuple[str, ...], ...] = ((),) * WORKERS
    """Pools and label of each worker."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.server = Server(folder, "sqlite", port=free_port(), **self.TABLES)
        self.random = random.Random(seed)
        self.books = self.BOOKS()
        self.restarts: list[float] = []
        """Seconds from the start of the new process to its ready line."""
        self.serving_again: list[float] = []
        """Seconds from the start of the new process to the first acknowledged submit."""
        self.ledgers: list[Path] = []
        """One of each worker that was ever started."""
        self.workers: list[subprocess.Popen[bytes]] = []

    async def run(self, cycles: int) -> None:
        try:
            for arguments in self.WORKERS:
                self.workers.append(self.start_worker(*arguments))
            self.server.start()
            async with grpc.aio.insecure_channel(self.server.address, options=OPTIONS) as channel:
                await self.load(self.LOAD(channel, self.books), cycles)
        finally:
            for worker in self.workers:
                await asyncio.to_thread(end_worker, worker)
        assert self.server.stop() == 0

    def start_worker(self, *arguments: str) -> "subprocess.Popen[bytes]":
        ledger = self.folder / f"worker{len(self.ledgers)}.jsonl"
        ledger.touch()
        self.ledgers.append(ledger)
        script = Path(__file__).with_name("crash_worker.py")
        command = [sys.executable, str(script), str(self.server.port), str(SLOTS), str(ledger), *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment())

    async def load(self, load: Load, cycles: int) -> None:
        running = [asyncio.create_task(load.submit_forever()) for _ in range(self.SUBMITTERS)]
        running += [asyncio.create_task(load.wait_forever()) for _ in range(WAITERS)]
        try:
            for _ in range(cycles):
                await self.cycle(load, running)
        finally:
            load.stopping = True
        await self.all_of(running)
        await self.all_of([asyncio.create_task(load.see(key)) for key in self.books.acknowledged])
        await self.all_of([asyncio.create_task(load.check(key)) for key in self.books.acknowledged])

    async def all_of(self, running: "list[asyncio.Task[None]]") -> None:
        await asyncio.wait_for(asyncio.gather(*running), 4 * HANG)

    async def cycle(self, load: Load, running: "list[asyncio.Task[None]]") -> None:
        """Load until enough is acknowledged, kill at a random instant, start again, and look at every book entry."""
        before = len(self.books.acknowledged)
        deadline = time.monotonic() + 4 * HANG
        while len(self.books.acknowledged) < before + PER_CYCLE:
            await asyncio.sleep(0.005)
            assert time.monotonic() < deadline, "the load makes no progress"
            for task in running:
                if task.done():
                    task.result()
        await asyncio.sleep(self.random.uniform(0, SPREAD))
        self.books.in_flight.append(load.open)
        await self.disturb(load)
        self.server.kill()
        load.killed, load.first_again = time.monotonic(), None
        begun = time.monotonic()
        await asyncio.to_thread(self.server.start)
        self.restarts.append(self.server.started_in)
        while load.first_again is None:
            await asyncio.sleep(0.001)
            assert time.monotonic() < begun + SERVES_AGAIN, "the restarted server does not serve"
        self.serving_again.append(load.first_again - begun)
        await self.look(load)
        keys = list(itertools.islice(self.books.acknowledged, before, None))
        await self.all_of([asyncio.create_task(load.check(key)) for key in keys])

    async def disturb(self, load: Load) -> None:
        """The server is about to be killed."""

    async def look(self, load: Load) -> None:
        """The restarted server serves."""

    # --- the verdict

    def verdict(self, name: str, cycles: int) -> None:
        """Write the figures down and fail on every broken promise."""
        leases = self.leases()
        doubles = double_leases(leases)
        lost = [key for key, task_id in self.books.acknowledged.items() if task_id not in self.books.results]
        record(
            name,
            cycles=cycles,
            acknowledged=len(self.books.acknowledged),
            acknowledged_lost=len(lost),
            repeats_after_kills=self.books.repeated,
            in_flight_at_kills=percentiles(self.books.in_flight),
            results_seen=len(self.books.results),
            faults=len(self.books.faults),
            leases=len(leases),
            attempts_lost_to_kills=len(leases) - len({lease["task"] for lease in leases}),
            tasks_with_two_live_leases=len(doubles),
            seconds_to_ready=percentiles(self.restarts),
            seconds_to_first_acknowledged_submit=percentiles(self.serving_again),
        )
        assert not self.books.faults, self.books.faults[:10]
        assert not lost, lost[:10]
        assert not doubles, doubles[:10]
        assert len(self.books.acknowledged) >= cycles * PER_CYCLE
        assert len({lease["lease"] for lease in leases}) == len(leases), "a lease id was given twice"
        self.server.check_log()

    def entries(self, ledger: Path) -> list[dict[str, Any]]:
        """What a worker wrote down."""
        return [json.loads(line) for line in ledger.read_text().splitlines()]

    def leases(self) -> list[dict[str, Any]]:
        """Every lease that a worker had, with the times between which it was alive for its worker."""
        found: list[dict[str, Any]] = []
        for ledger in self.ledgers:
            alive: dict[int, dict[str, Any]] = {}
            for entry in self.entries(ledger):
                if entry["event"] == "leased":
                    lease = {**entry, "ledger": ledger, "from": entry["at"], "to": float("inf")}
                    alive[entry["lease"]] = lease
                    found.append(lease)
                elif entry["event"] == "ended":
                    alive.pop(entry["lease"])["to"] = entry["at"]
                else:
                    broken = [lease for lease in alive.values() if lease["stream"] == entry["stream"]]
                    for lease in broken:
                        lease["to"] = entry["at"]
                        del alive[lease["lease"]]
            assert not alive
        return found


def double_leases(leases: list[dict[str, Any]]) -> list[Any]:
    """Tasks that two leases held at one instant, or whose attempts do not count up."""
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for lease in leases:
        tasks[lease["task"]].append(lease)
    doubles = []
    for held in tasks.values():
        held.sort(key=lambda lease: lease["from"])
        for earlier, later in itertools.pairwise(held):
            if earlier["to"] > later["from"] or earlier["attempt"] >= later["attempt"]:
                doubles.append((earlier, later))
    return doubles


def end_worker(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        assert worker.wait(HANG) == 0
    finally:
        worker.kill()
        worker.wait()


def kill_worker(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdin is not None
    worker.kill()
    worker.wait()
    worker.stdin.close()


def crash(folder: Path, name: str, cycles: int, kind: type[Crash] = Crash) -> None:
    """Run that many cycles and judge them."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the instants: {seed}")
    rig = kind(folder, seed)
    try:
        asyncio.run(rig.run(cycles))
    finally:
        rig.server.kill()
    rig.verdict(name, cycles)
