"""Calls whose messages come one by one: order, back-pressure, leaving."""

import anyio
import pytest

from cronoq._client.channel import Channel
from cronoq._client.methods import WATCH, WORK
from cronoq.client import ClientError
from cronoq_sansio import limits
from cronoq_sansio.wire import pb
from tests.client.byhand import Asked, HandServer, listening
from tests.client.conftest import Run
from tests.client.foreign import ForeignServer
from tests.wire import raw
from tests.wire.client_peer import data, headers, message

NUMBER = (7).to_bytes(4, "big")


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + why)


async def answer(server: HandServer, asked: Asked) -> None:
    await server.answer(asked, pb.CancelResponse(cancelled=True).SerializeToString())


# --- streams


def test_a_stream_in_both_directions(run: Run, foreign: ForeignServer) -> None:
    async def main() -> None:
        async with Channel(foreign.address) as channel:
            register = pb.WorkerMessage(register=pb.Register(slots=3))
            async with channel.stream(WORK, register) as stream:
                assert (await stream.receive()).registered.slots == 3
                body = bytes(range(256)) * 1_000
                for lease in range(20):
                    await stream.send(pb.WorkerMessage(complete=pb.Complete(lease=lease, output=body)))
                for lease in range(20):
                    echoed = (await stream.receive()).lease
                    assert (echoed.lease, echoed.payload) == (lease, body)
                await stream.half_close()
                assert await stream.receive() is None and await stream.receive() is None
                await stream.send(register)  # of no consequence

    run(main)


def test_a_stream_without_a_first_message_is_entered_at_once(run: Run, foreign: ForeignServer) -> None:
    async def main() -> None:
        async with Channel(foreign.address) as channel, channel.stream(WORK) as stream:
            stream.send_nowait(pb.WorkerMessage(register=pb.Register(slots=1)))
            await stream.wait_headers()
            assert (await stream.receive()).registered.worker_id == 1

    run(main)


def test_a_sender_waits_for_a_server_that_does_not_read(run: Run) -> None:
    async def decide(server: HandServer, asked: Asked) -> None:
        raise AssertionError("the stream is never half-closed")

    async def main() -> None:
        async with (
            listening(HandServer(decide)) as address,
            Channel(address) as channel,
            channel.stream(WORK) as stream,
        ):
            sent = 0
            with anyio.move_on_after(0.3) as scope:
                while True:
                    await stream.send(pb.WorkerMessage(complete=pb.Complete(output=bytes(50_000))))
                    sent += 50_000
            assert scope.cancelled_caught
            assert limits.CLIENT_UNSENT <= sent < limits.CLIENT_UNSENT + 65_535 + 2 * 50_000

    run(main)


def test_a_reader_that_stops_holds_the_server_back(run: Run) -> None:
    """What nobody takes is bounded by the window; taking it lets the rest come."""
    event = pb.StatusEvent(message="m" * 60_000)
    framed = message(event.SerializeToString())
    total = 60

    async def decide(server: HandServer, asked: Asked) -> None:
        await server.say(headers(asked.stream_id))
        room = limits.INITIAL_WINDOW
        sent = 0
        while room >= len(framed):
            for at in range(0, len(framed), 16_384):
                await server.say(data(asked.stream_id, framed[at : at + 16_384]))
            room -= len(framed)
            sent += 1
        first.append(sent)

    async def main() -> None:
        hand = HandServer(decide)
        async with listening(hand) as address, Channel(address) as channel:
            async with channel.stream(WATCH, pb.WatchRequest()) as stream:
                while not first:
                    await anyio.lowlevel.checkpoint()
                for _ in range(first[0]):
                    assert (await stream.receive()).message == "m" * 60_000
            await hand.reset.wait()

    first: list[int] = []
    run(main)
    assert 0 < first[0] < total


def test_leaving_a_stream_cancels_it(run: Run, foreign: ForeignServer) -> None:
    foreign.reset(Watch=["hang"])

    async def main() -> None:
        async with Channel(foreign.address) as channel:
            async with channel.stream(WATCH, pb.WatchRequest()) as stream:
                assert ("x-subscribed", "yes") in stream.initial_metadata
            assert await anyio.to_thread.run_sync(foreign.watchers_gone.acquire, True, 10.0)
            with pytest.raises(ClientError, match="cancelled: the stream was closed"):
                await stream.receive()

    run(main)
