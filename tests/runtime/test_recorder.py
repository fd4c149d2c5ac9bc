"""Every term of a server is recorded and can be replayed; what goes wrong with a recording does not touch the term."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cronoq._runtime import recording_files
from cronoq._runtime.recording_files import Recordings
from cronoq._stores.base import Fenced
from cronoq._stores.memory import MemoryStore
from cronoq.errors import StartError
from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.recording import format as recording_format
from cronoq_sansio.recording.replay import RecordingReport, replay_recording
from cronoq_sansio.recording.writer import RecordingWriter
from cronoq_sansio.wire import pb
from tests.runtime.house import DurableStore, House
from tests.runtime.test_server import break_on_key

MIB = 1 << 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Ten times as fast as others: the file is closed by a thread, which no clock of a test drives.

    That thread gets as long as it needs on a busy machine.
    """
    monkeypatch.setattr(limits, "RECORDING_CLOSE", 600 * SECOND)
    return MockClock(rate=10)


def replay(path: Path) -> RecordingReport:
    return replay_recording(path.read_text("ascii").splitlines(keepends=True))


async def stop(house: House) -> None:
    house.server.request_stop()
    while house.code is None and house.error is None:
        await trio.sleep(0.01)


def is_over(path: Path) -> bool:
    return '"end":' in path.read_text()


async def ended(path: Path) -> None:
    """Until the last line is in the file."""
    while not is_over(path):
        await trio.sleep(0.01)


async def work(house: House) -> None:
    """A task goes in and its result comes out; another one stays."""
    client, other = house.caller(), house.caller()
    worker = await other.work(slots=1)
    reply = await client.submit(payload=b"canary in", key="k")
    lease = await worker.next("lease")
    worker.say(complete=pb.Complete(lease=lease.lease, output=b"canary out"))
    await client.wait(reply.id)
    await client.submit(payload=b"canary", pool="nowhere")
    await client.call("Admin/Snapshot", pb.Empty(), pb.SnapshotResponse)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_term_is_replayed_to_the_same_state(
    clock: MockClock, nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str], durable: bool
) -> None:
    path = tmp_path / "rec.jsonl"
    store = DurableStore() if durable else MemoryStore(key_retention=3_600 * SECOND, key_retention_max=1_000)
    house = await House(nursery, store, recordings=Recordings(str(path), MIB)).open()
    await work(house)
    await stop(house)
    report = replay(path)
    assert report.outcome == "same" and report.state and report.steps >= 6, report.text()
    assert "the server was stopped" in report.text()
    assert capsys.readouterr().out.count("the recording is complete") == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "canary" not in path.read_text()


async def test_a_fault_is_recorded_and_the_next_term_has_a_file_of_its_own(
    clock: MockClock, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    with monkeypatch.context() as patch:
        break_on_key(patch, "bug")
        await work(house)
        await house.caller().submit(key="bug", payload=b"secret")
        await ended(path)
        report = replay(path)
        assert (report.outcome, report.exit_code) == ("fault reproduced", 3), report.text()
        assert "ZeroDivisionError" in report.detail and "recorded: ZeroDivisionError at" in report.detail
        assert '"is":"CallReceived"' in path.read_text().splitlines()[-2] and "secret" not in path.read_text()
    assert "does not now" in replay(path).detail
    while not house.server.lobby.serving:
        await trio.sleep(0.1)
    await house.caller().submit(key="k")
    await stop(house)
    second = replay(tmp_path / "rec.2.jsonl")
    assert second.outcome == "same" and second.events >= 2, second.text()
    assert '"load"' in (tmp_path / "rec.2.jsonl").read_text(), "it begins with what the store held"


async def test_a_term_whose_store_was_lost_says_so(clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    path, store = tmp_path / "rec", DurableStore()
    house = await House(nursery, store, recordings=Recordings(str(path), MIB)).open()
    store.trouble = Fenced("somebody took over")
    await house.caller().submit()
    store.trouble = None
    while not (tmp_path / "rec.2").exists():
        await trio.sleep(0.1)
    report = replay(path)
    assert report.outcome == "same" and "ended, " in report.detail and "took over" in report.detail


async def test_a_forced_stop_is_an_end_too(clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    worker = await house.caller().work(slots=1)
    await house.caller().submit()
    await worker.next("lease")
    house.server.request_stop()
    await stop(house)
    report = replay(path)
    assert report.outcome == "same" and "ended, the stop was forced" in report.detail


async def test_at_its_bound_a_recording_stops_and_the_term_goes_on(
    clock: MockClock, nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), 8_192)).open()
    client = house.caller()
    for _ in range(20):
        await client.submit()
    assert (await client.submit()).id
    await stop(house)
    assert path.stat().st_size <= 8_192
    report = replay(path)
    assert report.outcome == "same" and "bound, it has as many bytes as it may, 8192" in report.text()
    assert 3 < report.steps < 20 and report.state
    out = capsys.readouterr().out
    assert out.count("the recording has stopped, the term goes on without it") == 1


def stuck(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[], None]) -> None:
    """A disk with trouble: `wrong` is called before each write."""
    write = os.write

    def trouble(descriptor: int, data: Any) -> int:
        wrong()
        return write(descriptor, data)

    monkeypatch.setattr(recording_files.os, "write", trouble)


async def test_a_disk_that_cannot_keep_up_ends_the_recording_alone(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    released = threading.Event()
    stuck(monkeypatch, lambda: assert_true(released.wait(30)))
    monkeypatch.setattr(limits, "MAX_RECORDING_UNWRITTEN", 4_000)
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    client = house.caller()
    for _ in range(20):
        assert (await client.submit()).id
    released.set()
    await stop(house)
    report = replay(path)
    assert report.outcome == "same" and report.steps < 20, report.text()
    assert "cut, the disk cannot keep up" in report.detail
    assert "the disk cannot keep up" in capsys.readouterr().out


def assert_true(found: bool) -> None:
    assert found


def full() -> None:
    raise OSError(28, "No space left on device")


def test_a_file_that_is_closed_when_a_pause_ends_is_closed_nevertheless(tmp_path: Path) -> None:
    file = Recordings(str(tmp_path / "rec"), MIB).next()
    assert file is not None

    class JustTooLate(threading.Event):
        """Set, and the writing thread woken, between the end of a pause and what that thread does next."""

        def wait(self, timeout: float | None = None) -> bool:
            assert file is not None
            self.set()
            file._wake.set()
            return False

    file._closing = JustTooLate()
    file.add("last\n")
    assert file._thread is not None
    file._thread.join(30)
    assert not file._thread.is_alive() and (tmp_path / "rec").read_text() == "last\n"


async def test_a_full_disk_ends_the_recording_alone(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stuck(monkeypatch, full)
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    client = house.caller()
    while not house.server.terms._recorder._file.trouble:  # type: ignore[union-attr]
        await trio.sleep(0.01)
    for _ in range(3):
        assert (await client.submit()).id
    await stop(house)
    out = capsys.readouterr().out
    assert out.count("it cannot be written: No space left on device") == 1
    assert "the end of the recording is missing" in out
    assert path.read_bytes() == b""


def deleted(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.unlink()
    path.write_text("somebody else's")


@pytest.mark.parametrize("lose", [deleted, replaced])
async def test_a_file_that_is_gone_ends_the_recording_alone(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lose: Callable[[Path], None],
) -> None:
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    client = house.caller()
    lose(path)
    assert (await client.submit()).id
    while not house.server.terms._recorder._file.trouble:  # type: ignore[union-attr]
        await trio.sleep(0.01)
    assert (await client.submit()).id
    await stop(house)
    out = capsys.readouterr().out
    assert out.count("it cannot be written: its file was deleted, moved or replaced") == 1
    assert "the recording is complete" not in out
    assert not path.exists() or path.read_text() == "somebody else's"


@pytest.mark.parametrize("lose", [deleted, replaced])
async def test_a_file_that_is_gone_at_the_end_is_not_called_complete(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lose: Callable[[Path], None],
) -> None:
    path = tmp_path / "rec.jsonl"
    house = await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
    await house.caller().submit()
    lose(path)
    await stop(house)
    out = capsys.readouterr().out
    assert "its file was deleted, moved or replaced" in out and "the recording is complete" not in out


def test_what_replaced_an_unused_file_is_not_removed(tmp_path: Path) -> None:
    recordings = Recordings(str(tmp_path / "rec"), MIB)
    replaced(tmp_path / "rec")
    recordings.discard()
    assert (tmp_path / "rec").read_text() == "somebody else's"


@pytest.mark.parametrize("method", ["head", "beginning", "begun", "handed_in", "handled", "end"])
async def test_a_fault_of_the_recording_is_none_of_the_term(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
) -> None:
    def broken(*_arguments: Any) -> str:
        raise ValueError("a secret")

    monkeypatch.setattr(RecordingWriter, method, broken)
    house = await House(nursery, DurableStore(), recordings=Recordings(str(tmp_path / "rec"), MIB)).open()
    assert (await house.caller().submit()).id
    await stop(house)
    assert house.code == 0
    out = capsys.readouterr().out
    assert "ValueError at" in out and "secret" not in out
    if method not in ("head", "end"):
        report = replay(tmp_path / "rec")
        assert report.outcome == "same" and "cut, a fault of the recording" in report.detail, report.text()


async def test_more_open_calls_than_a_replay_takes_end_the_recording_alone(
    clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(recording_format, "MAX_RECORDED_OPEN", 0)
    house = await House(nursery, DurableStore(), recordings=Recordings(str(tmp_path / "rec"), MIB)).open()
    assert (await house.caller().submit()).id
    await stop(house)
    assert house.code == 0
    sentence = "more than 0 calls and workers are open, which no replay takes"
    assert sentence in capsys.readouterr().out
    report = replay(tmp_path / "rec")
    assert report.outcome == "same" and f"cut, {sentence}" in report.detail


async def test_a_fault_of_recovery_is_recorded(
    clock: MockClock, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rec"
    with monkeypatch.context() as patch:

        def broken(engine: Engine, now: int) -> Any:
            raise KeyError(now)

        patch.setattr(Engine, "begin", broken)
        await House(nursery, DurableStore(), recordings=Recordings(str(path), MIB)).open()
        await ended(path)
        report = replay(path)
        assert report.exit_code == 3 and "recovery raises KeyError" in report.detail
    assert "fault of the server during recovery" in replay(path).detail


# --- files


def test_names_are_the_next_free_ones_and_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limits, "MAX_RECORDING_FILES", 4)
    monkeypatch.chdir(tmp_path)
    Path("a.b.jsonl").write_text("kept")
    Path("a.b.3.jsonl").write_text("kept")
    recordings = Recordings("a.b.jsonl", MIB)
    for name in ("a.b.2.jsonl", "a.b.4.jsonl"):
        file = recordings.next()
        assert file is not None and file.path == name
        file.add("x\n")
        file.close()
        assert Path(name).read_text() == "x\n"
    assert recordings.next() is None
    assert "there are 4 files of that name already" in capsys.readouterr().out
    assert Path("a.b.jsonl").read_text() == Path("a.b.3.jsonl").read_text() == "kept"
    with pytest.raises(StartError, match="there are 4 files of that name already"):
        Recordings("a.b.jsonl", MIB)


def test_a_folder_that_is_gone_costs_the_recording_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    recordings = Recordings(str(folder / "rec"), MIB)
    recordings.discard()
    folder.rmdir()
    assert recordings.next() is None
    assert "this term is not recorded" in capsys.readouterr().out


def test_a_file_that_was_not_used_is_removed(tmp_path: Path) -> None:
    recordings = Recordings(str(tmp_path / "rec"), MIB)
    recordings.discard()
    recordings.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, text", [("no/rec", "No such file"), (".", "is no file"), ("x\0y", "embedded null")])
def test_a_file_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartError, match=text):
        Recordings(name, MIB)


@pytest.mark.parametrize(
    "name", ["q.db", "q.db-wal", "q.db-shm", "q.db-journal", "q.db.leader", "link/q.db-wal", "q.db.2"]
)
def test_files_of_the_store_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """SQLite would take a recording for its log, and lose what it was told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StartError, match=r"the store q\.db may have a file of that name"):
        Recordings(name, MIB, "q.db")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_later_file_is_none_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recordings = Recordings("rec", MIB, "rec.2")
    paths = []
    for _ in range(2):
        file = recordings.next()
        assert file is not None
        paths.append(file.path)
        file.close()
    assert paths == ["rec", "rec.3"]


def test_much_is_written_in_portions(tmp_path: Path) -> None:
    recordings = Recordings(str(tmp_path / "rec"), MIB)
    file = recordings.next()
    assert file is not None
    for _ in range(40):
        file.add("x" * 99_999 + "\n")
    assert file.size == 4_000_000
    file.close()
    assert (tmp_path / "rec").stat().st_size == 4_000_000 and not file.waiting and not file.trouble
