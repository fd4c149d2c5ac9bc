"""`watch`: changes of status as they happen."""

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cronoq._cli.arguments import Json, Texts, task_id
from cronoq._cli.endpoint import Endpoint
from cronoq._cli.failures import DONE
from cronoq._cli.running import run, timed_out

if TYPE_CHECKING:
    from cronoq.client import Event

HERE = Endpoint()


def watch(
    *,
    pool: Texts = None,
    id: Texts = None,
    key: Texts = None,
    all_transitions: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    json: Json = False,
    endpoint: Endpoint = HERE,
) -> int:
    """Print a line whenever a task ends, until Ctrl-C. A line on stderr says when it has begun.

    Parameters
    ----------
    pool:
        Only tasks of this pool; may be repeated.
    id:
        Only this task; may be repeated.
    key:
        Only the task with this key; may be repeated.
    all_transitions:
        Every change of status, not only the end.
    json:
        Print JSON instead, one object per line.
    """
    ids = [task_id(text, "--id", "; for the key of a task use --key") for text in id or ()]
    client = endpoint.client()
    show = json_line if json else text_line

    async def work() -> None:
        from cronoq._cli.printing import note

        async with client:
            try:
                async with client.watch(pool, ids=ids, keys=key, all_transitions=all_transitions) as events:
                    note(f"Watching {endpoint.address}; Ctrl-C ends")
                    async for event in events:
                        sys.stdout.write(show(event))
                        sys.stdout.flush()
            except TimeoutError as error:
                raise timed_out(endpoint, error) from error

    try:
        run(work)
    except KeyboardInterrupt:
        return DONE
    return DONE


def json_line(event: "Event") -> str:
    """One JSON object."""
    from cronoq._cli.documents import event_document

    return json_module.dumps(event_document(event)) + "\n"


def text_line(event: "Event") -> str:
    """Time, status, id and what else is known."""
    from cronoq._cli.printing import is_terminal, moment, status_style
    from cronoq_sansio.inert import escape

    status = f"{event.status:<13}"
    if is_terminal(sys.stdout) and (style := status_style(event.status)):
        from rich.style import Style

        status = Style.parse(style).render(status)
    words = [moment(event.at_ns), status, str(event.id), f"pool={escape(event.pool)}"]
    if event.key:
        words.append(f"key={escape(event.key)}")
    words.append(f"attempt={event.attempt}")
    if event.message:
        words.append(escape(event.message))
    return " ".join(words) + "\n"
