"""What peers that never had a call admitted make us keep, of all connections: frames and header blocks in the making.

A peer may leave a frame of 64 KiB one byte short, and a header block beside it, on each of thousands of connections,
before anybody has asked for its credentials. All of that together has a bound. The connection that asks for more is
closed, whoever it is: those before it have a time to end what they began. What is no more than a usual first call is
not counted, so that who comes to call is let in meanwhile.
"""

from cronoq_sansio.limits import MAX_STRANGERS, STRANGER_SPARE


class Strangers:
    """Bytes that are kept, of all connections of a process."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Stranger:
    """Of one connection."""

    __slots__ = ("_everybody", "_held")

    def __init__(self, everybody: Strangers) -> None:
        self._everybody = everybody
        self._held = 0

    def may_keep(self, size: int) -> bool:
        """The connection keeps `size` bytes now; False when that is too much of all. Less than before always may."""
        held = size if size > STRANGER_SPARE else 0
        more = held - self._held
        if more:
            total = self._everybody.total + more
            if more > 0 and total > MAX_STRANGERS:
                return False
            self._everybody.total = total
            self._held = held
        return True
