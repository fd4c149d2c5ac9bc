"""A server that is stopped under load: what it acknowledged is there, what it refused is tried again, nothing hangs.

Submits with keys come from grpcio and from our client, many in flight on one connection each, when the signal comes.
"""

import threading

import anyio
import grpc

from cronoq.client import Client as OurClient
from cronoq.client import ClientError
from tests.acceptance.clients import Status, connect, submission, wait_until
from tests.acceptance.server import HANG

AT_ONCE = 40
"""Of each client; the server takes half of them at a time."""
LIMITS = "max_concurrent_streams = 20"


class Load:
    """Keys that were submitted, and what became of each: the id of its task, or None when it was refused."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.became: dict[str, int | None] = {}
        self.stopped = False

    def key(self) -> str:
        key = f"{self.mark}-{len(self.became)}"
        self.became[key] = None
        return key

    def acknowledged(self) -> dict[str, int]:
        became = self.became.copy()  # others go on adding
        return {key: task_id for key, task_id in became.items() if task_id is not None}


def by_grpcio(address: str, load: Load) -> None:
    """Submit until the server refuses: in the end all that are in flight."""
    with connect(address) as client:
        while not load.stopped:
            calls = {
                key: client.tasks.Submit.future(submission(key=key), timeout=HANG)
                for key in [load.key() for _ in range(AT_ONCE)]
            }
            for key, call in calls.items():
                try:
                    load.became[key] = call.result().id
                except grpc.RpcError as error:
                    assert error.code() is Status.UNAVAILABLE, error
                    load.stopped = True


def by_ours(address: str, load: Load) -> None:
    """The same with our client, which does not try again here."""

    async def submit(client: OurClient) -> None:
        while not load.stopped:
            key = load.key()
            try:
                load.became[key] = (await client.submit(b"", key=key)).id
            except ClientError as error:
                assert error.code == "unavailable", error
                load.stopped = True

    async def main() -> None:
        with anyio.fail_after(2 * HANG):
            async with OurClient(address) as client, anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(submit, client)

    anyio.run(main, backend="trio")


def test_what_was_acknowledged_is_there_and_the_rest_is_tried_again(start):
    server = start("sqlite", limits=LIMITS)
    loads = [Load("grpcio"), Load("ours")]
    threads = [
        threading.Thread(target=by, args=(server.address, load), daemon=True)
        for by, load in zip((by_grpcio, by_ours), loads, strict=True)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(load.acknowledged()) > 2 * AT_ONCE for load in loads), "both are under way")
    server.terminate()
    assert server.wait() == 0
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive(), "a call hangs"
    server.start()
    with connect(server.address) as client:
        before = client.snapshot().live_tasks
        for load in loads:
            acknowledged = load.acknowledged()
            assert len(acknowledged) > AT_ONCE
            refused = load.became.keys() - acknowledged.keys()
            assert refused, "the stop came under load"
            again = {key: client.tasks.Submit.future(submission(key=key), timeout=HANG) for key in load.became}
            for key, call in again.items():
                reply = call.result()
                assert acknowledged.get(key, reply.id) == reply.id
                assert reply.duplicate or key in refused
        keys = sum(len(load.became) for load in loads)
        assert sum(len(load.acknowledged()) for load in loads) <= before <= client.snapshot().live_tasks == keys
