"""A server that the test plays: what a `Worker` connects to instead of a channel, under Trio and asyncio.

It stands where `Plan.channel` would connect, so everything of the worker but the bytes is real.
"""

import logging
from collections import deque
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from cronoq._client.worker_run import Plan
from cronoq.errors import ClientError
from cronoq.worker import Worker
from cronoq_sansio.wire import pb

both = pytest.mark.parametrize("backend", ["trio", "asyncio"])

PATIENCE = 10.0
"""Seconds of the real clock after which a test counts as hanging."""


def play(backend, act, *arguments, **options):
    """Run a coroutine function under one of the backends, with a bound."""

    async def bounded():
        with anyio.fail_after(PATIENCE):
            return await act(*arguments, **options)

    return anyio.run(bounded, backend=backend)


class FakeStream:
    """The worker's side of a stream; the methods below are the server's."""

    def __init__(self, channel):
        self.channel = channel
        self.max_receive_bytes = 1 << 20
        self.inbox = deque()
        self.sent = deque()
        self.ended = None
        self.half_closed = False
        self.closed = False
        self.takes = True
        self._news = anyio.Event()
        self._said = anyio.Event()
        self._room = anyio.Event()

    # what the worker sees

    @property
    def room(self):
        return 1 << 16 if self.takes else 0

    def send_all(self, messages):
        if self.ended is None and not self.closed:
            self.sent.extend(map(pb.WorkerMessage.FromString, messages))
            self._said.set()

    def before_write(self, ask):
        ask()

    async def wait_room(self):
        while not self.takes and self.ended is None:
            self._room = anyio.Event()
            await self._room.wait()

    async def half_close(self):
        self.half_closed = True
        self._said.set()
        if self.channel.stage.polite:
            self.end()

    def close(self):
        self.closed = True
        self._said.set()

    async def receive_all(self):
        while not self.inbox:
            if self.ended is not None:
                if self.ended is True:
                    return None
                raise self.ended
            await self._wait()
        messages = list(self.inbox)
        self.inbox.clear()
        return messages

    async def _wait(self):
        self._news = anyio.Event()
        await self._news.wait()

    # what the test does

    def tell(self, **fields):
        self.inbox.append(pb.ServerMessage(**fields))
        self._news.set()

    def end(self, error=True):
        """The server ends the stream: True = OK, else what the worker gets."""
        if self.ended is None:
            self.ended = error
        self._news.set()
        self._room.set()

    def set_room(self, room):
        self.takes = room
        self._room.set()

    def lease(self, number, payload=b"", **fields):
        self.tell(lease=pb.Lease(lease=number, task_id=1000 + number, attempt=1, payload=payload, **fields))

    def abort(self, number):
        self.tell(abort=pb.Abort(lease=number, reason="aborted"))

    def register(self, *, slots=0, version=3, ttl=60.0, limit=1 << 20):
        self.tell(
            registered=pb.Registered(
                worker_id=7, slots=slots, protocol_version=version, lease_ttl_s=ttl, max_message_bytes=limit
            )
        )

    async def next(self, kind=None):
        """What the worker says next; heartbeats count only when they are asked for."""
        while True:
            while not self.sent:
                assert not (self.closed or self.half_closed), f"the worker left instead of saying {kind}"
                self._said = anyio.Event()
                await self._said.wait()
            message = self.sent.popleft()
            which = message.WhichOneof("msg")
            if kind is not None and which == "heartbeat" != kind:
                continue
            assert kind in (None, which), message
            return getattr(message, which)

    async def left(self):
        """Until the worker has closed its side."""
        while not (self.closed or self.half_closed):
            self._said = anyio.Event()
            await self._said.wait()


class FakeChannel:
    def __init__(self, stage, target):
        self.stage = stage
        self.target = target

    async def __aenter__(self):
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *_error):
        await anyio.lowlevel.checkpoint()

    async def open_stream(self, method):
        await anyio.lowlevel.checkpoint()
        assert method.name == "Workers.Work"
        self.stage.attempts.append(self.target)
        while self.stage.unreachable:
            if self.stage.refuse is not None:
                raise self.stage.refuse
            await anyio.sleep_forever()
        stream = FakeStream(self)
        self.stage.streams.append(stream)
        self.stage.connected.set()
        return stream


class Stage:
    """Stands for all servers."""

    def __init__(self, monkeypatch):
        self.streams = []
        self.attempts = []
        self.unreachable = False
        self.refuse = None
        self.polite = True
        """The server ends a stream that the worker has half-closed."""
        self.connected = None
        real = Plan.channel

        def channel(plan, target, **options):
            real(plan, target, **options)  # its checks
            return FakeChannel(self, target)

        monkeypatch.setattr(Plan, "channel", channel)

    async def stream(self):
        """The next connection."""
        while not self.streams:
            self.connected = anyio.Event()
            await self.connected.wait()
        return self.streams.pop(0)

    async def registered(self, **fields):
        """The next connection, once the worker is registered."""
        stream = await self.stream()
        stream.request = await stream.next("register")
        stream.register(**fields)
        return stream


@pytest.fixture
def stage(monkeypatch):
    stage = Stage(monkeypatch)
    stage.connected = _Later()
    return stage


class _Later:
    def set(self):
        """Nobody waits yet."""


def make(handler, **options):
    options = {"backoff": (0.001, 0.01), "slots": 2, **options}
    return Worker("server:1", options.pop("pool", "default"), handler, **options)


@contextmanager
def raises(code, text=None):
    with pytest.raises(ClientError, match=text) as caught:
        yield caught
    assert caught.value.code == code


def warnings_of(caplog):
    return [record for record in caplog.records if record.levelno >= logging.WARNING]
