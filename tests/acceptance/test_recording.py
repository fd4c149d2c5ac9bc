"""`serve --record` as an operator uses it: a server with callers and workers, stopped or killed, and its recording."""

import os
import stat
import time
from pathlib import Path

import grpc
import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq_sansio.limits import MIN_RECORDING_BYTES
from cronoq_sansio.recording.replay import RecordingReport, bounded_lines, replay_recording
from tests.acceptance.clients import LARGE, Client, Status, refused, retry
from tests.acceptance.server import HANG, Server, run_cli
from tests.acceptance.workers import serving

TOKENS = {role: f"canary-{role}-".ljust(40, "x") for role in ("client", "worker", "admin")}
ENTRIES = "".join(f'[[auth.tokens]]\nrole = "{role}"\ntoken = "{token}"\n' for role, token in TOKENS.items())
SECRET = b"canary-payload"


class Recorded(Server):
    """A server that records, in its folder."""

    def __init__(self, folder: Path, name: str = "rec.jsonl", **tables: str) -> None:
        super().__init__(folder, "sqlite", **tables)
        self.recording = folder / name
        self.command = (*self.command, "--record", str(self.recording))


def replay(path: Path) -> RecordingReport:
    with path.open(encoding="ascii") as file:
        return replay_recording(bounded_lines(file.readline))


class WithToken(Client):
    """A client whose every call has a token."""

    def __init__(self, server: Server, role: str) -> None:
        super().__init__(with_token(server, role))


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds the token of a role."""

    def __init__(self, role: str) -> None:
        self.field = ("authorization", f"Bearer {TOKENS[role]}")

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self._with(details), request)

    def intercept_stream_stream(self, continuation, details, requests):
        return continuation(self._with(details), requests)

    def _with(self, details):
        return details._replace(metadata=[*(details.metadata or ()), self.field])


def with_token(server: Server, role: str) -> grpc.Channel:
    return grpc.intercept_channel(grpc.insecure_channel(server.address, options=LARGE), Bearer(role))


def use(server: Server) -> None:
    """What clients and workers do in a minute."""
    client = WithToken(server, "client")
    ids = [client.submit(payload=SECRET, key=f"k{n}", kind="mail").id for n in range(20)]

    def handler(lease):
        if lease.attempt == 1 and lease.task_id == ids[3]:
            return {"fail": pb.Fail(lease=lease.lease, message="not yet", retry_after_s=0.01)}
        return {"complete": pb.Complete(lease=lease.lease, output=SECRET + b"-out")}

    with serving(with_token(server, "worker"), handler):
        for task in ids:
            assert client.wait(task, timeout=HANG).output == SECRET + b"-out"
        assert client.submit(True, payload=SECRET).result.output
    client.submit(key="k3")
    client.submit(payload=SECRET, retry=retry(2))
    client.cancel("k5")
    with refused(Status.NOT_FOUND):
        client.get("nobody")


def test_a_recording_is_replayed_to_the_same_state_and_holds_no_secret(tmp_path):
    with Recorded(tmp_path, extra=ENTRIES) as server:
        use(server)
        assert server.stop() == 0
        report = replay(server.recording)
        assert report.outcome == "same" and report.state, report.text()
        assert report.events > 60
        text = server.recording.read_text("ascii")
        assert "canary" not in text and str(tmp_path) not in text and '"kind":"mail"' in text
        assert stat.S_IMODE(os.stat(server.recording).st_mode) == 0o600
        server.start()  # the same name is taken: nothing is written over
        WithToken(server, "client").submit(payload=SECRET)
        assert server.stop() == 0
        assert server.recording.read_text("ascii") == text
        second = replay(tmp_path / "rec.2.jsonl")
        assert second.outcome == "same" and '"load":[{' in (tmp_path / "rec.2.jsonl").read_text("ascii")
    server.check_log()


def test_what_is_left_by_kill_9_is_replayed_as_far_as_it_goes(tmp_path):
    with Recorded(tmp_path, extra=ENTRIES) as server:
        use(server)
        deadline = time.monotonic() + HANG
        while '"nobody"' not in server.recording.read_text("ascii"):
            assert time.monotonic() < deadline, "the last call is not in the recording"
            time.sleep(0.01)
        server.kill()
        report = replay(server.recording)
        assert (report.outcome, report.exit_code) == ("cut off", 0), report.text()
        assert report.events > 60 and report.state
        with server.recording.open("r+b") as file:
            file.truncate(server.recording.stat().st_size - 7)
        torn = replay(server.recording)
        assert torn.outcome == "cut off" and torn.steps == report.steps - 1 and "middle of a line" in torn.detail


@pytest.mark.parametrize(
    "options, text, code",
    [
        (["--record", "no/rec"], "--record no/rec: the file cannot be made: No such file or directory", 1),
        (["--record", "."], "--record .: it is there and is no file", 1),
        (["--record-bytes", "5000000"], "--record-bytes: it needs --record FILE", 2),
        (["--record", "x", "--record-bytes", "5"], f"found 5; allowed is at least {MIN_RECORDING_BYTES}", 2),
    ],
)
def test_what_cannot_be_recorded_to_is_refused_before_the_server_serves(tmp_path, options, text, code):
    done = run_cli("serve", "--memory", *options, folder=tmp_path)
    assert done.returncode == code and text in done.stderr and "ready" not in done.stdout
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


def test_more_pools_than_a_replay_takes_are_not_recorded(tmp_path):
    pools = "".join(f'[[pools]]\nname = "p{number}"\n' for number in range(10_001))
    (tmp_path / "cronoq.toml").write_text(f'[store]\nkind = "memory"\n{pools}')
    done = run_cli("serve", "--record", "rec.jsonl", folder=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "--record rec.jsonl: 10001 pools are more than the 10000 that a replay takes" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cronoq.toml"]


def test_a_server_that_does_not_start_leaves_no_empty_file(tmp_path):
    (tmp_path / "cronoq.toml").write_text(
        '[store]\nkind = "sqlite"\npath = "no/tasks.db"\n[[pools]]\nname = "default"\n'
    )
    done = run_cli("serve", "--record", "rec.jsonl", folder=tmp_path)
    assert done.returncode == 1 and "no/tasks.db" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cronoq.toml"]
