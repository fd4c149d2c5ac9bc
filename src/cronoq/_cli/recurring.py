"""`recurring`: the schedules of a server; `add`, `remove` and, with `list` or no word behind it, the list of them."""

from typing import TYPE_CHECKING

from cronoq._cli import arguments
from cronoq._cli.arguments import Json, Overlap, Text
from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import DONE, REFUSED, CommandFailure
from cronoq._cli.running import run, timed_out
from cronoq._cli.task_options import TemplateOptions

if TYPE_CHECKING:
    from cronoq._client.results import Listing
    from cronoq.client import RecurringInfo

HERE = Endpoint()
PLAIN = TemplateOptions()


def list_schedules(*, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """List the recurring schedules, in the order of their names.

    NEXT is `-` when nothing follows: the expression has no further time, or the server's configuration no longer has
    what the schedule needs.

    Parameters
    ----------
    json:
        Print a JSON document instead: `schedules`.
    """
    from cronoq._cli.printing import Table, document, moment, warn_shards

    client = endpoint.client()

    async def work() -> "Listing[RecurringInfo]":
        async with client:
            try:
                return await client.list_recurring()
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    found = run(work)
    if json:
        from cronoq._cli.documents import recurring_document, with_shards

        schedules = [recurring_document(schedule) for schedule in found]
        document(with_shards({"schedules": schedules}, found.unavailable_shards))
        return DONE
    table = Table(("NAME", "CRON", "TZ", "POOL", "OVERLAP", "NEXT", "LAST TASK"))
    for one in found:
        last = "" if one.last_task_id is None else one.last_task_id
        table.add(one.name, one.cron, one.tz or "UTC", one.pool, one.overlap, moment(one.next_at_ns), last)
    table.flush()
    warn_shards(found.unavailable_shards)
    return DONE


def add_schedule(
    name: str,
    cron: str,
    payload: Text = None,
    /,
    *,
    task: TemplateOptions = PLAIN,
    tz: Text = None,
    overlap: Overlap = "skip",
    json: Json = False,
    endpoint: Endpoint = HERE,
) -> int:
    """Add a schedule, or replace the one of that name: a task at every time that CRON names. Prints nothing.

    A name, an expression, a zone or a task that cannot be used is refused by the server, with exit code 3.

    Parameters
    ----------
    name:
        Names the schedule.
    cron:
        Five fields as in crontab, or six with seconds first; in quotes: "30 2 * * *".
    payload:
        The payload of each task as text; a lone `-` reads bytes from stdin.
    tz:
        Zone of the times in CRON, as in `Europe/Berlin`; without it UTC.
    overlap:
        While the task before still lives: `skip` leaves the new one out, `allow` runs both, `queue` lets it wait,
        `queue_on_success` too, and runs it only if the other one succeeded.
    json:
        Print a JSON document: `name`.
    """
    for word, text in (("NAME", name), ("CRON", cron), ("--tz", tz or "")):
        arguments.sendable(word, text)
    content, options = task.described(payload)
    client = endpoint.client()

    async def work() -> None:
        async with client:
            try:
                await client.add_recurring(name, cron, content, tz=tz, overlap=overlap, **options)
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    run(work)
    if json:
        from cronoq._cli.printing import document

        document({"name": name})
    return DONE


def remove_schedule(name: str, /, *, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """Remove a schedule and print `removed`; tasks that it made stay.

    One that is not there is an error, `no such schedule`, with exit code 3, as an unknown task is for `cancel`.

    Parameters
    ----------
    name:
        Names the schedule.
    json:
        Print a JSON document instead: `removed` is true or false. The exit codes are the same.
    """
    arguments.sendable("NAME", name)
    client = endpoint.client()

    async def work() -> bool:
        async with client:
            try:
                return await client.remove_recurring(name)
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    removed = run(work)
    if json:
        from cronoq._cli.printing import document

        document({"removed": removed})
    elif removed:
        print("removed")
    if not removed:
        raise CommandFailure(f"no such schedule: {name}", REFUSED)
    return DONE
