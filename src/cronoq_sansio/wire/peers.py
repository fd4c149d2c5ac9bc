"""Which connections are let in: how many, how many from one address, and who is kept out for a while.

- At the bound, of all or of one address, the oldest connection that never had a call admitted makes room: whoever has
  credentials and uses them gets in however many others just sit there. Where all have had one, the newcomer is refused.
- Frames that cost us and carry nothing (`floods.py`) are counted per connection, so somebody who is about to exceed a
  limit, or has, would simply connect again. So what a connection leaves unpaid is held against its address, and while
  that is too much nobody else from there is let in, and who has not had a call yet is closed before anything more of
  it is looked at. It is forgiven at `PEER_USELESS_RATE`. Ends that cost no frames count like some: a rule of HTTP/2
  that was broken, and a connection that came to nothing, although its calls were admitted.

Whoever is refused hears nothing. After our SETTINGS and a GOAWAY that says why, grpcio, for one, takes it for a
connection that has worked, and tries again at once, about five hundred times a second; after nothing it waits, longer
each time.

An address is that of a host; of IPv6 a network of 64 bits, which is what one host is given. Behind a proxy that hides
them all clients have one address, so this can be switched off.
"""

import ipaddress
from typing import Protocol

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MAX_PAST_PEERS, PEER_USELESS_BURST, PEER_USELESS_DEBT, PEER_USELESS_RATE
from cronoq_sansio.wire.peer_limits import CONNECTIONS, CONNECTIONS_OF_PEER, KEPT_OUT, PeerLimit

_NETWORK = 64  #: bits of an IPv6 address that one host cannot choose


class Guest(Protocol):
    """A connection; hashable by identity."""

    @property
    def proven(self) -> bool:
        """It has had a call admitted."""

    @property
    def address(self) -> str:
        """As `address_of` gives it."""


class _Peer:
    """What is known of one address."""

    __slots__ = ("at", "debt", "open", "unproven")

    def __init__(self) -> None:
        self.open = 0
        self.debt = 0
        """Useless frames that are not forgiven, times `SECOND`, as it was …"""
        self.at = 0
        """… then."""
        self.unproven: dict[Guest, None] = {}
        """Its connections without a call, as far as somebody has looked; oldest first."""

    def owes(self, now: int) -> int:
        """Frames times `SECOND`."""
        if self.debt:
            self.debt = max(0, self.debt - max(0, now - self.at) * PEER_USELESS_RATE)
        self.at = now
        return self.debt


class Peers:
    """All connections of a listener. Looking one up costs the same however many there are."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        """Connections in all, and of one address; 0 for the latter = addresses are not told apart."""
        self._most = most
        self._most_of_peer = most_of_peer
        self._guests: dict[Guest, None] = {}
        self._unproven: dict[Guest, None] = {}
        """Those without a call, as far as somebody has looked; oldest first."""
        self._peers: dict[str, _Peer] = {}
        """Addresses with an open connection."""
        self._past: dict[str, _Peer] = {}
        """Others that owe something, oldest first."""

    def __len__(self) -> int:
        return len(self._guests)

    def keeps_out(self, address: str, now: int) -> bool:
        """Nobody from there is let in at present."""
        if not self._most_of_peer:
            return False
        peer = self._peers.get(address) or self._past.get(address)
        return peer is not None and peer.owes(now) > PEER_USELESS_BURST * SECOND

    def enter(self, guest: Guest, now: int) -> "PeerLimit | Guest | None":
        """Somebody connects. A `PeerLimit`: refused; a guest: in, and that one has to leave now."""
        address = guest.address
        if self.keeps_out(address, now):
            return KEPT_OUT
        peer = self._peers.get(address)
        leaving: Guest | None = None
        if peer is not None and 0 < self._most_of_peer <= peer.open:
            leaving = _oldest(peer.unproven)
            if leaving is None:
                return CONNECTIONS_OF_PEER
        elif len(self._guests) >= self._most:
            leaving = _oldest(self._unproven)
            if leaving is None:
                return CONNECTIONS
        if leaving is not None:
            self._remove(leaving)
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self._past.pop(address) if address in self._past else _Peer()
        peer.open += 1
        peer.unproven[guest] = self._guests[guest] = self._unproven[guest] = None
        return leaving

    def charge(self, address: str, useless: int, now: int) -> None:
        """A connection from there leaves so many useless frames unpaid."""
        if not useless or not self._most_of_peer:
            return
        peer = self._peers.get(address) or self._past.get(address)
        if peer is None:
            peer = self._past[address] = _Peer()
            self._forget_past()
        peer.debt = min(peer.owes(now) + useless * SECOND, PEER_USELESS_DEBT * SECOND)

    def leave(self, guest: Guest) -> None:
        """A connection is over. Once for each that has entered."""
        if guest in self._guests:
            self._remove(guest)

    def _remove(self, guest: Guest) -> None:
        del self._guests[guest]
        self._unproven.pop(guest, None)
        peer = self._peers[guest.address]
        peer.unproven.pop(guest, None)
        peer.open -= 1
        if not peer.open:
            del self._peers[guest.address]
            if peer.debt:
                self._past[guest.address] = peer
                self._forget_past()

    def _forget_past(self) -> None:
        if len(self._past) > MAX_PAST_PEERS:
            del self._past[next(iter(self._past))]


def _oldest(guests: dict[Guest, None]) -> Guest | None:
    """The first that has had no call; forgets those before it."""
    while guests:
        guest = next(iter(guests))
        if not guest.proven:
            return guest
        del guests[guest]
    return None


def address_of(peer: str) -> str:
    """What tells a peer apart from others: of `IP:port` the IP, of `[IPv6]:port` its network."""
    host, colon, _ = peer.rpartition(":")
    if not colon:
        return peer
    if not host.startswith("["):
        return host
    try:
        found = ipaddress.IPv6Address(host[1:-1].partition("%")[0])
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> _NETWORK << _NETWORK, _NETWORK)))
