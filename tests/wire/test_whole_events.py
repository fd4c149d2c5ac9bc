"""Events of a `Watch` that wait for a window to go out whole: whatever the peer does with its windows, they arrive.

A peer opens a window again when half of it is used, or earlier, and may change its SETTINGS at any time.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.service.access import authenticate
from cronoq_sansio.service.messages import StatusEvent
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.wire.grpc import GrpcServer
from cronoq_sansio.wire.http2_choice import MakeHttp2
from cronoq_sansio.wire.http2_words import DEFAULT_WINDOW, SMALLEST_FRAME
from tests.wire import raw
from tests.wire.peer import START, on_both_machines
from tests.wire.test_grpc_floods import update, watching

WIDE = 1 << 20
SIZE = 20_000
"""Of the events: more than the smallest frame, less than half of the window that a connection begins with."""


def connected(machine: MakeHttp2, *, window: int, frame: int = 65_536) -> GrpcServer:
    server = GrpcServer(LimitSettings(), START, authenticate, machine=machine)
    server.receive(raw.PREFACE + raw.settings(initial_window_size=window, max_frame_size=frame), START)
    server.take(1 << 20)
    return server


def tell(watcher: Any, *sizes: int) -> None:
    """Queue messages of so many bytes, each with its prefix."""
    watcher.encode = lambda event: event.message.encode()
    for size in sizes:
        watcher.send_event(StatusEvent(1, "default", "", 6, 1, START, "x" * (size - 5)))


def sent(server: GrpcServer) -> list[tuple[int, int]]:
    """Stream and size of each frame of DATA that goes out now."""
    data = b""
    while server.wants_write():
        data += server.take(1 << 24)
    return [(stream_id, len(body)) for kind, _, stream_id, body in raw.cut_frames(data) if kind == raw.DATA]


def say(server: GrpcServer, data: bytes) -> list[tuple[int, int]]:
    """What goes out for it."""
    server.receive(data, START)
    assert not server.closed
    return sent(server)


def parked(machine: MakeHttp2, left: int, *others: int) -> GrpcServer:
    """The connection has room for so many bytes, and the events of stream 1 and the others wait for more."""
    server = connected(machine, window=WIDE)
    watchers = [watching(server, stream_id) for stream_id in (99, 101, *others)]
    tell(watchers[0], *[(DEFAULT_WINDOW - left) // 3] * 3)
    assert sum(size for _, size in sent(server)) == DEFAULT_WINDOW - left
    for watcher in watchers[1:]:
        tell(watcher, SIZE)
        assert sent(server) == []
    return server


@on_both_machines
@pytest.mark.parametrize(
    "setting", [{"max_frame_size": SMALLEST_FRAME}, {"initial_window_size": 2 * SIZE - 1}], ids=str
)
def test_what_cannot_go_out_whole_any_more_goes_in_parts(machine: MakeHttp2, setting: dict[str, int]) -> None:
    """The peer allowed it once, and does not any more: nobody waits for room that need not come."""
    server = parked(machine, 9_000)
    assert say(server, raw.settings(**setting)) == [(101, 9_000)]
    assert say(server, update(0, 1)) == [(101, 1)]
    rest = say(server, update(0, WIDE))
    assert sum(size for _, size in rest) == SIZE - 9_001


@on_both_machines
def test_whose_own_window_is_closed_by_that_waits_for_it(machine: MakeHttp2) -> None:
    server = parked(machine, 9_000)
    assert say(server, raw.settings(initial_window_size=0)) == []
    assert say(server, update(0, 1)) == []
    assert say(server, update(101, WIDE)) == [(101, 9_001)]
    assert say(server, update(0, WIDE)) == [(101, SIZE - 9_001)]


@on_both_machines
def test_nor_on_a_stream_whose_own_window_it_waits_for(machine: MakeHttp2) -> None:
    server = connected(machine, window=DEFAULT_WINDOW)
    server.receive(update(0, WIDE), START)
    watcher = watching(server, 1)
    tell(watcher, *[(DEFAULT_WINDOW - 18_000) // 3] * 3, SIZE)
    assert sum(size for _, size in sent(server)) == DEFAULT_WINDOW - 18_000
    assert say(server, raw.settings(max_frame_size=SMALLEST_FRAME)) == [
        (1, SMALLEST_FRAME),
        (1, 18_000 - SMALLEST_FRAME),
    ]
    assert say(server, update(1, WIDE)) == [(1, SIZE - 18_000)]


@on_both_machines
def test_room_that_the_first_in_wait_does_not_use_is_the_next_ones(machine: MakeHttp2) -> None:
    """The connection gets room for one event, and the watch that waited for it longest is gone with the same read."""
    server = parked(machine, 3_000, 103)
    reset = raw.frame(raw.RST_STREAM, 0, 101, bytes(4))
    assert say(server, update(0, 30_000) + reset) == [(103, SIZE)]
    assert not server._narrow and not server._blocked


@on_both_machines
@pytest.mark.parametrize(("window", "used", "size"), [(30_000, 14_000, 20_000), (WIDE, 32_000, 40_000)])
def test_a_window_that_is_opened_when_half_of_it_is_used_is_enough(
    machine: MakeHttp2, window: int, used: int, size: int
) -> None:
    """Of one less than half is used; the event is larger than the rest, and may not wait for more."""
    server = connected(machine, window=window)
    room = min(window, DEFAULT_WINDOW) - used
    watcher = watching(server, 1)
    tell(watcher, used)
    assert sent(server) == [(1, used)]
    tell(watcher, size)
    assert sent(server) == [(1, room)]
    assert say(server, update(0, WIDE) + update(1, WIDE)) == [(1, size - room)]


class Reader:
    """A peer that reads all, and opens its windows as late as peers do: when half of one is used."""

    def __init__(self, machine: MakeHttp2, window: int, frame: int, watchers: int) -> None:
        self.server = connected(machine, window=window, frame=frame)
        self.ids = [2 * number + 1 for number in range(watchers)]
        self.watchers = [watching(self.server, stream_id) for stream_id in self.ids]
        self.room = {0: DEFAULT_WINDOW, **dict.fromkeys(self.ids, window)}
        """How wide each window is when nothing of it is used …"""
        self.used = dict.fromkeys(self.room, 0)
        """… and how much is."""
        self.frame = frame
        self.read = dict.fromkeys(self.ids, 0)

    def change(self, window: int, frame: int) -> None:
        self.frame = max(frame, self.frame)  # until it is acknowledged, the other may be used
        for stream_id in self.ids:
            self.room[stream_id] = window
        self.server.receive(raw.settings(initial_window_size=window, max_frame_size=frame), START)

    def go_on(self) -> None:
        """Read, and open what is half used, until nothing more comes."""
        while True:
            frames = sent(self.server)
            for stream_id, size in frames:
                assert size <= self.frame
                self.read[stream_id] += size
                for used in (0, stream_id):
                    self.used[used] += size
            due = [key for key, room in self.room.items() if self.used[key] and 2 * self.used[key] >= room]
            if not frames and not due:
                return
            for key in due:
                self.server.receive(update(key, self.used[key]), START)
                self.used[key] = 0


windows = st.sampled_from([500, 16_000, 20_000, 30_000, 65_535, 80_000]) | st.integers(500, 80_000)
frame_sizes = st.sampled_from([SMALLEST_FRAME, 30_000, 65_536])
event_sizes = st.sampled_from([40, 7_000, 9_000, 14_000, 20_000, 33_000, 66_000]) | st.integers(6, 70_000)


@on_both_machines
@given(
    window=windows,
    frame=frame_sizes,
    steps=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), event_sizes),
            st.tuples(st.integers(0, 2), event_sizes),
            st.tuples(st.just("read"), st.none()),
            st.tuples(st.just("settings"), st.tuples(windows, frame_sizes)),
        ),
        min_size=3,
        max_size=20,
    ),
)
def test_every_event_arrives(machine: MakeHttp2, window: int, frame: int, steps: list[Any]) -> None:
    reader = Reader(machine, window, frame, 3)
    told = dict.fromkeys(reader.ids, 0)
    for step, of in steps:
        if step == "read":
            reader.go_on()
        elif step == "settings":
            reader.change(*of)
        else:
            tell(reader.watchers[step], of)
            told[reader.ids[step]] += of
    reader.go_on()
    assert reader.read == told
    assert not reader.server.closed and not reader.server._narrow and not reader.server._blocked
