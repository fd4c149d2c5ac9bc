"""`kill -9` of server and workers while tasks wait for others, for permits and for workers with their labels.

The load hands in graphs of eight tasks, each graph in one batch: a diamond whose steps may fail, tasks that run only
after a success, a failure or any end, and one that awaits a key which comes later, from another pool. Tasks name
parents by id or by key, ask for a semaphore of 1 that two pools share and for labels, have deadlines and tenants; some
are cancelled, and some await a key that never comes. In each cycle a worker is killed too.

Beside what `crash.py` promises: a batch is taken whole or not at all; every task ends as its parents' ends and its kind
say, so what was skipped had an edge that could not be met; no task started before its parents had ended; no two live
leases hold the semaphore; labels, deadline and tenant are still those of the submission.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import reference, word
from tests.acceptance.crash import Books, Crash, Load, kill_worker
from tests.acceptance.crash_worker import output_of
from tests.acceptance.ledger import record
from tests.acceptance.server import HANG

SUCCESS, COMPLETE, FAILURE = pb.EDGE_COND_ON_SUCCESS, pb.EDGE_COND_ON_COMPLETE, pb.EDGE_COND_ON_FAILURE
ENDS = {"fail": "failed", "dead": "dead_lettered"}
"""How a task of that kind ends when it may run; of any other kind it succeeds."""
TENANTS = ("acme", "smith", "")
POOLS = (
    '[[pools]]\nname = "default"\nmax = 1000\nawait_unknown_dependencies_s = 600\ntenant_weights = { acme = 3 }\n'
    '[[pools]]\nname = "other"\nmax = 1000\n'
    '[[pools]]\nname = "brief"\nmax = 1000\nawait_unknown_dependencies_s = 1\n'
)
RESOURCES = '[[resources]]\nname = "one"\nkind = "semaphore"\npermits = 1\n'
ZONES = ("zone=a", "zone=b")


@dataclass
class Plan:
    """What was asked for, and what must come of it."""

    spec: pb.TaskSpec
    edges: list[tuple[str, int]] = field(default_factory=list)
    """Keys of the parents, whether they were named by key or by id, and the conditions."""


class GraphBooks(Books):
    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[str, Plan] = {}
        self.cancelled: set[str] = set()
        """Tasks for which Cancel was called; it may have come too late."""
        self.infos: dict[int, pb.TaskInfo] = {}
        """What the last Get of each task brought."""

    def acknowledge_batch(self, specs: list[pb.TaskSpec], reply: pb.SubmitBatchResponse, first: bool) -> None:
        for spec, member in zip(specs, reply.tasks, strict=True):
            self.acknowledge(spec.key, member, first)
        if len({member.duplicate for member in reply.tasks}) != 1:
            self.faults.append(f"a batch was taken in part: {reply}")

    def result(self, result: pb.TaskResult, key: str) -> None:
        succeeded = result.status == pb.TASK_STATUS_SUCCEEDED
        if succeeded and result.output != output_of(key.encode()):
            self.faults.append(f"wrong output of {key}: {result}")
        known = self.results.setdefault(result.id, result)
        if known != result:
            self.faults.append(f"two results of {key}: {known} and {result}")

    def shown(self, info: pb.TaskInfo) -> None:
        spec = self.plans[info.key].spec
        for name in ("pool", "kind", "tenant"):
            if getattr(info, name) != getattr(spec, name):
                self.faults.append(f"{info.key} was submitted as {spec} and is now {info}")
        self.infos[info.id] = info

    # --- what must have come of the plans, once every task has ended

    def judge(self) -> None:
        for key, plan in self.plans.items():
            result = self.results[self.acknowledged[key]]
            impossible = [parent for parent, condition in plan.edges if not self.met(parent, condition)]
            expected = "skipped" if impossible else ENDS.get(plan.spec.kind, "succeeded")
            status = word(result.status)
            if status == "cancelled" and key in self.cancelled:
                continue
            if status != expected:
                self.faults.append(f"{key} ended as {result} instead of {expected}; parents: {self.parents(plan)}")
            elif impossible and not any(repr(parent) in result.message for parent in impossible):
                self.faults.append(f"{key} was skipped because of {impossible}, its message is {result.message!r}")

    def end(self, key: str) -> str:
        """How the task with that key ended; empty when it never came."""
        task_id = self.acknowledged.get(key)
        return word(self.results[task_id].status) if task_id else ""

    def met(self, parent: str, condition: int) -> bool:
        end = self.end(parent)
        if condition == FAILURE:
            return end in ("failed", "dead_lettered")
        return end == "succeeded" if condition == SUCCESS else end != ""

    def parents(self, plan: Plan) -> list[tuple[str, str, int]]:
        return [(parent, self.end(parent), condition) for parent, condition in plan.edges]

    def too_early(self, leases: list[dict[str, Any]]) -> list[str]:
        """Tasks that started before one of their parents had ended.

        The clock of the workers tells for parents that ran to their end. What a caller cancelled has ended at once,
        whatever its worker knows: for all parents the server's own times tell, too.
        """
        starts: dict[int, float] = {}
        ends: dict[int, float] = {}
        for lease in leases:
            starts[lease["task"]] = min(lease["from"], starts.get(lease["task"], lease["from"]))
            ends[lease["task"]] = max(lease["to"], ends.get(lease["task"], 0.0))
        found = []
        for key, plan in self.plans.items():
            child = self.acknowledged[key]
            if child not in starts:
                continue
            for parent_key, _condition in plan.edges:
                parent = self.acknowledged[parent_key]
                if parent in ends and self.end(parent_key) != "cancelled" and ends[parent] > starts[child]:
                    found.append(f"{key} started at {starts[child]}, before {parent_key} ended at {ends[parent]}")
                if self.infos[child].started_unix_ns < self.infos[parent].finished_unix_ns:
                    found.append(f"{self.infos[child]} started before {self.infos[parent]} ended")
        return found


class GraphLoad(Load):
    """Hands in graphs, then the key that each of them awaits."""

    books: GraphBooks

    async def submit_forever(self) -> None:
        while not self.stopping:
            number = next(self.numbers)
            graph = Graph(self.books, number)
            specs = [plan.spec for plan in graph.members()]
            reply, first = await self.until_answered(self.tasks.SubmitBatch, pb.SubmitBatchRequest(tasks=specs))
            self.books.acknowledge_batch(specs, reply, first)
            self.fresh += [spec.key for spec in specs]
            if number % 5 == 0:
                key = random.choice([spec for spec in specs if not spec.resources]).key
                self.books.cancelled.add(key)
                request = pb.CancelRequest(task=reference(key))
                await self.until_answered(self.tasks.Cancel, request)
            if number % 3 == 0:
                await self.submit(graph.orphan())
            await self.submit(graph.late())

    async def submit(self, plan: Plan) -> None:
        reply, first = await self.until_answered(self.tasks.Submit, pb.SubmitRequest(task=plan.spec))
        self.books.acknowledge(plan.spec.key, reply, first)
        self.fresh.append(plan.spec.key)


class Graph:
    """One graph of the load; its tasks are named after its number."""

    def __init__(self, books: GraphBooks, number: int) -> None:
        self.books, self.number = books, number

    def task(self, name: str, *edges: tuple[str, int], by_id: tuple[str, ...] = (), **fields: Any) -> Plan:
        """A task whose parents are tasks of this graph, or whole keys; some of them are named by id."""
        number = self.number
        keys = [(parent if "-" in parent else f"{parent}-{number}", condition) for parent, condition in edges]
        refs = [self.books.acknowledged[key] if key in by_id else key for key, _condition in keys]
        key = f"{name}-{number}"
        spec = pb.TaskSpec(
            key=key,
            payload=key.encode(),
            deps=[
                pb.Dep(target=reference(ref), cond=condition) for ref, (_key, condition) in zip(refs, keys, strict=True)
            ],
            **{"pool": "default", "kind": "work", "tenant": TENANTS[number % 3], "retry": patient(), **fields},
        )
        plan = self.books.plans[key] = Plan(spec, keys)
        return plan

    def members(self) -> Iterator[Plan]:
        """In an order in which parents come late, as a batch allows."""
        step = ("work", "work", "fail", "dead")[self.number % 4]
        zone = dict([random.choice(ZONES).split("=")])
        before = random.choice(list(self.books.acknowledged)[-200:] or [""])
        first: list[tuple[str, int]] = [(before, COMPLETE if self.number % 7 else SUCCESS)] if before else []
        yield self.task("join", ("left", COMPLETE), ("right", COMPLETE), deadline_in_s=self.number % 3, tenant="acme")
        yield self.task("left", ("root", SUCCESS), kind=step, labels=zone, retry=brief())
        yield self.task("right", ("root", SUCCESS), kind="quick", resources={"one": 1}, deadline_in_s=600)
        yield self.task("good", ("left", SUCCESS), labels=zone)
        yield self.task("after", ("good", COMPLETE), kind="quick", resources={"one": 1}, pool="other", tenant="")
        yield self.task("alarm", ("left", FAILURE), pool="other", duration_hint_s=0.02, deadline_in_s=60)
        yield self.task("patient", ("late", SUCCESS), ("root", COMPLETE))
        yield self.task("root", *first, by_id=(before,), labels=zone if self.number % 2 else {})

    def late(self) -> Plan:
        """What `patient` awaits."""
        join = f"join-{self.number}"
        kind = "fail" if self.number % 6 == 0 else "work"
        return self.task("late", (join, COMPLETE), by_id=(join,), pool="other", kind=kind, retry=brief())

    def orphan(self) -> Plan:
        """It awaits what nobody will hand in."""
        return self.task("orphan", ("never", COMPLETE), pool="brief")


def patient() -> pb.RetryPolicy:
    """However many attempts the kills cost, it will succeed."""
    return pb.RetryPolicy(max_attempts=1_000, initial_backoff_s=0.02, multiplier=1, max_backoff_s=0.02)


def brief() -> pb.RetryPolicy:
    """A task of the kind `dead` ends after some attempts; no kills cost so many."""
    return pb.RetryPolicy(max_attempts=8, initial_backoff_s=0.02, multiplier=1, max_backoff_s=0.02)


class GraphCrash(Crash):
    LOAD = GraphLoad
    BOOKS = GraphBooks
    TABLES: ClassVar = {"pools": POOLS, "extra": RESOURCES}
    SUBMITTERS = 12
    WORKERS = (("default,other", ZONES[0]), ("default,other", ZONES[1]), ("default,other",))
    books: GraphBooks

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.kills: dict[Path, float] = {}
        """When the worker of a ledger was killed."""
        self.blocked: list[int] = []
        """Blocked tasks that the restarts met, up to a page."""
        self.waiting: list[int] = []
        """Ready ones."""

    async def disturb(self, load: Load) -> None:
        """Kill a worker and start its like."""
        index = len(self.kills) % len(self.WORKERS)
        ledger = self.ledgers[len(self.kills)]
        self.kills[ledger] = time.monotonic()
        kill_worker(self.workers[index])
        self.workers[index] = self.start_worker(*self.WORKERS[index])

    async def look(self, load: Load) -> None:
        for status, counts in ((pb.TASK_STATUS_BLOCKED, self.blocked), (pb.TASK_STATUS_READY, self.waiting)):
            page = pb.ListTasksRequest(statuses=[status], limit=1_000)
            counts.append(len((await load.tasks.ListTasks(page, timeout=HANG)).tasks))

    def entries(self, ledger: Path) -> list[dict[str, Any]]:
        """The streams of a killed worker broke when it was killed."""
        found = super().entries(ledger)
        at = self.kills.get(ledger)
        if at is not None:
            streams = sorted({entry["stream"] for entry in found})
            found += ({"at": at, "event": "broken", "stream": stream} for stream in streams)
        return found

    def verdict(self, name: str, cycles: int) -> None:
        books, leases = self.books, self.leases()
        if all(task_id in books.results for task_id in books.acknowledged.values()):
            books.judge()
            books.faults += books.too_early(leases)
            books.faults += self.foreign(leases)
            books.faults += two_at_once(books, leases)
        statuses = Counter(word(result.status) for result in books.results.values())
        record(
            f"{name}: graphs",
            ends=dict(statuses),
            edges=sum(len(plan.edges) for plan in books.plans.values()),
            leases_of_the_semaphore=len(holders(books, leases)),
            blocked_at_restarts=self.blocked,
            ready_at_restarts=self.waiting,
        )
        super().verdict(name, cycles)
        assert set(statuses) == {"succeeded", "failed", "dead_lettered", "skipped", "cancelled"}, statuses
        assert sum(self.blocked) and len(self.kills) == cycles

    def foreign(self, leases: list[dict[str, Any]]) -> list[str]:
        """Leases at workers without the labels, or with another deadline than the attempt before."""
        specs = {self.books.acknowledged[key]: plan.spec for key, plan in self.books.plans.items()}
        deadlines: dict[int, int] = {}
        found = []
        for lease in leases:
            spec = specs[lease["task"]]
            number = self.ledgers.index(lease["ledger"]) % len(self.WORKERS)
            if not {"=".join(label) for label in spec.labels.items()} <= set(self.WORKERS[number][1:]):
                found.append(f"{spec.key} needs {spec.labels} and ran at worker {number}")
            if deadlines.setdefault(lease["task"], lease["deadline"]) != lease["deadline"]:
                found.append(f"{spec.key} had the deadline {deadlines[lease['task']]} and then {lease['deadline']}")
            if spec.HasField("deadline_in_s") != bool(lease["deadline"]):
                found.append(f"{spec.key} was submitted with {spec.deadline_in_s} and leased with {lease['deadline']}")
        return found


def holders(books: GraphBooks, leases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The leases that held the semaphore, by time."""
    tasks = {books.acknowledged[key] for key, plan in books.plans.items() if plan.spec.resources}
    return sorted((lease for lease in leases if lease["task"] in tasks), key=lambda lease: lease["from"])


def two_at_once(books: GraphBooks, leases: list[dict[str, Any]]) -> list[str]:
    """Leases that held the semaphore while an earlier one did. Those tasks are never cancelled."""
    found = []
    before: dict[str, Any] | None = None
    for lease in holders(books, leases):
        if before is not None and before["to"] > lease["from"]:
            found.append(f"two hold the semaphore: {before} and {lease}")
        if before is None or lease["to"] > before["to"]:
            before = lease
    return found
