"""`demo` shows the whole product in some seconds: a server, a worker, and tasks of several kinds while they run."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cronoq._cli.arguments import Json
from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import DONE, FAILED, CommandFailure
from cronoq._cli.running import run, timed_out

if TYPE_CHECKING:
    from rich.table import Table

    from cronoq.client import Client, Event

CONFIGURATION = """\
[server]
grpc_addr = "127.0.0.1:0"
http_addr = "127.0.0.1:0"
shutdown_grace_s = 1
[store]
kind = "sqlite"
path = "demo.db"
[[pools]]
name = "default"
"""
START_BOUND = 60.0
"""Seconds until the server must be ready; one is usual."""
STOP_BOUND = 20.0
"""Seconds until it must be gone."""
RUN_BOUND = 120.0
"""Seconds until all tasks must have ended; about five are usual."""
SLOTS = 4
_READY = re.compile(r"^ready: .*?((?:[0-9.]+|\[[0-9a-f:]+\]):[0-9]+)", re.MULTILINE)


def demo(*, json: Json = False) -> int:
    """Start a server in a temporary folder and a worker, hand in tasks of several kinds and show how they run.

    It ends by itself, or with Ctrl-C, and leaves nothing behind.

    Parameters
    ----------
    json:
        Print each change of a status as a JSON object on a line instead, as `watch --all --json` does.
    """
    # Else the server would be left behind.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="cronoq-demo-") as folder:
        try:
            with _server(Path(folder)) as address:
                return _run(Endpoint(server=address), json)
        except KeyboardInterrupt:
            return DONE


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The address of a server that runs in a process of its own until the block ends."""
    (folder / "cronoq.toml").write_text(CONFIGURATION, encoding="utf-8")
    log = folder / "server.log"
    environ = {name: text for name, text in os.environ.items() if name not in ("CRONOQ_CONFIG", "CRONOQ_LOG")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cronoq", "serve", "--config", "cronoq.toml"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # Ctrl-C is for this process, which then stops the server in order
        )
    try:
        yield _ready(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_BOUND)
        finally:
            process.kill()
            process.wait()


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + START_BOUND
    while not (found := _READY.search(log.read_text(encoding="utf-8", errors="replace"))):
        if process.poll() is not None or time.monotonic() > until:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise CommandFailure(f"the server did not start: {said[-1] if said else 'it said nothing'}", FAILED)
        time.sleep(0.02)
    return found[1]


class _Screen(Protocol):
    """Shows tasks while they run."""

    def show(self, event: "Event") -> None:
        """A change of a status."""


def _run(endpoint: Endpoint, json: bool) -> int:
    from cronoq._cli.printing import is_terminal
    from cronoq._cli.watching import json_line, text_line

    expected: dict[int, str] = {}
    ended: dict[int, str] = {}

    async def work() -> None:
        import anyio

        from cronoq._cli.demo_tasks import tasks

        client = endpoint.client()
        try:
            with anyio.fail_after(RUN_BOUND):
                async with (
                    client,
                    tasks.worker(endpoint.target, slots=SLOTS, name="demo"),
                    client.watch(all_transitions=True) as events,
                ):
                    expected.update(await _submit_all(client))
                    async for event in events:
                        screen.show(event)
                        if event.done:
                            ended[event.id] = event.status
                        if len(ended) == len(expected):
                            return
        except TimeoutError as error:
            raise timed_out(endpoint, error, f"the demo was not over within {RUN_BOUND:g} s") from error

    if json:
        screen: _Screen = _Lines(json_line)
        run(work)
    elif is_terminal(sys.stdout):
        from rich.live import Live

        with Live(refresh_per_second=8) as live:
            screen = _LiveTable(live.update, endpoint.address)
            run(work)
    else:
        print(f"a server at {endpoint.address}, a worker with {SLOTS} slots", flush=True)
        screen = _Lines(text_line)
        run(work)
    if not json:
        _say_goodbye(ended)
    return DONE if ended == expected else FAILED


async def _submit_all(client: "Client") -> dict[int, str]:
    """Hand the tasks in; how each must end, by id."""
    from cronoq._cli import demo_tasks as kinds

    expected: dict[int, str] = {}

    async def submit(function: Any, key: str, end: str, *arguments: Any, **options: Any) -> int:
        submitted = await function.with_options(key=key, **options).submit(client, *arguments)
        expected[submitted.id] = end
        return int(submitted.id)

    for number, seconds in enumerate((1.2, 1.6, 2.0), 1):
        await submit(kinds.download, f"download-{number}", "succeeded", seconds)
    await submit(kinds.compute, "compute-1", "succeeded", 1.5)
    await submit(kinds.flaky, "flaky-1", "succeeded", 2)
    await submit(kinds.hopeless, "hopeless-1", "failed", "this address does not exist")
    for name in ("Ada", "Grace", "Edsger"):
        await submit(kinds.greet, f"greet-{name.lower()}", "succeeded", name)
    await submit(kinds.greet, "urgent", "succeeded", "the first in the queue", priority="critical")
    unwanted = await submit(kinds.download, "unwanted", "cancelled", 60.0, priority="low")
    await client.cancel(unwanted)
    return expected


class _Lines:
    """A line for each change."""

    def __init__(self, line: "Callable[[Event], str]") -> None:
        self._line = line

    def show(self, event: "Event") -> None:
        sys.stdout.write(self._line(event))
        sys.stdout.flush()


class _LiveTable:
    """A line for each task, which changes while it runs."""

    def __init__(self, update: "Callable[[Table], None]", address: str) -> None:
        self._update = update
        self._title = f"cronoq-trio demo: a server at {address}, a worker with {SLOTS} slots"
        self._tasks: dict[int, Event] = {}
        self._started: dict[int, int] = {}

    def show(self, event: "Event") -> None:
        self._tasks[event.id] = event
        self._started.setdefault(event.id, event.at_ns)
        self._update(self._table())

    def _table(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        from cronoq._cli.printing import span, status_style
        from cronoq_sansio.clock import SECOND
        from cronoq_sansio.inert import escape

        table = Table("ID", "KEY", "STATUS", "ATTEMPT", "SINCE SUBMIT", "MESSAGE", title=self._title, box=None)
        for event in self._tasks.values():
            taken = (event.at_ns - self._started[event.id]) / SECOND
            status = Text(event.status, style=status_style(event.status))
            table.add_row(
                str(event.id), escape(event.key), status, str(event.attempt), span(taken), Text(escape(event.message))
            )
        return table


def _say_goodbye(ended: dict[int, str]) -> None:
    counts = {status: list(ended.values()).count(status) for status in dict.fromkeys(ended.values())}
    print(f"{len(ended)} tasks: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    print("Next: `cronoq-trio serve`, `cronoq-trio worker MODULE:HANDLERS`, `cronoq-trio submit --help`")
