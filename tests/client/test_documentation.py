"""The pages about the client are complete, and their example does what it says under both loops."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from cronoq import client as api
from cronoq._client.channel import Channel
from cronoq._client.methods import WORK
from cronoq.client import Client, task
from cronoq_sansio.wire import pb
from tests.acceptance.server import HANG, ROOT, Server, environment

HOW_TO = (ROOT / "docs" / "howto" / "client.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "client.md").read_text(encoding="utf-8")


def test_every_option_of_a_task_is_explained() -> None:
    table = HOW_TO.partition("## Describe a task")[2].partition("\n## ")[0]
    explained = {
        name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert explained == set(inspect.signature(task).parameters)


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^## `{name}\b", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in vars(Client) if not name.startswith("_")])
def test_every_method_is_in_the_reference_with_its_parameters(name: str) -> None:
    (line,) = re.findall(
        rf"^- `{name}\((.*?)\)`", REFERENCE.partition("## `Client`")[2].partition("\n## ")[0], re.MULTILINE
    )
    for parameter in list(inspect.signature(getattr(Client, name)).parameters)[1:]:
        assert re.search(rf"\b{parameter}\b", line)


def test_every_channel_option_is_explained() -> None:
    source = Path(inspect.getfile(Channel)).with_name("options.py").read_text(encoding="utf-8")
    for option in re.findall(r'case "(grpc\.\w+)"', source):
        assert f"`{option}`" in HOW_TO


@pytest.mark.realtime
def test_the_example(backend: str, server: Server) -> None:
    text = (ROOT / "docs" / "examples" / "client.py").read_text(encoding="utf-8")
    assert "127.0.0.1:7070" in text
    code = text.replace("127.0.0.1:7070", server.address).replace("mail-1", f"mail under {backend}")

    async def main() -> str:
        async with Channel(server.address) as channel:
            register = pb.WorkerMessage(register=pb.Register(slots=1, protocol_version=3))
            async with anyio.create_task_group() as tasks, channel.stream(WORK, register) as stream:

                async def work() -> None:
                    while True:
                        message = await stream.receive()
                        if message.HasField("lease") and message.lease.kind == "shout":
                            complete = pb.Complete(lease=message.lease.lease, output=message.lease.payload.upper())
                            await stream.send(pb.WorkerMessage(complete=complete))
                            await stream.send(pb.WorkerMessage(set_slots=pb.SetSlots(slots=0)))

                tasks.start_soon(work)
                done = await anyio.run_process(
                    [sys.executable, "-c", code, backend], env=environment(), stderr=subprocess.STDOUT
                )
                tasks.cancel_scope.cancel()
        return done.stdout.decode()

    async def bounded() -> str:
        with anyio.fail_after(HANG):
            return await main()

    first, second, third = anyio.run(bounded, backend=backend).splitlines()
    assert re.fullmatch(r"task \d+ succeeded HELLO", first)
    assert (second, third) == ("cancelled: True cancelled", "not_found")
