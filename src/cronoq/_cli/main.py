"""The entry of `cronoq-trio`: which commands there are, and how an error leaves the process.

Exit codes: 0 done, 1 the start or the run failed, 2 the command line is wrong. Every error is a sentence on stderr that
begins with `Error:`; a traceback is shown only when `CRONOQ_LOG=debug` asks for it.
"""

import os
import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnusedCliTokensError

from cronoq import __version__
from cronoq._cli.contract import print_proto
from cronoq._cli.serving import check, serve
from cronoq.errors import CronoqError

PROGRAM = "cronoq-trio"
DONE, FAILED, USAGE = 0, 1, 2

app = App(
    name=PROGRAM,
    help="A task scheduler server that speaks cronoq.v1 over gRPC.",
    version=f"{PROGRAM} {__version__}",
    version_flags=["--version"],
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(serve)
app.command(check)
app.command(print_proto, name="print-proto")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, `sys.argv` when none is given, and return the exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not tokens:
            app.help_print([])
            return _fail(f"no command; begin with `{PROGRAM} serve`", USAGE)
        result = app(tokens, exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except CycloptsError as error:
        return _fail(f"{_usage(error)} See `{PROGRAM} --help`.", USAGE)
    except CronoqError as error:
        return _fail(str(error), FAILED)
    except BrokenPipeError:
        # The reader of a pipe has seen enough. Without this the interpreter complains again while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    except Exception as error:
        if "debug" in os.environ.get("CRONOQ_LOG", "").lower():
            traceback.print_exc()
        return _fail(f"a fault of the program: {error!r}; CRONOQ_LOG=debug shows where", FAILED)


def _usage(error: CycloptsError) -> str:
    """The parser's sentence, on one line."""
    if isinstance(error, UnusedCliTokensError):
        return f"Unexpected argument: {' '.join(error.unused_tokens or ())}."
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


def _fail(text: str, code: int) -> int:
    for line in text.splitlines() or [""]:
        print(f"Error: {line}", file=sys.stderr)
    return code
