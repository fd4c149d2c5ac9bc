"""The entry of `cronoq-trio`: which commands there are, and how an error leaves the process.

The exit codes are those of `failures`. Every error is a sentence on stderr that begins with `Error:`; a traceback is
shown only when `CRONOQ_LOG=debug` asks for it.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnusedCliTokensError

from cronoq import __version__
from cronoq._cli.completion import completion
from cronoq._cli.contract import print_proto
from cronoq._cli.demo import demo
from cronoq._cli.failures import CLOSED_PIPE, DONE, FAILED, INTERRUPTED, PROGRAM, USAGE, CommandFailure
from cronoq._cli.listing import list_tasks, snapshot, workers
from cronoq._cli.preview import preview
from cronoq._cli.recurring import add_schedule, list_schedules, remove_schedule
from cronoq._cli.serving import check, init, serve
from cronoq._cli.tasks import cancel, get, submit, wait
from cronoq._cli.watching import watch
from cronoq._cli.working import worker
from cronoq.errors import CronoqError

app = App(
    name=PROGRAM,
    help="A task scheduler that speaks cronoq.v1 over gRPC: server, workers, and everything that is done with tasks.",
    version=f"{PROGRAM} {__version__}",
    version_flags=["--version"],
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(serve)
app.command(check)
app.command(init)
app.command(submit)
app.command(get)
app.command(wait)
app.command(watch)
app.command(list_tasks, name="list")
app.command(cancel)
app.command(workers)
app.command(snapshot)
recurring = App(name="recurring", version_flags=[])
recurring.default(list_schedules)
recurring.command(list_schedules, name="list")
recurring.command(add_schedule, name="add")
recurring.command(remove_schedule, name="remove")
recurring.command(preview)
app.command(recurring)
app.command(worker)
app.command(demo)
app.command(print_proto, name="print-proto")
app.command(completion)

#: What writing to stdout may meet: a full disk, a terminal that is gone.
OUTPUT_TROUBLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)
#: Options that may stand before the command too, and whether a value follows.
GLOBAL_OPTIONS = {
    "--server": True,
    "--token-file": True,
    "--tls-ca": True,
    "--tls-cert": True,
    "--tls-key": True,
    "--tls-domain": True,
    "--json": False,
}
#: What to say when there are too many words behind these, because the shell has split an expression.
QUOTES: dict[tuple[str, ...], str] = {
    ("recurring", "add"): ' CRON needs quotes, as in "30 2 * * *", and so does a payload with spaces.',
    ("recurring", "preview"): ' CRON needs quotes, as in "30 2 * * *".',
}


def commands() -> dict[str, App]:
    """Every command by its words, those of a group behind it: `recurring`, `recurring add`."""
    found: dict[str, App] = {}
    for name, command in app.resolved_commands().items():
        if not name.startswith("-"):
            found[name] = command
            inner = command.resolved_commands().items() if command is recurring else ()
            found |= {f"{name} {word}": each for word, each in inner if not word.startswith("-")}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, `sys.argv` when none is given, and return the exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _never_fail_to_encode()
        if not tokens:
            app.help_print([])
            return _fail(f"no command; begin with `{PROGRAM} serve`", USAGE)
        result = app(_in_order(tokens), exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except CycloptsError as error:
        return _fail(f"{_usage(error)} See `{PROGRAM} --help`.", USAGE)
    except CommandFailure as error:
        return _fail(str(error), error.code)
    except CronoqError as error:
        return _fail(str(error), FAILED)
    except BrokenPipeError:
        _drop_output()  # the reader of a pipe has seen enough
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno not in OUTPUT_TROUBLE or error.filename is not None:
            return _fault(error)
        _drop_output()
        return _fail(f"the output cannot be written: {error.strerror}", FAILED)
    except Exception as error:
        return _fault(error)


def _fault(error: Exception) -> int:
    """A fault of ours: no traceback unless it is asked for."""
    if "debug" in os.environ.get("CRONOQ_LOG", "").lower():
        traceback.print_exc()
    return _fail(f"a fault of the program: {error!r}; CRONOQ_LOG=debug shows where", FAILED)


def _in_order(tokens: list[str]) -> list[str]:
    """The options that stand before the command, behind it."""
    at = 0
    while at < len(tokens) and tokens[at].partition("=")[0] in GLOBAL_OPTIONS:
        name, equals, _ = tokens[at].partition("=")
        at += 2 if GLOBAL_OPTIONS[name] and not equals else 1
    end = at + (2 if " ".join(tokens[at : at + 2]) in commands() else 1)
    return tokens[at:end] + tokens[:at] + _stdin(" ".join(tokens[at:end]), tokens[end:])


def _stdin(command: str, tokens: list[str]) -> list[str]:
    """`submit -` and `submit --file -` as `--file=-`: the parser takes a lone `-` for an option without a name."""
    found: list[str] = []
    for at, token in enumerate(tokens):
        if token == "--" or command not in ("submit", "recurring add"):
            return found + tokens[at:]
        if token != "-":
            found.append(token)
            continue
        if found[-1:] == ["--file"]:
            found.pop()
        found.append("--file=-")
    return found


def _drop_output() -> None:
    """What is still buffered goes nowhere; without this the interpreter complains of it again while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _never_fail_to_encode() -> None:
    """A terminal that is not UTF-8 gets escapes for what it cannot show, and no error; closed streams take anything."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _usage(error: CycloptsError) -> str:
    """The parser's sentence, on one line."""
    if isinstance(error, UnusedCliTokensError):
        text = f"Unexpected argument: {' '.join(error.unused_tokens or ())}."
        return f"{text}{QUOTES.get(tuple(error.command_chain or ()), '')}"
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


def _fail(text: str, code: int) -> int:
    from cronoq_sansio.inert import escape

    for line in text.splitlines() or [""]:
        print(f"Error: {escape(line)}", file=sys.stderr)
    return code
