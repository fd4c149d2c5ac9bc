"""Logs: one record per line on stdout.

The variable `CRONOQ_LOG` holds up to two words, separated by a comma: a level (`debug`, `info`, `warning`, `error`;
default `info`) and a form (`console` or `json`; default `console`, also when stdout is not a terminal, because the
start-up lines are for people and the form of a log should not depend on where it goes). In JSON form the start-up
lines are records too, so that every line is one JSON object. Colours only on a terminal. Payloads, outputs, keys and
credentials are never logged.
"""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, TextIO, cast

import structlog

VARIABLE = "CRONOQ_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMS = ("console", "json")


class Log(Protocol):
    """What the code uses of a logger: an event in plain words, then fields."""

    def debug(self, event: str, **fields: Any) -> Any:
        """For whoever hunts a fault."""

    def info(self, event: str, **fields: Any) -> Any:
        """Worth knowing, nothing to do."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Somebody should look; the field `remedy` says at what."""

    def error(self, event: str, **fields: Any) -> Any:
        """Something was lost or refused that should not have been."""


def get_logger(part: str) -> Log:
    """A logger whose records carry `part`: which part of the server speaks."""
    return cast(Log, structlog.get_logger(part=part))


def parse(text: str) -> tuple[int, str]:
    """Level and form from the text of `CRONOQ_LOG`. Raises `ValueError` with one sentence."""
    level, form = logging.INFO, "console"
    for word in text.lower().replace(" ", "").split(","):
        if word in LEVELS:
            level = LEVELS[word]
        elif word in FORMS:
            form = word
        elif word:
            allowed = ", ".join((*LEVELS, *FORMS))
            raise ValueError(f"{VARIABLE}: {word!r} is not one of {allowed}")
    return level, form


def configure(text: str | None = None, stream: TextIO | None = None) -> Callable[[str], None]:
    """Set up logging from `text`, by default the variable `CRONOQ_LOG`; returns what prints a start-up line.

    Raises `ValueError` with one sentence when the text names something else than a level or a form.
    """
    level, form = parse(os.environ.get(VARIABLE, "") if text is None else text)
    out = sys.stdout if stream is None else stream
    renderer: Any
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), sort_keys=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _one_line,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    _take_over_standard_logging(level)
    if form == "json":
        start = get_logger("start")
        return lambda line: cast(None, start.info(line.strip()))

    def announce(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    return announce


class _Forward(logging.Handler):
    """Records of the standard library's loggers, ours among them, in the same form and without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, str] = {}
        if record.exc_info and record.exc_info[1] is not None:
            fields["fault"] = type(record.exc_info[1]).__name__
        level = max(
            (name for name in LEVELS if LEVELS[name] <= record.levelno), key=LEVELS.__getitem__, default="debug"
        )
        getattr(get_logger(record.name.rpartition(".")[2]), level)(record.getMessage(), **fields)


def _take_over_standard_logging(level: int) -> None:
    root = logging.getLogger("cronoq")
    root.handlers[:] = [_Forward()]
    root.setLevel(level)
    root.propagate = False


def _one_line(_logger: object, _method: str, fields: Any) -> Any:
    """Line breaks and control characters that came from outside (a worker's name, say) stay in their record."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[name] = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value)
    return fields
