"""Connections that come to nothing, or end because their peer broke a rule of HTTP/2: what their address pays."""

from dataclasses import replace

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.statistics import Statistics
from cronoq_sansio import limits
from cronoq_sansio.wire import pb
from tests.runtime.house import SETTINGS
from tests.runtime.test_peer_limits import BREACH, PING, begin, called, head
from tests.wire import raw


async def test_a_call_that_is_cut_off_is_a_visit_in_vain(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Headers alone are cheap: whoever sends these and hangs up, again and again, has not called."""
    scene = await begin(nursery, SETTINGS)
    visits = 0
    while not scene.counted():
        peer = scene.connect()
        await scene.say(peer, raw.HELLO + head(1))
        peer.close()
        await trio.testing.wait_all_tasks_blocked()
        visits += 1
        assert visits < 2_000
    assert visits == limits.PEER_USELESS_BURST // limits.USELESS_VISIT + 2
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("http2", ["own", "h2"])
async def test_who_breaks_rules_again_and_again_is_kept_out(
    http2: str, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Though its calls are admitted; a connection from there that is open goes on."""
    scene = await begin(nursery, replace(SETTINGS, server=replace(SETTINGS.server, http2=http2)))
    calm = scene.connect()
    await scene.say(calm, called())
    while "kept_out" not in scene.counted():
        peer = scene.connect()
        await scene.say(peer, BREACH)
        peer.close()
        await trio.testing.wait_all_tasks_blocked()
        assert scene.counted()["broken_rule"] < 200
    each = limits.USELESS_BREACH + limits.USELESS_VISIT
    assert scene.counted()["broken_rule"] == pytest.approx(limits.PEER_USELESS_BURST / each, abs=2)
    calm.try_receive()
    await scene.say(calm, PING)
    assert calm.try_receive()
    other = scene.connect(address="198.51.100.1")
    await scene.say(other, called())
    assert other.try_receive()
    nursery.cancel_scope.cancel()


async def test_who_breaks_a_rule_now_and_then_is_not_kept_out(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Eight times a second, for a minute, after fifty at once."""
    scene = await begin(nursery, SETTINGS)
    breaches = 0
    while trio.current_time() < 60:
        for _ in range(50 if not breaches else 1):
            peer = scene.connect()
            await scene.say(peer, BREACH)
            peer.close()
            breaches += 1
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1 / 8)
    assert scene.counted() == {"broken_rule": breaches} and breaches > 500
    nursery.cancel_scope.cancel()


async def test_the_statistics_count_calls_that_no_term_has_seen(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """And worker streams that were refused, by whomever."""
    scene = await begin(nursery, SETTINGS)
    peer = scene.connect()
    await scene.say(peer, called() + head(3, raw.block(path="/no/such"), end=True))
    worker = scene.house.caller()
    stream = await worker.work(slots=1)
    stream.say(register=pb.Register(pool="default", slots=1, protocol_version=3))
    await trio.testing.wait_all_tasks_blocked()
    counted = Statistics(scene.house.server.lobby, scene.house.server.terms).collect()
    assert {name: count for name, count in counted.items() if name.startswith("calls.")} == {
        "calls.Tasks.Submit.invalid": 1,
        "calls.Workers.Work.invalid": 1,
        "calls.unknown.unimplemented": 1,
    }
    nursery.cancel_scope.cancel()
