"""What a person sees at the start, and the line of statistics."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cronoq._runtime import startup
from cronoq._runtime.faults import describe, kinds
from cronoq._runtime.serve import Server
from cronoq._runtime.statistics import Statistics
from cronoq._stores.memory import MemoryStore
from cronoq._stores.sqlite import SqliteStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import (
    AuthSettings,
    PoolSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TlsSettings,
    TokenSettings,
)
from tests.runtime.caller import Caller


def announced(settings: Settings) -> list[str]:
    lines: list[str] = []
    startup.announce(lines.append, settings, "cronoq.toml", "1.2.3", [("127.0.0.1", 4711), ("127.0.0.1", 4712)])
    return lines


def test_the_last_line_is_stable_and_names_the_real_addresses() -> None:
    assert announced(Settings())[-1] == "ready: grpc 127.0.0.1:4711 http 127.0.0.1:4712"
    lines: list[str] = []
    startup.announce(lines.append, Settings(), "built-in", "1", [("::1", 7)])
    assert lines[-1] == "ready: grpc [::1]:7"


def test_the_lines_say_what_and_where() -> None:
    settings = Settings(store=StoreSettings("sqlite", "some.db"), pools=(PoolSettings("mail"), PoolSettings("web")))
    text = "\n".join(announced(settings))
    assert "cronoq-trio 1.2.3" in text and "cronoq.toml" in text and "mail, web" in text
    assert str(Path("some.db").absolute()) in text
    assert "cleartext" in text and "http://127.0.0.1:4712/readyz" in text


def test_tls_is_named_where_it_matters() -> None:
    text = "\n".join(announced(Settings(server=ServerSettings(tls=TlsSettings("c.pem", "k.pem")))))
    assert "127.0.0.1:4711, TLS" in text and "https://127.0.0.1:4712/readyz" in text and "cleartext" not in text


def test_a_memory_store_says_what_it_costs() -> None:
    assert "lost when the server ends" in "\n".join(announced(Settings()))


LONG = TokenSettings("worker", bytes(32))
SHORT = TokenSettings("admin", bytes(32), short=True)
PEM = TlsSettings("c.pem", "k.pem")
EVERYWHERE, LOCAL = ("0.0.0.0", 7070), ("127.0.0.1", 7070)


@pytest.mark.parametrize(
    ("address", "tokens", "tls", "words"),
    [
        (LOCAL, (), None, []),
        (LOCAL, (LONG,), None, []),
        (EVERYWHERE, (), None, ["no credentials are asked for"]),
        (EVERYWHERE, (), PEM, ["no credentials are asked for"]),
        (EVERYWHERE, (LONG,), None, ["tokens travel in clear"]),
        (EVERYWHERE, (LONG,), PEM, []),
        (("::1", 1), (LONG, SHORT, SHORT), None, ["auth.tokens[1], auth.tokens[2]: fewer than 32 characters"]),
        (EVERYWHERE, (SHORT,), None, ["tokens travel in clear", "auth.tokens[0]: fewer than 32"]),
    ],
)
def test_warnings(
    address: tuple[str, int], tokens: tuple[TokenSettings, ...], tls: TlsSettings | None, words: list[str]
) -> None:
    settings = Settings(server=ServerSettings(address, tls=tls), auth=AuthSettings(tokens))
    warned = [line for line in announced(settings) if "WARNING" in line]
    assert len(warned) == len(words)
    assert all(word in line for word, line in zip(words, warned, strict=True))


def test_crowds_of_schedules_are_warned_of_above_the_last_line() -> None:
    lines: list[str] = []
    startup.announce(lines.append, Settings(), "built-in", "1", [("::1", 7)], ("pool 'x': too many",))
    assert lines[-2:] == ["  WARNING        pool 'x': too many", "ready: grpc [::1]:7"]


def test_the_lines_count_the_tokens_by_role() -> None:
    assert any(
        "tokens: 1 admin, 2 worker" in line for line in announced(Settings(auth=AuthSettings((LONG, SHORT, LONG))))
    )
    assert any("no credentials" in line for line in announced(Settings()))


def test_h2_is_for_diagnosis_only() -> None:
    (line,) = startup.warnings(Settings(server=ServerSettings(http2="h2")))
    assert line.startswith("HTTP/2 is served by the library h2, for diagnosis only")
    assert startup.warnings(Settings()) == ()


def test_many_pools_are_counted() -> None:
    settings = Settings(pools=tuple(PoolSettings(f"p{number}") for number in range(1_000)))
    assert any("p7 and 992 more" in line for line in announced(settings))


@pytest.mark.parametrize(("kind", "store"), [("memory", MemoryStore), ("sqlite", SqliteStore)])
def test_the_settings_choose_the_store(kind: str, store: type, tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(kind, str(tmp_path / "x.db")))
    assert type(startup.make_store(settings)) is store


async def test_statistics_are_one_line(
    autojump_clock: MockClock, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(Settings(), server=ServerSettings(grpc_addr=("127.0.0.1", 0), http_addr=None))
    server = Server(settings, MemoryStore(key_retention=SECOND, key_retention_max=1), lambda _bound: None)
    statistics = Statistics(server.lobby, server.terms)
    assert statistics.collect() == {"serving": False, "connections": 0, "connections_in_turns": 0}
    nursery.start_soon(lambda: server.run(signals=False))
    await trio.testing.wait_all_tasks_blocked()
    caller = Caller(server, nursery)
    await caller.submit()
    await caller.submit(pool="no such pool")
    await caller.work(slots=2)
    capsys.readouterr()
    statistics.log()
    assert len(capsys.readouterr().out.splitlines()) == 1
    figures = statistics.collect()
    assert figures["serving"] and figures["ready"] and figures["epoch"] == 1
    assert (figures["connections"], figures["workers"], figures["actions_held"]) == (1, 1, 0)
    assert figures["calls.Tasks.Submit.ok"] == 1
    assert figures["calls.Tasks.Submit.unknown_pool"] == 1
    assert (figures["schedules"], figures["occurrences"], figures["fixed_starts"]) == (0, 0, 0)
    assert figures["dropped.missed"] == figures["dropped.conflict"] == 0
    nursery.cancel_scope.cancel()


def test_who_does_not_listen_to_http_does_not_pay_for_it() -> None:
    code = "import sys, cronoq._runtime.serve, cronoq._cli.prediction; sys.exit('hypercorn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)}).returncode == 0


SERVE_ONCE = """
import sys, trio
from dataclasses import replace
from cronoq._runtime.serve import Server
from cronoq._stores.memory import MemoryStore
from cronoq_sansio.clock import SECOND
from cronoq_sansio.settings import ServerSettings, Settings

async def main():
    settings = replace(Settings(), server=ServerSettings(("127.0.0.1", 0), None, http2=sys.argv[1]))
    bound = []
    server = Server(settings, MemoryStore(key_retention=SECOND, key_retention_max=1), bound.extend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.run(signals=False))
        while not bound:
            await trio.sleep(0.01)
        stream = await trio.open_tcp_stream(*bound[0])
        await stream.send_all(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert await stream.receive_some()
        nursery.cancel_scope.cancel()

trio.run(main)
print([name for name in ("h2", "hpack", "hyperframe", "cronoq_sansio.wire.h2_server") if name in sys.modules])
"""


@pytest.mark.parametrize(("choice", "imported"), [("own", 0), ("h2", 4)])
def test_who_does_not_choose_h2_does_not_pay_for_it(choice: str, imported: int) -> None:
    """A server that speaks HTTP/2; hypercorn, which needs h2 for itself, is only behind the HTTP listener."""
    command = [sys.executable, "-c", SERVE_ONCE, choice]
    ended = subprocess.run(command, env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].count("'") == 2 * imported
    assert ("served by the library h2" in ended.stdout) == (choice == "h2")


def test_a_fault_is_described_without_its_message() -> None:
    try:
        {}["the secret"]
    except KeyError as error:
        text = describe(error)
    assert text.startswith("KeyError at runtime/test_startup.py:") and "secret" not in text
    assert describe(ValueError("secret")) == "ValueError at unknown place"


def test_events_are_named_and_counted_without_their_contents() -> None:
    assert kinds(["secret", "secret", 1]) == "2 × str, int"
    assert kinds("secret") == "str"
