"""Who is let in: bounds on connections, who makes room, and how long an address is kept out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio import limits
from cronoq_sansio.clock import SECOND
from cronoq_sansio.wire.peer_limits import CONNECTIONS, CONNECTIONS_OF_PEER, KEPT_OUT, PeerLimit
from cronoq_sansio.wire.peers import Peers, address_of

START = 1_000 * SECOND


class Visitor:
    """A connection, as far as the rules know one."""

    def __init__(self, address: str = "a", proven: bool = False) -> None:
        self.address = address
        self.proven = proven


def fill(peers: Peers, count: int, address: str = "a", proven: bool = False) -> list[Visitor]:
    visitors = [Visitor(address, proven) for _ in range(count)]
    for visitor in visitors:
        assert peers.enter(visitor, START) is None
    return visitors


def pay(peers: Peers, visitor: Visitor, useless: int) -> None:
    """Leave, with so many useless frames unpaid."""
    peers.charge(visitor.address, useless, START)
    peers.leave(visitor)


def test_the_oldest_without_a_call_makes_room() -> None:
    peers = Peers(5, 0)
    first, second, *_ = fill(peers, 5)
    first.proven = True
    assert peers.enter(Visitor("b"), START) is second
    assert len(peers) == 5


def test_who_has_had_a_call_stays_and_the_newcomer_is_refused() -> None:
    peers = Peers(5, 0)
    visitors = fill(peers, 5, proven=True)
    assert peers.enter(Visitor("b"), START) is CONNECTIONS
    peers.leave(visitors[3])
    assert peers.enter(Visitor("b"), START) is None


def test_one_address_takes_no_place_of_others() -> None:
    peers = Peers(100, 10)
    fill(peers, 9, "b")
    mine = fill(peers, 10, "a")
    mine[0].proven = True
    assert peers.enter(Visitor("a"), START) is mine[1], "of the same address, although others are older"
    assert len(peers) == 19


def test_an_address_whose_connections_have_all_had_calls_is_refused() -> None:
    peers = Peers(100, 10)
    fill(peers, 10, "a", proven=True)
    assert peers.enter(Visitor("a"), START) is CONNECTIONS_OF_PEER
    assert peers.enter(Visitor("b"), START) is None


def test_useless_frames_of_ended_connections_keep_their_address_out() -> None:
    peers = Peers(100, 10)
    for _ in range(2):
        (visitor,) = fill(peers, 1, "a")
        pay(peers, visitor, limits.PEER_USELESS_BURST)
    assert peers.enter(Visitor("a"), START) is KEPT_OUT
    assert peers.keeps_out("a", START) and not peers.keeps_out("b", START)
    forgiven = START + limits.PEER_USELESS_BURST * SECOND // limits.PEER_USELESS_RATE
    assert peers.enter(Visitor("a"), forgiven - 1) is KEPT_OUT
    assert peers.enter(Visitor("a"), forgiven) is None


def test_nobody_is_kept_out_for_more_than_a_minute() -> None:
    peers = Peers(100, 10)
    (visitor,) = fill(peers, 1, "a")
    pay(peers, visitor, 1 << 60)
    assert peers.keeps_out("a", START + 59 * SECOND) and not peers.keeps_out("a", START + 60 * SECOND)


def test_debts_are_kept_while_another_connection_of_the_address_is_open() -> None:
    peers = Peers(100, 10)
    first, second = fill(peers, 2, "a")
    pay(peers, first, limits.PEER_USELESS_BURST + 1)
    assert peers.keeps_out("a", START)
    peers.leave(second)
    assert peers.keeps_out("a", START)


def test_without_a_bound_per_address_nobody_is_kept_out() -> None:
    peers = Peers(100, 0)
    visitors = fill(peers, 50, "a")
    pay(peers, visitors[0], 1 << 60)
    assert not peers.keeps_out("a", START) and peers.enter(Visitor("a"), START) is None


def test_who_made_room_and_leaves_later_still_pays() -> None:
    peers = Peers(1, 1)
    (first,) = fill(peers, 1, "a")
    assert peers.enter(Visitor("a"), START) is first
    pay(peers, first, limits.PEER_USELESS_BURST + 1)
    assert len(peers) == 1 and peers.keeps_out("a", START)


def test_addresses_that_left_are_forgotten_within_a_bound() -> None:
    peers = Peers(100, 10)
    for number in range(limits.MAX_PAST_PEERS + 50):
        visitor = Visitor(f"10.{number}")
        peers.enter(visitor, START)
        pay(peers, visitor, 20_000)
    assert len(peers._past) == limits.MAX_PAST_PEERS and not peers._peers
    assert not peers.keeps_out("10.49", START) and peers.keeps_out("10.50", START)


def test_looking_for_room_does_not_look_at_everybody_again_and_again() -> None:
    """Those that have had a call are passed once."""
    looks = 0

    class Counting(Visitor):
        @property
        def proven(self) -> bool:
            nonlocal looks
            looks += 1
            return True

        @proven.setter
        def proven(self, value: bool) -> None:
            pass

    peers = Peers(1_000, 0)
    for _ in range(1_000):
        peers.enter(Counting(), START)
    for _ in range(100):
        assert peers.enter(Visitor("b"), START) is CONNECTIONS
    assert looks == 1_000


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 20), st.booleans()), max_size=80))
def test_bounds_hold_whatever_happens(script: list[tuple[int, str, int, bool]]) -> None:
    """The reference knows all by looking at everybody."""
    most, most_of_peer = 8, 4
    peers, inside = Peers(most, most_of_peer), []
    for action, address, which, proven in script:
        if action == 0 and inside:
            peers.leave(inside.pop(which % len(inside)))
        elif action == 1 and inside:
            inside[which % len(inside)].proven = True
        else:
            newcomer = Visitor(address, proven)
            same = [visitor for visitor in inside if visitor.address == address]
            found = peers.enter(newcomer, START)
            crowd = same if len(same) >= most_of_peer else inside if len(inside) >= most else []
            unproven = [visitor for visitor in crowd if not visitor.proven]
            expected: Any = None
            if crowd:
                full = CONNECTIONS_OF_PEER if crowd is same else CONNECTIONS
                expected = unproven[0] if unproven else full
            assert found is expected
            if isinstance(found, PeerLimit):
                continue
            if found is not None:
                inside.remove(found)
            inside.append(newcomer)
        assert len(peers) == len(inside) <= most


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.7:1234", "192.0.2.7"),
        ("[2001:db8:1:2:3:4:5:6]:1234", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::ff]:1", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:1", "fe80::/64"),
        ("[::ffff:192.0.2.7]:1234", "192.0.2.7"),
        ("[no address]:1", "[no address]"),
        ("caller", "caller"),
    ],
)
def test_what_tells_peers_apart(peer: str, address: str) -> None:
    assert address_of(peer) == address
