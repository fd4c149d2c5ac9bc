"""Inputs made of HTTP/2 frames, and how they are changed: mostly so that they stay frames."""

import struct
from random import Random

from fuzz.engine import MAX_INPUT, change

HEAD = 9
FLAGS = (0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x24, 0x25, 0xFF)


def cut(data: bytes) -> list[bytes]:
    """The frames of an input; the last one may not be whole."""
    found, at = [], 0
    while at < len(data):
        size = HEAD + int.from_bytes(data[at : at + 3], "big")
        found.append(data[at : at + size])
        at += size
    return found


def mutate(data: bytes, random: Random) -> bytes:
    """Exchange, repeat, take out or change frames; now and then, change anything."""
    if random.randrange(10) == 0:
        return change(data, random)
    start = data.find(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    start = start + 24 if start >= 0 else 0
    frames = cut(data[start:])
    for _ in range(random.choice((1, 1, 2, 3))):
        if not frames:
            break
        at = random.randrange(len(frames))
        kind = random.randrange(7)
        if kind == 0:
            frames.insert(random.randrange(len(frames)), frames[at])
        elif kind == 1:
            del frames[at]
        elif kind == 2:
            other = random.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        elif kind == 3:
            few = frames[at : at + random.choice((2, 3, 6))]
            place = random.choice((at, at + len(few), random.randrange(len(frames))))
            frames[place:place] = few
        else:
            frames[at] = changed_frame(frames[at], random)
    return (data[:start] + b"".join(frames))[:MAX_INPUT]


def mutate_behind_mode(data: bytes, random: Random) -> bytes:
    """The frames behind the first byte of an input, and now and then that byte."""
    changed = data[:1] + mutate(data[1:], random)
    return bytes([random.randrange(256)]) + changed[1:] if random.randrange(3) == 0 else changed


def changed_frame(frame: bytes, random: Random) -> bytes:
    """Another type, flags, stream or content; its length fits."""
    if len(frame) < HEAD:
        return frame
    kind, flags, stream_id, body = frame[3], frame[4], int.from_bytes(frame[5:9], "big"), frame[HEAD:]
    what = random.randrange(5)
    if what == 0:
        kind = random.choice((*range(11), 0xF0, 0xF1, 0xF2))
    elif what == 1:
        flags = random.choice(FLAGS)
    elif what == 2:
        stream_id = random.choice((0, 1, 2, 3, 5, 7, 9, 11, stream_id + 2, 1 << 31 | 1, (1 << 31) - 1))
    else:
        body = change(body, random)
    return struct.pack(">HBBBL", len(body) >> 8, len(body) & 255, kind, flags, stream_id & 0xFFFF_FFFF) + body
