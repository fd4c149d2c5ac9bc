"""`worker` runs the handlers of a module until it is told to stop."""

import importlib
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from cronoq._cli import arguments
from cronoq._cli.arguments import Text, Texts
from cronoq._cli.endpoint import Endpoint, told_warnings
from cronoq._cli.failures import DONE, FAILED, INTERRUPTED, CommandFailure, explain, spoken, usage

if TYPE_CHECKING:
    from cronoq._client.worker_group import TasksWorker
    from cronoq.worker import Worker

HERE = Endpoint()
Loop = Literal["trio", "asyncio"]


def worker(
    handlers: str,
    /,
    *,
    pool: Texts = None,
    slots: int = 1,
    name: Text = None,
    label: Texts = None,
    grace: float = 10.0,
    loop: Annotated[Loop, Parameter(show_choices=False)] = "trio",
    endpoint: Endpoint = HERE,
) -> int:
    """Run handlers for tasks until Ctrl-C or SIGTERM; then running ones may finish. A second signal cuts them off.

    What happens is logged on stderr. When the server goes away the worker connects again by itself.

    Parameters
    ----------
    handlers:
        MODULE:NAME, where NAME is a `cronoq.handlers.Tasks` registry, or a function that takes a lease. The module is
        looked for in the present folder too. Without NAME it is `tasks`.
    pool:
        Serve only this pool of the registry; may be repeated. For a function: its pool, `default` without it.
    slots:
        Handlers that may run at the same time, for each pool.
    name:
        The name that the server shows; without it that of the host and the number of the process.
    label:
        NAME=VALUE that the worker offers; tasks may ask for it. May be repeated.
    grace:
        Seconds that running handlers may go on after the first signal.
    loop:
        The event loop for async handlers: `trio` or `asyncio`.
    """
    if slots < 1:
        usage(f"--slots: {slots} is below 1")
    arguments.time_limit("--grace", grace)
    connection = endpoint.arguments()
    connection.update(
        name=f"{os.uname().nodename if hasattr(os, 'uname') else 'worker'}-{os.getpid()}" if name is None else name,
        labels=arguments.named_values("--label", label),
        grace=grace,
        slots=slots,
    )
    found = load(handlers)
    _log_to_stderr()
    try:
        with told_warnings():
            made = _make(found, handlers, endpoint.target, pool, connection)
    except (TypeError, ValueError) as error:
        usage(f"{handlers}: {error}")
    return _serve(made, loop, endpoint)


def load(reference: str) -> Any:
    """What `MODULE:NAME` names; a usage error with the reason when it cannot be had."""
    module_name, _, name = reference.partition(":")
    name = name or "tasks"
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        usage(f"{reference!r} is not MODULE:NAME, like `app.tasks:tasks`")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a module may do anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            usage(f"there is no module {error.name!r}, neither in {os.getcwd()} nor installed")
        if "debug" in os.environ.get("CRONOQ_LOG", "").lower():
            traceback.print_exc()
        usage(f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}{_where(error)}")
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            usage(f"module {module_name!r} has no {name!r}")
    return found


def _where(error: BaseException) -> str:
    """The line of the user's that has raised it."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if not frames or frames[-1].filename == __file__:
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _make(
    found: Any, reference: str, target: str, pools: list[str] | None, options: dict[str, Any]
) -> "TasksWorker | Worker":
    from cronoq.handlers import TaskFunction, Tasks
    from cronoq.worker import Worker

    if isinstance(found, Tasks):
        return found.worker(target, pools=pools, **options)
    if isinstance(found, TaskFunction):
        usage(f"{reference}: this is one function of a registry; name the registry, the `Tasks()` it was added to")
    if not callable(found) or isinstance(found, type):
        usage(f"{reference}: neither a `cronoq.handlers.Tasks` registry nor a function, but {type(found).__name__}")
    if pools and len(pools) > 1:
        usage("--pool: a function serves one pool; a registry may serve several")
    return Worker(target, pools[0] if pools else "default", found, **options)


def _log_to_stderr() -> None:
    """What the worker has to say, a line each; CRONOQ_LOG=debug says more."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ"))
    root = logging.getLogger()
    if not root.handlers:  # else the module has set up its own log
        root.addHandler(handler)
    root.setLevel("DEBUG" if "debug" in os.environ.get("CRONOQ_LOG", "").lower() else "INFO")


class _Formatter(logging.Formatter):
    """UTC, in the words of the command line, harmless to a terminal; tracebacks only of handlers."""

    converter = staticmethod(time.gmtime)

    def formatMessage(self, record: logging.LogRecord) -> str:
        from cronoq_sansio.inert import escape

        return escape(spoken(super().formatMessage(record)))


def _serve(made: "TasksWorker | Worker", loop: Loop, endpoint: Endpoint) -> int:
    import anyio

    from cronoq.errors import ClientError

    forced = False

    async def work() -> None:
        nonlocal forced
        failures: list[ClientError] = []
        ends: list[BaseException] = []
        cut = anyio.CancelScope()
        async with anyio.create_task_group() as group:

            async def serve() -> None:
                try:
                    with cut:
                        await made.run()
                except ClientError as error:  # raised below, outside of the group that would wrap it
                    failures.append(error)
                except (SystemExit, KeyboardInterrupt) as error:  # of a handler; its failure has been reported
                    ends.append(error)
                group.cancel_scope.cancel()

            async def announce() -> None:
                try:
                    await made.wait_registered()
                except (ClientError, RuntimeError):
                    return
                _say(f"ready: worker of {endpoint.address}")

            # The receiver is there before the worker, so that no signal finds the default action.
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                group.start_soon(serve)
                group.start_soon(announce)
                count = 0
                async for _ in signals:
                    count += 1
                    if count == 1:
                        _say(f"stopping: {made.running} running may finish; a second signal cuts them off")
                        group.start_soon(made.stop)
                    elif count == 2:
                        forced = True
                        _say("cutting off what runs; a third signal does not wait for handlers in threads")
                        cut.cancel()
                    else:
                        os._exit(INTERRUPTED)
        if failures:
            raise failures[0]
        if ends:
            text = spoken(f"{type(ends[0]).__name__}: {ends[0]}".removesuffix(": "))
            raise CommandFailure(f"a handler ended the worker ({text}); handlers fail by raising Exception", FAILED)

    try:
        anyio.run(work, backend=loop)
    except ClientError as error:
        raise explain(error) from error
    return INTERRUPTED if forced else DONE


def _say(text: str) -> None:
    logging.getLogger("cronoq.client").info("%s", text)
