"""`list`, `workers`, `snapshot`: what the server has."""

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cronoq._cli.arguments import Json, Status, Texts, task_id
from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import DONE, usage
from cronoq._cli.running import run, timed_out

if TYPE_CHECKING:
    from cronoq._cli.printing import Table
    from cronoq.client import PoolSnapshot, Snapshot, TaskInfo, TaskPage, WorkerInfo

HERE = Endpoint()
PAGE = 100
LARGEST_PAGE = 1_000
"""What servers give at most (server.md section 1, `max_list`)."""


def list_tasks(
    *,
    pool: Texts = None,
    status: Annotated[list[Status] | None, Parameter(negative="", show_default=False)] = None,
    after: Annotated[str | None, Parameter(show_default=False)] = None,
    limit: int = PAGE,
    all_pages: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    json: Json = False,
    endpoint: Endpoint = HERE,
) -> int:
    """List tasks, in the order of their ids.

    Parameters
    ----------
    pool:
        Only tasks of this pool; may be repeated.
    status:
        Only tasks with this status; may be repeated.
    after:
        Only tasks with ids above this one.
    limit:
        How many at most, 1 to 1000.
    all_pages:
        All of them, page by page; Ctrl-C ends it.
    json:
        Print a JSON document instead: `tasks`, and `next_after` when more follow.
    """
    if not 1 <= limit <= LARGEST_PAGE:
        usage(f"--limit: {limit} is not from 1 to {LARGEST_PAGE}; --all lists everything")
    begin = 0 if after is None else task_id(after, "--after")
    client = endpoint.client()
    listing = _JsonListing() if json else _TextListing()

    async def work() -> None:
        async with client:
            following: int | None = begin
            while following is not None:
                try:
                    page = await client.list_tasks(
                        pools=pool or (),
                        statuses=status or (),
                        after=following,
                        limit=LARGEST_PAGE if all_pages else limit,
                    )
                except TimeoutError as error:
                    raise timed_out(endpoint, error) from error
                listing.add(page)
                following = page.next_after if all_pages else None

    run(work)
    listing.end()
    return DONE


class _TextListing:
    """A table that grows by pages."""

    def __init__(self) -> None:
        from cronoq._cli.printing import Table

        columns = ("ID", "STATUS", "POOL", "KIND", "KEY", "PRIORITY", "TENANT", "ATTEMPT", "AGE")
        self._table: Table = Table(columns, right=("ATTEMPT", "AGE"), status="STATUS")
        self._shards: set[str] = set()
        self._next: int | None = None
        self._count = 0

    def add(self, page: "TaskPage") -> None:
        from cronoq._cli.printing import age, is_terminal

        for info in page.tasks:
            self._table.add(
                info.id,
                info.status,
                info.pool,
                info.kind,
                info.key,
                info.priority or "",
                info.tenant,
                _attempt(info),
                age(info.created_at_ns),
            )
        self._table.flush()
        self._shards.update(page.unavailable_shards)
        self._next = page.next_after
        self._count += len(page.tasks)
        if page.next_after is not None and is_terminal(sys.stderr) and not is_terminal(sys.stdout):
            print(f"\r{self._count:,} tasks …", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        from cronoq._cli.printing import is_terminal, note, warn_shards

        if is_terminal(sys.stderr) and not is_terminal(sys.stdout) and self._count > LARGEST_PAGE:
            print(f"\r{self._count:,} tasks  ", file=sys.stderr)
        warn_shards(sorted(self._shards))
        if self._next is not None:
            note(f"More follow: --after {self._next}, or --all")


class _JsonListing:
    """One document, written as it grows, so that a long listing needs no memory."""

    def __init__(self) -> None:
        self._count = 0
        self._shards: set[str] = set()
        self._next: int | None = None

    def add(self, page: "TaskPage") -> None:
        from cronoq._cli.documents import info_document

        for info in page.tasks:
            text = json_module.dumps(info_document(info), indent=2).replace("\n", "\n    ")
            sys.stdout.write((",\n    " if self._count else '{\n  "tasks": [\n    ') + text)
            self._count += 1
        sys.stdout.flush()
        self._shards.update(page.unavailable_shards)
        self._next = page.next_after

    def end(self) -> None:
        sys.stdout.write("\n  ]" if self._count else '{\n  "tasks": []')
        if self._next is not None:
            sys.stdout.write(f',\n  "next_after": "{self._next}"')
        if self._shards:
            sys.stdout.write(f',\n  "unavailable_shards": {json_module.dumps(sorted(self._shards))}')
        sys.stdout.write("\n}\n")


def _attempt(info: "TaskInfo") -> str:
    return f"{info.attempt}/{info.max_attempts}" if info.max_attempts else str(info.attempt)


def workers(*, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """List the connected workers.

    Parameters
    ----------
    json:
        Print a JSON document instead: `workers`.
    """
    from cronoq._cli.printing import Table, age, document, pairs, warn_shards

    client = endpoint.client()

    async def work() -> "list[WorkerInfo]":
        async with client:
            try:
                return await client.list_workers()
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    found = run(work)
    shards = getattr(found, "unavailable_shards", ())
    if json:
        from cronoq._cli.documents import with_shards, worker_document

        document(with_shards({"workers": [worker_document(worker) for worker in found]}, shards))
        return DONE
    table = Table(("ID", "NAME", "POOL", "BUSY", "LABELS", "CONNECTED"), right=("BUSY",))
    for worker in found:
        busy = f"{worker.busy}/{worker.slots}"
        table.add(worker.id, worker.name, worker.pool, busy, pairs(worker.labels), age(worker.connected_at_ns))
    table.flush()
    warn_shards(shards)
    return DONE


def snapshot(*, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """Print what each pool has now, how its last minute was, and totals since the start of the server.

    HELD slots are kept free for fixed starts, DESIRED is what the autoscaler asks for, RESERVED are fixed starts to
    come. EFFICIENCY is the share of the offered time that successful attempts used, IN ORDER the share of starts that
    no better class waited for, HIT RATE the share of fixed starts in time.

    Parameters
    ----------
    json:
        Print a JSON document instead, with all fields of the contract.
    """
    from cronoq._cli.printing import document, warn_shards

    client = endpoint.client()

    async def work() -> "Snapshot":
        async with client:
            try:
                return await client.snapshot()
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    found = run(work)
    if json:
        from cronoq._cli.documents import snapshot_document

        document(snapshot_document(found))
        return DONE
    now, lately = pool_tables(found.pools)
    now.flush()
    print()
    lately.flush()
    totals = found.totals
    print(
        f"\n{found.live_tasks} live, {found.running} running, {found.pending} pending, "
        f"{found.workers_connected} workers\n"
        f"since the start {totals.submitted} submitted, {totals.dispatched} attempts, {totals.succeeded} succeeded, "
        f"{totals.failed} failed, {totals.dead_lettered} dead-lettered, {totals.cancelled} cancelled, "
        f"{totals.skipped} skipped, {totals.missed} missed, {totals.shed} shed\n"
        f"{totals.retries} retries, {totals.timeouts} timeouts, {totals.lease_expiries} expired leases, "
        f"{totals.stale_completions} stale reports"
    )
    warn_shards(found.unavailable_shards)
    return DONE


def pool_tables(pools: "tuple[PoolSnapshot, ...]") -> "tuple[Table, Table]":
    """What each pool has now, and how its last minute was; a line for each pool."""
    from cronoq._cli.printing import Table, span

    has = ("POOL", "CAPACITY", "BUSY", "HELD", "DESIRED", "PENDING", "RESERVED", "WORKERS", "COST")
    was = (
        "POOL", "STARTED", "SUCCEEDED", "FAILED", "WAIT P50", "WAIT P90", "WAIT P99", "UTIL", "EFFICIENCY", "IN ORDER",
        "HIT RATE",
    )  # fmt: skip
    now, lately = Table(has, right=has[1:]), Table(was, right=was[1:])
    for pool in pools:
        now.add(
            pool.name,
            pool.capacity,
            pool.busy,
            pool.held,
            pool.desired,
            pool.pending,
            pool.reservations,
            pool.workers_connected,
            f"{pool.cost:.6g}",
        )
        lately.add(
            pool.name,
            pool.dispatched,
            pool.succeeded,
            pool.failed,
            *(span(wait) for wait in (pool.wait_p50, pool.wait_p90, pool.wait_p99)),
            f"{pool.utilization:.0%}",
            f"{pool.schedule_efficiency:.0%}",
            f"{pool.priority_adherence:.0%}",
            f"{pool.fixed_start_hit_rate:.0%}",
        )
    return now, lately
