"""How a command ends: the exit codes, and one sentence with a remedy for each thing that can go wrong."""

from typing import NoReturn

from cronoq.errors import ClientError, CronoqError

PROGRAM = "cronoq-trio"

DONE = 0
FAILED = 1
"""The waited-for task did not succeed; for `serve` and `check`: the start or the run failed."""
USAGE = 2
"""The command line cannot be followed: an unknown option, a bad id, a file that cannot be read."""
REFUSED = 3
"""The server answered, and refused."""
UNREACHABLE = 4
TIMED_OUT = 5
INTERRUPTED = 130
"""Ctrl-C before the answer: what a shell reports for a program that SIGINT ended."""
CLOSED_PIPE = 141
"""Whoever read the output has closed it: what a shell reports for SIGPIPE."""

#: The client speaks to programmers; what it says of its own arguments, said for the command line.
_WORDS = (
    (
        "is the server running there?",
        f"start it with `{PROGRAM} serve`, or name another with --server or CRONOQ_SERVER",
    ),
    ("use TLS: https://… as the target, or tls=True", "it needs TLS: --server https://…"),
    (
        "if the server speaks TLS, use it: https://… as the target, or tls=True",
        "if it speaks TLS, say --server https://…",
    ),
    ("leave out tls=True, credentials and https://", "leave out https:// and the --tls options"),
    ("then use tls=True", "then say --server https://…"),
    ("give its root with credentials=PemPaths(ca=…)", "name the file of its root with --tls-ca"),
    ("connect to the name it was issued for", "say with --tls-domain which name it was issued for"),
)


class CommandFailure(CronoqError):
    """Ends the command with `code`; the text, if there is one, is the sentence for stderr."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def usage(text: str) -> NoReturn:
    """The command line is at fault."""
    raise CommandFailure(text, USAGE)


def spoken(text: str) -> str:
    """What the client says, in words of the command line."""
    for said, ours in _WORDS:
        text = text.replace(said, ours)
    return text


def explain(error: ClientError) -> CommandFailure:
    """What a failed call means here."""
    text = spoken(error.message) or "the server gave no reason"
    match error.code:
        case "unavailable":
            return CommandFailure(f"{error.code}: {text}", UNREACHABLE)
        case "unauthenticated":
            text += " (--token-file, or the variable CRONOQ_TOKEN)"
        case "data_loss":
            text += "; the events were not read fast enough, some are missing"
    return CommandFailure(f"{error.code}: {text}", REFUSED)
