"""Logs: one record per line, level and form from the environment, nothing of callers in them that breaks a line."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from cronoq._observe import logs


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    root = logging.getLogger("cronoq")
    root.handlers.clear()
    root.propagate = True
    root.setLevel(logging.NOTSET)


def written(text: str, speak: object = None) -> list[str]:
    out = io.StringIO()
    announce = logs.configure(text, out)
    log = logs.get_logger("test")
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(f"a {level}", number=1)
    announce("ready: grpc 127.0.0.1:1")
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (logging.INFO, "console")),
        ("debug", (logging.DEBUG, "console")),
        ("json", (logging.INFO, "json")),
        ("WARNING, json", (logging.WARNING, "json")),
        ("console,error", (logging.ERROR, "console")),
    ],
)
def test_the_variable_names_level_and_form(text: str, expected: tuple[int, str]) -> None:
    assert logs.parse(text) == expected


def test_any_other_word_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"CRONOQ_LOG: 'cronoq=debug' is not one of debug, info, .*json"):
        logs.parse("cronoq=debug")


@pytest.mark.parametrize(("level", "records"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels_filter(level: str, records: int) -> None:
    assert len(written(level)) == records + 1, "the start-up line is no record: it is always printed"


def test_the_console_form_prints_start_up_lines_as_they_are() -> None:
    assert written("info")[-1] == "ready: grpc 127.0.0.1:1"


def test_in_json_form_every_line_is_an_object() -> None:
    lines = [json.loads(line) for line in written("json")]
    assert [line["event"] for line in lines] == ["a info", "a warning", "a error", "ready: grpc 127.0.0.1:1"]
    assert lines[0]["part"] == "test" and lines[0]["level"] == "info" and lines[0]["number"] == 1
    assert lines[0]["timestamp"].endswith("Z")


@pytest.mark.parametrize("form", logs.FORMS)
def test_control_characters_of_others_stay_in_their_line(form: str) -> None:
    out = io.StringIO()
    logs.configure(form, out)
    logs.get_logger("worker").info("a worker registered", name="evil\n2026 [error] all is lost\x1b[31m")
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


def test_records_of_the_standard_library_come_in_the_same_form_without_tracebacks() -> None:
    out = io.StringIO()
    logs.configure("json", out)
    log = logging.getLogger("cronoq.store")
    try:
        raise KeyError("secret")
    except KeyError:
        log.exception("the owner did not take the news")
    log.warning("slow: %s", 3)
    log.debug("not asked for")
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["event"], first["level"], first["fault"]) == ("the owner did not take the news", "error", "KeyError")
    assert (second["event"], second["part"]) == ("slow: 3", "store")
    assert "secret" not in out.getvalue() and "Traceback" not in out.getvalue()
