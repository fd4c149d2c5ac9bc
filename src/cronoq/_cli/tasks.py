"""`submit`, `get`, `wait`, `cancel`: what is done with one task."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cronoq._cli import arguments
from cronoq._cli.arguments import Flag, Json, Seconds, Text
from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import DONE, FAILED, usage
from cronoq._cli.running import run, timed_out
from cronoq._cli.task_options import TaskOptions

if TYPE_CHECKING:
    from cronoq.client import Client, Result, Submitted, TaskInfo

HERE = Endpoint()
PLAIN = TaskOptions()
POLL = 1.0
"""Seconds between two looks at a task that somebody waits for at a terminal."""


def submit(
    payload: Text = None,
    /,
    *,
    task: TaskOptions = PLAIN,
    wait: Flag = False,
    wait_timeout: Seconds = None,
    json: Json = False,
    endpoint: Endpoint = HERE,
) -> int:
    """Hand in a task and print its id; with --wait also its output, once it has ended.

    Parameters
    ----------
    payload:
        The payload as text; a lone `-` reads bytes from stdin. Without it, --file and --data the payload is empty.
    wait:
        Wait until the task has ended.
    wait_timeout:
        Seconds to wait at most; the task goes on.
    json:
        Print a JSON document instead: `id`, `duplicate`, and with --wait `result`.
    """
    if wait_timeout is not None and not wait:
        usage("--wait-timeout is of use only with --wait")
    limit = arguments.time_limit("--wait-timeout", wait_timeout)
    content, options = task.described(payload)
    client = endpoint.client()
    return run(lambda: _Submission(endpoint, client, json).run(content, options, wait, limit))


class _Submission:
    """Hands in first and waits then, so that the id is known whatever becomes of the wait."""

    def __init__(self, endpoint: Endpoint, client: "Client", json: bool) -> None:
        self._endpoint = endpoint
        self._client = client
        self._json = json

    async def run(self, content: Any, options: dict[str, Any], wait: bool, limit: float | None) -> int:
        async with self._client as client:
            try:
                submitted = await client.submit(content, **options)
            except TimeoutError as error:
                raise timed_out(self._endpoint, error) from error
            if not self._json:
                print(f"{submitted.id} (duplicate)" if submitted.duplicate else submitted.id, flush=True)
            with self._document(submitted) as results:
                if wait:
                    results.append(await _wait(self._endpoint, client, submitted.id, limit))
        return _ended(results[0], self._json) if results else DONE

    @contextmanager
    def _document(self, submitted: "Submitted") -> Iterator[list["Result"]]:
        """The one JSON document, with the result if it came; without, when waiting failed or was interrupted."""
        results: list[Result] = []
        try:
            yield results
        finally:
            if self._json:
                from cronoq._cli.documents import submitted_document
                from cronoq._cli.printing import document

                document(submitted_document(submitted, *results))


def get(task: str, /, *, key: Flag = False, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """Print what is known of a task, without its output.

    Parameters
    ----------
    task:
        The id of the task.
    key:
        TASK is the key of the task.
    json:
        Print a JSON document instead.
    """
    reference = arguments.task_reference(task, key)
    client = endpoint.client()

    async def work() -> "TaskInfo":
        async with client:
            try:
                return await client.get(reference)
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    info = run(work)
    from cronoq._cli.printing import document, moment, warn_shards
    from cronoq_sansio.inert import escape

    if json:
        from cronoq._cli.documents import info_document

        document(info_document(info))
        return DONE
    attempt = f"{info.attempt} of {info.max_attempts}" if info.max_attempts else str(info.attempt)
    fields: list[tuple[str, object]] = [
        ("id", info.id),
        ("status", info.status),
        ("pool", info.pool),
        ("kind", info.kind),
        ("key", info.key),
        ("tenant", info.tenant),
        ("priority", info.priority or ""),
        ("attempt", attempt),
        *(
            (name, moment(at) if at is not None else "")
            for name, at in (
                ("created", info.created_at_ns),
                ("started", info.started_at_ns),
                ("finished", info.finished_at_ns),
            )
        ),
        ("message", info.message),
        ("output available", "yes" if info.output_available else "no"),
    ]
    for name, value in fields:
        if value != "":
            print(f"{name}: {escape(str(value))}")
    warn_shards(info.unavailable_shards)
    return DONE


def cancel(task: str, /, *, key: Flag = False, json: Json = False, endpoint: Endpoint = HERE) -> int:
    """End a task that has not ended yet: print `cancelled`, or `already finished`.

    Parameters
    ----------
    task:
        The id of the task.
    key:
        TASK is the key of the task.
    json:
        Print a JSON document instead: `cancelled` is true or false.
    """
    reference = arguments.task_reference(task, key)
    client = endpoint.client()

    async def work() -> bool:
        async with client:
            try:
                return await client.cancel(reference)
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    cancelled = run(work)
    if json:
        from cronoq._cli.printing import document

        document({"cancelled": cancelled})
    else:
        print("cancelled" if cancelled else "already finished")
    return DONE


def wait(
    task: str,
    /,
    *,
    key: Flag = False,
    timeout: Seconds = None,
    json: Json = False,
    endpoint: Endpoint = HERE,
) -> int:
    """Wait until a task has ended and print its output, byte for byte; exit code 1 when it did not succeed.

    On a terminal the output is escaped, and a line on stderr shows meanwhile how the task is.

    Parameters
    ----------
    task:
        The id of the task.
    key:
        TASK is the key of the task.
    timeout:
        Seconds to wait at most; without it there is no limit. The task goes on.
    json:
        Print a JSON document instead: `id`, `status`, `output_available`, and `message`, `output` or `output_text`.
    """
    reference = arguments.task_reference(task, key)
    limit = arguments.time_limit("--timeout", timeout)
    client = endpoint.client()

    async def work() -> "Result":
        async with client:
            return await _wait(endpoint, client, reference, limit)

    result = run(work)
    if json:
        from cronoq._cli.documents import result_document
        from cronoq._cli.printing import document

        document(result_document(result))
    return _ended(result, json)


async def _wait(endpoint: Endpoint, client: "Client", reference: int | str, limit: float | None) -> "Result":
    from cronoq._cli.printing import is_terminal

    try:
        if is_terminal(sys.stderr):
            return await _wait_shown(client, reference, limit)
        return await client.wait(reference, limit)
    except TimeoutError as error:
        raise timed_out(endpoint, error, f"task {reference} has not ended within {limit:g} s; it goes on") from error


async def _wait_shown(client: "Client", reference: int | str, limit: float | None) -> "Result":
    """Wait, and show meanwhile how the task is."""
    import anyio
    from rich.console import Console

    from cronoq.errors import ClientError

    results: list[Result] = []
    failures: list[Exception] = []
    began = anyio.current_time()
    with Console(stderr=True).status(f"task {reference}") as line:
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                try:
                    results.append(await client.wait(reference, limit))
                except Exception as error:  # raised below, outside of the group that would wrap it
                    failures.append(error)
                group.cancel_scope.cancel()

            group.start_soon(wait)
            while True:
                await anyio.sleep(POLL)
                try:
                    info = await client.get(reference)
                except (ClientError, TimeoutError):  # the wait itself says what is wrong
                    continue
                waited = int(anyio.current_time() - began)
                line.update(
                    f"task {info.id} is {info.status}, attempt {info.attempt}; {waited} s, Ctrl-C stops waiting"
                )
    if failures:
        raise failures[0]
    return results[0]


def _ended(result: "Result", json: bool) -> int:
    """Print the output, or why there is none; the exit code."""
    from cronoq._cli.printing import is_terminal, note, warn_shards
    from cronoq_sansio.inert import escape

    warn_shards(result.unavailable_shards)
    if not result.ok:
        if not json:
            note(f"Error: task {result.id} {result.status}" + (f": {result.message}" if result.message else ""))
        return FAILED
    if json:
        return DONE
    if result.output is None:
        note(f"task {result.id} succeeded; its output is not kept any more")
    elif is_terminal(sys.stdout):
        if result.output:
            print(escape(result.output.decode("utf-8", "backslashreplace"), keep="\n\t").removesuffix("\n"))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.output)
        sys.stdout.buffer.flush()
    return DONE
