"""The door of the gRPC listener: who is let in, who makes room, and what is told of those that go too far.

Which connections may stay is decided by `wire/peers.py`. Of a peer that exceeds a limit there is a counter
(`statistics.py`) and, unless that happens to good peers too, a line in the log: one a minute for each limit and
address, and no more than `limits.MAX_LOGGED_PEERS` in that time.
"""

from collections import Counter
from typing import TYPE_CHECKING

import trio

from cronoq._observe.logs import get_logger
from cronoq._runtime.clock import Clock
from cronoq._runtime.seldom import Seldom
from cronoq_sansio.limits import MAX_LOGGED_PEERS, PEER_PAUSE, USELESS_VISIT
from cronoq_sansio.wire.peer_limits import KEPT_OUT, MADE_ROOM, PeerLimit
from cronoq_sansio.wire.peers import Peers, address_of

if TYPE_CHECKING:
    from cronoq._runtime.connection import Connection

log = get_logger("peers")


class PeerLog:
    """Counts and tells of limits that peers have exceeded."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """By the name of the limit."""
        self._seldom = Seldom(PEER_PAUSE, MAX_LOGGED_PEERS, clock.now)

    def note(self, limit: PeerLimit, peer: str) -> None:
        """`peer`: address and port."""
        self.counts[limit.name] += 1
        if limit.usual:
            log.debug("a connection was closed", peer=peer, limit=limit.name, why=limit.says)
            return
        untold = self._seldom.may_tell((limit.name, address_of(peer)))
        if untold is None:
            return
        fields: dict[str, int] = {}
        if untold.same:
            fields["not_told_since_last"] = untold.same
        if untold.others:
            fields["not_told_of_others"] = untold.others
        log.warning(
            "a peer has exceeded a limit", peer=peer, limit=limit.name, why=limit.says, remedy=limit.remedy, **fields
        )


class Guest:
    """Somebody who was let in: first at the TLS handshake, if there is one, then a connection."""

    __slots__ = ("_charged", "_door", "address", "connection", "leaving", "peer", "scope", "wasted")

    def __init__(self, door: "Door", peer: str) -> None:
        self._door = door
        self._charged = 0
        self.wasted = 0
        """What counts like so many useless frames, beside those of the connection."""
        self.peer = peer
        self.address = address_of(peer)
        self.connection: Connection | None = None
        self.scope: trio.CancelScope | None = None
        """Of the handshake, while it goes on."""
        self.leaving = False
        """Has to leave; looked at by whoever begins to serve it."""

    @property
    def proven(self) -> bool:
        """A call of this one was admitted."""
        return self.connection is not None and self.connection.proven

    @property
    def vain(self) -> bool:
        """Nothing of this one came to anything."""
        return self.connection is None or self.connection.vain

    def unwelcome(self) -> bool:
        """No call was admitted so far, and whoever comes from there is kept out now."""
        return not self.proven and self._door.keeps_out(self.peer)

    def charge(self, now: int) -> int:
        """Useless frames that were not charged so far."""
        owed = self.wasted + (0 if self.connection is None else self.connection.useless(now))
        more, self._charged = max(0, owed - self._charged), max(owed, self._charged)
        return more

    def settle(self) -> None:
        """Have the address charged with what this connection leaves unpaid."""
        self._door.charge(self)

    def make_room(self) -> None:
        """Leave now."""
        self.leaving = True
        if self.connection is not None:
            self.connection.give_up(MADE_ROOM)
        elif self.scope is not None:
            self.scope.cancel()


class Door:
    """Lets connections of one listener in."""

    def __init__(self, most: int, most_of_peer: int, peer_log: PeerLog, clock: Clock) -> None:
        """As of `Peers`."""
        self._peers = Peers(most, most_of_peer)
        self._peer_log = peer_log
        self._clock = clock

    def keeps_out(self, peer: str) -> bool:
        """Nobody from that address is let in at present: the cheapest question, for those who ask all the time."""
        if not self._peers.keeps_out(address_of(peer), self._clock.now()):
            return False
        self._peer_log.note(KEPT_OUT, peer)
        return True

    def enter(self, peer: str) -> Guest | PeerLimit:
        """Let somebody in, who has to `leave`; or why not."""
        guest = Guest(self, peer)
        found = self._peers.enter(guest, self._clock.now())
        if isinstance(found, PeerLimit):
            self._peer_log.note(found, peer)
            return found
        if isinstance(found, Guest):
            # The one that makes room is told and not the newcomer, whoever of them has filled the place.
            self._peer_log.note(MADE_ROOM, found.peer)
            found.make_room()
        return guest

    def charge(self, guest: Guest) -> None:
        """See `Guest.settle`."""
        now = self._clock.now()
        self._peers.charge(guest.address, guest.charge(now), now)

    def leave(self, guest: Guest) -> None:
        """The connection is over."""
        if guest.vain:
            guest.wasted += USELESS_VISIT
        self.charge(guest)
        self._peers.leave(guest)
        guest.connection = None  # it knows its guest
