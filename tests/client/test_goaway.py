"""A server that says goodbye under load, again and again: each call is answered, and none is done twice.

The server is one by hand over memory. On each connection it accepts the requests up to some stream, says so in GOAWAY
while more are on their way, drops those, and answers what it has accepted in an order of its own.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import anyio
import anyio.lowlevel
import pytest

from cronoq._client import dialing
from cronoq._client.channel import Channel
from cronoq._client.methods import GET
from cronoq.errors import ClientError
from cronoq_sansio.limits import MAX_CALL_MOVES
from cronoq_sansio.wire import pb
from tests.client.byhand import Asked, HandServer
from tests.client.conftest import Run
from tests.wire import raw

TARGET = "127.0.0.1:1"
CALLERS = 40
CALLS = 400
ALL = 2**31 - 1


class Pipe:
    """One end of a connection in memory, as the client and the server by hand use it."""

    def __init__(self) -> None:
        self.peer = self
        self._arrived: list[bytes] = []
        self._closed = False
        self._news = anyio.Event()

    def tell(self, data: bytes | None) -> None:
        if data is None:
            self._closed = True
        else:
            self._arrived.append(data)
        self._news.set()

    async def receive(self, _most: int = 0) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._arrived:
            if self._closed:
                raise anyio.EndOfStream
            self._news = anyio.Event()
            await self._news.wait()
        return self._arrived.pop(0)

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self.peer._closed:
            raise anyio.BrokenResourceError
        self.peer.tell(data)

    async def aclose(self) -> None:
        self.tell(None)
        self.peer.tell(None)


def goaway(last: int) -> bytes:
    return raw.frame(raw.GOAWAY, 0, 0, last.to_bytes(4, "big") + bytes(4))


class Leaver:
    """A connection of the server. `most`: the requests that it accepts."""

    def __init__(self, world: "World", most: int, *, announce: bool) -> None:
        self._world = world
        self._most = most
        self._announce = announce
        self._accepted = 0
        self._left = False
        self._said = False

    async def decide(self, server: HandServer, asked: Asked) -> None:
        world = self._world
        if self._left:
            world.dropped += 1
            return
        if self._announce and not self._said:
            self._said = True
            await server.say(goaway(ALL))
        self._accepted += 1
        number = pb.GetRequest.FromString(asked.body[5:]).task.id
        world.done[number] += 1
        if self._accepted == self._most:
            self._left = True
            await server.say(goaway(asked.stream_id))
        world.tasks.start_soon(self._answer, server, asked, number)

    async def _answer(self, server: HandServer, asked: Asked, number: int) -> None:
        for _ in range(self._world.random.randrange(30)):
            await anyio.lowlevel.checkpoint()
        await server.answer(asked, pb.TaskInfo(id=number).SerializeToString())


class World:
    """All connections: what was done in them."""

    def __init__(self, seed: int, tasks: anyio.abc.TaskGroup, most: Callable[[random.Random], int]) -> None:
        self.random = random.Random(seed)
        self.done: Counter[int] = Counter()
        self.dropped = 0
        self.connections = 0
        self.tasks = tasks
        self._most = most

    def connect(self) -> Pipe:
        self.connections += 1
        ours, theirs = Pipe(), Pipe()
        ours.peer, theirs.peer = theirs, ours
        leaver = Leaver(self, self._most(self.random), announce=self.random.random() < 0.5)
        self.tasks.start_soon(self._serve, HandServer(leaver.decide), theirs)
        return ours

    async def _serve(self, server: HandServer, pipe: Pipe) -> None:
        try:
            await server(pipe)  # type: ignore[arg-type]
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    dialing.IN_PROCESS.pop(TARGET, None)


@pytest.mark.parametrize("seed", range(3))
def test_no_accepted_call_is_lost_and_the_others_move(run: Run, seed: int) -> None:
    async def main() -> None:
        numbers, answered = iter(range(1, CALLS + 1)), []
        async with anyio.create_task_group() as servers:
            world = World(seed, servers, lambda chance: chance.randrange(CALLERS + 1, 3 * CALLERS))
            dialing.IN_PROCESS[TARGET] = world.connect  # type: ignore[assignment]
            async with Channel(TARGET) as channel, anyio.create_task_group() as callers:

                async def caller() -> None:
                    for number in numbers:
                        reply = await channel.unary(GET, pb.GetRequest(task=pb.TaskRef(id=number)), timeout=30.0)
                        assert reply.id == number
                        answered.append(number)

                for _ in range(CALLERS):
                    callers.start_soon(caller)
            servers.cancel_scope.cancel()
        assert sorted(answered) == list(range(1, CALLS + 1))
        assert world.done == Counter(answered), "what was accepted was done once, and nothing else was"
        assert world.connections > 3 and world.dropped > 0

    run(main)


def test_a_call_that_nobody_ever_accepts_ends(run: Run) -> None:
    """Each connection leaves before it has looked at the call: it moves so often, and no further."""

    async def main() -> None:
        connections = count()

        async def decide(server: HandServer, asked: Asked) -> None:
            next(connections)
            await server.say(goaway(0))

        async with anyio.create_task_group() as servers:
            world = World(0, servers, lambda chance: 1)

            def connect() -> Pipe:
                ours, theirs = Pipe(), Pipe()
                ours.peer, theirs.peer = theirs, ours
                servers.start_soon(world._serve, HandServer(decide), theirs)
                return ours

            dialing.IN_PROCESS[TARGET] = connect  # type: ignore[assignment]
            async with Channel(TARGET) as channel:
                with pytest.raises(ClientError) as caught:
                    await channel.unary(GET, pb.GetRequest(), timeout=30.0)
            assert caught.value.code == "unavailable" and caught.value.unprocessed
            assert next(connections) == MAX_CALL_MOVES
            servers.cancel_scope.cancel()

    run(main)
