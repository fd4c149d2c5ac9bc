"""Records what real clients and servers send, for `tests/wire/test_recorded_{blocks,answers}.py`.

    PYTHONPATH=src python -m tests.foreign.record [NAME …]

Each client talks to a server of ours through a relay (`tap.py`), and each server to our client. The header blocks that
it sent, and of a server the first frames as they came, are written to `tests/wire/recorded`, one file each, with the
version. Without names all are recorded.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import anyio
import grpc
from grpclib.client import Channel as GrpclibChannel

from cronoq._proto import cronoq_grpc as grpclib_stubs
from cronoq._proto import cronoq_pb2 as pb
from cronoq.client import Client, ClientError
from tests.acceptance.clients import connect, reference, submission
from tests.acceptance.go_tools import PROTO
from tests.acceptance.server import HANG, ROOT, environment
from tests.acceptance.workers import serving
from tests.foreign.conftest import serve
from tests.foreign.framing import HEADERS, framed
from tests.foreign.node_peer import NodeClient
from tests.foreign.programs import HERE, contract, go_folder, installed, node_folder, report, run, server_command
from tests.foreign.tap import HEAD, Direction, Tap, tapped

FOLDER = ROOT / "tests" / "wire" / "recorded"
TOKEN = "Bearer " + "t" * 40
MAX_BLOCKS, MAX_CONNECTIONS = 60, 3
MAX_WHOLE = 2_500
"""Bytes of all that a server sent, up to the end of a frame: the answers to each kind of call, and some of a watch."""
MISSING = 1 << 40


def grpcio(tap: Tap) -> str:
    with connect(tap.address) as client, serving(client.channel, pool="worked"):
        for number in range(5):
            client.submit(True, pool="worked", payload=b"%d" % number)
        for timeout in (0.5, 1, 10, 1_000):
            call = client.tasks.Get.future(pb.GetRequest(task=reference(MISSING)), timeout=timeout)
            assert call.code() is grpc.StatusCode.NOT_FOUND
        token = (("authorization", TOKEN), ("trace-bin", b"\0\xff" * 12))
        for _ in range(3):
            client.admin.Snapshot(pb.Empty(), metadata=token, timeout=HANG)
    return version("grpcio")


def grpclib(tap: Tap) -> str:
    async def calls() -> None:
        channel = GrpclibChannel("127.0.0.1", tap.port)
        tasks = grpclib_stubs.TasksStub(channel)
        for number in range(5):
            await tasks.Submit(submission(payload=b"%d" % number), timeout=10 + number)
        for _ in range(3):
            await grpclib_stubs.AdminStub(channel).Snapshot(
                pb.Empty(), metadata={"authorization": "Bearer " + "t" * 40}
            )
        channel.close()

    asyncio.run(calls())
    return version("grpclib")


def go(tap: Tap) -> str:
    client = go_folder() / "foreign"
    report(client, "-count=5", "-slots=2", "work", tap.address)
    report(client, "unary", tap.address)
    report(client, "watch", tap.address)
    return pinned("google.golang.org/grpc")


def grpcurl(tap: Tap) -> str:
    program = go_folder() / "grpcurl"
    options = ["-plaintext", "-import-path", ROOT / "proto", "-proto", PROTO, "-H", "authorization: Bearer token"]
    for method in ("Admin/Snapshot", "Tasks/ListTasks"):
        run(program, *options, "-d", "{}", "-max-time", "5", tap.address, f"cronoq.v1.{method}")
    return pinned("github.com/fullstorydev/grpcurl")


def node(tap: Tap) -> str:
    with NodeClient(f"http://{tap.address}") as client:
        for number in range(5):
            client.call(number, "Tasks/Submit", framed(submission()))
            client.hear("close", number)
        for number in range(5, 8):
            client.call(number, "Tasks/Get", framed(pb.GetRequest(task=reference(MISSING))))
            client.hear("close", number)
    return node_version()


def connect_es(tap: Tap) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report(installed("node"), node_folder() / "connect.mjs", contract(Path(folder)), f"http://{tap.address}")
    return connect_version()


def curl(tap: Tap) -> str:
    url = f"http://{tap.address}/cronoq.v1.Tasks/Submit"
    options = ["--http2-prior-knowledge", "-sS", "-o", "/dev/null", *HEADERS, "--data-binary", "@-"]
    for _ in range(2):
        run(installed("curl"), *options, url, stdin=framed(submission()))
    return first_version(run(installed("curl"), "--version"))


def h2load(tap: Tap) -> str:
    with tempfile.NamedTemporaryFile() as body:
        body.write(framed(submission()))
        body.flush()
        url = f"http://{tap.address}/cronoq.v1.Tasks/Submit"
        run(installed("h2load"), "-n", 40, "-c", 2, "-m", 4, *HEADERS, "-d", body.name, url)
    return first_version(run(installed("h2load"), "--version"))


CLIENTS: dict[str, Callable[[Tap], str]] = {
    "grpcio": grpcio,
    "grpclib": grpclib,
    "grpc-go": go,
    "grpcurl": grpcurl,
    "Node": node,
    "Connect-ES": connect_es,
    "curl": curl,
    "h2load": h2load,
}


SERVERS = {
    "grpcio-server-sync": "grpcio sync",
    "grpcio-server-aio": "grpcio aio",
    "grpc-go-server": "grpc-go",
    "Connect-ES-server": "Connect-ES",
}
"""What their files are called, and what `server_command` calls them."""


def answers(command: list[str]) -> list[Direction]:
    """What a server answers our client."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        with tapped(int(process.stdout.readline()), whole=True) as tap:

            async def calls() -> None:
                async with Client(tap.address) as client:
                    for _ in range(5):
                        await client.submit(b"x", wait=True)
                        for pool in ("nowhere", "default"):
                            try:
                                await client.submit(pool=pool)
                            except ClientError as error:
                                assert error.code == "not_found"
                    async with client.watch() as events:
                        await anext(events)

            anyio.run(calls)
            found = [connection.server for connection in tap.connections]
        process.stdin.close()
    return found


def pinned(module: str) -> str:
    """The version of a Go module."""
    (line,) = (
        line for line in (HERE / "go" / "go.mod").read_text().splitlines() if line.strip().startswith(module + " ")
    )
    return line.split()[1].removeprefix("v")


def connect_version() -> str:
    packages = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    return str(packages["@connectrpc/connect-node"])


def server_version(name: str) -> str:
    if name == "grpc-go":
        return pinned("google.golang.org/grpc")
    return connect_version() if name == "Connect-ES" else version("grpcio")


def node_version() -> str:
    return run(installed("node"), "--version").strip().removeprefix("v")


def first_version(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", text)
    assert found is not None
    return found[0]


def first_frames(data: bytearray) -> bytes:
    """As many of them as may be kept."""
    end = 0
    while end + HEAD <= len(data):
        following = end + HEAD + int.from_bytes(data[end : end + 3], "big")
        if following > min(len(data), MAX_WHOLE):
            break
        end = following
    return bytes(data[:end])


def write(name: str, kind: str, number: str, sent: list[Direction]) -> None:
    connections = [[block.hex() for block in way.blocks[:MAX_BLOCKS]] for way in sent[:MAX_CONNECTIONS] if way.blocks]
    assert connections
    FOLDER.mkdir(exist_ok=True)
    said = {"name": name, "version": number, "sends": kind, "connections": connections}
    whole = [first_frames(way.whole).hex() for way in sent[:MAX_CONNECTIONS] if way.whole]
    if whole:
        said["whole"] = whole
    (FOLDER / f"{name}.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    print(f"{name} {number}: {[len(blocks) for blocks in connections]} blocks")


def main(names: list[str]) -> None:
    for name, play in CLIENTS.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder), False) as server, tapped(server.port) as tap:
            number = play(tap)
            write(name, "requests", number, [connection.client for connection in tap.connections])
    for name, server_name in SERVERS.items():
        if not names or name in names:
            with tempfile.TemporaryDirectory() as folder:
                write(
                    name, "responses", server_version(server_name), answers(server_command(server_name, Path(folder)))
                )


if __name__ == "__main__":
    main(sys.argv[1:])
