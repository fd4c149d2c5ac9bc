"""Of the same frames our HTTP/2 machine and h2 make the same, or both refuse, or it is an intended difference.

The intended differences are those of docs/protocol/http2.md. An input is what a peer sends behind its first SETTINGS.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("src", "")]

from cronoq_sansio.limits import UNKNOWN_BYTES  # noqa: E402
from fuzz.engine import main  # noqa: E402
from fuzz.frames import cut, mutate  # noqa: E402
from tests.wire import raw  # noqa: E402
from tests.wire.http2_scripts import Step  # noqa: E402
from tests.wire.test_http2_differential import cases, first_difference  # noqa: E402

MAX_FRAMES = 24
"""Of an input; h2 counts no floods, so that inputs must not be any."""
SERVICE: dict[bytes, Step] = {
    bytes([0, 0, 0, 0xF0 + number, 0, 0, 0, 0, stream_id]): (name, stream_id)
    for number, name in enumerate(("answer", "start", "reset", "credit"))
    for stream_id in (1, 3, 5)
}
"""Frames of types that nobody knows stand for what the service does."""


def _large(frame: bytes) -> bool:
    """A few of these would be a flood."""
    return len(frame) > UNKNOWN_BYTES and frame[3] > raw.CONTINUATION


def check(data: bytes) -> None:
    """The invariant."""
    steps: list[Step] = [SERVICE.get(frame, frame) for frame in cut(data)[:MAX_FRAMES] if not _large(frame)]
    found = first_difference(steps)
    if found is not None:
        _, *parted = found
        assert len(cases(*parted)) >= 1, parted


if __name__ == "__main__":
    sys.exit(main(check, __file__, mutate))
