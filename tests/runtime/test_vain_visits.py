"""Connections that come to nothing, or end because their peer broke a rule of HTTP/2: what their address pays."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime.statistics import Statistics
from cronoq_sansio import limits
from cronoq_sansio.wire import pb
from tests.runtime.scene import BREACH, PING, begin, called, head, on_both_machines, settings
from tests.wire import raw


async def test_a_call_that_is_cut_off_is_a_visit_in_vain(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Headers alone are cheap: whoever sends these and hangs up, again and again, has not called."""
    scene = await begin(nursery)
    visits = 0
    while not scene.counted():
        await scene.visit(raw.HELLO + head(1))
        visits += 1
        assert visits < 2_000
    assert visits == limits.PEER_USELESS_BURST // limits.USELESS_VISIT + 2
    nursery.cancel_scope.cancel()


@on_both_machines
async def test_who_breaks_rules_again_and_again_is_kept_out(
    http2: str, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Though its calls are admitted; a connection from there that is open goes on."""
    scene = await begin(nursery, settings(http2))
    calm = scene.connect()
    await scene.say(calm, called())
    while "kept_out" not in scene.counted():
        await scene.visit(BREACH)
        assert scene.counted()["broken_rule"] < 200
    each = limits.USELESS_BREACH + limits.USELESS_VISIT
    assert scene.counted()["broken_rule"] == pytest.approx(limits.PEER_USELESS_BURST / each, abs=2)
    calm.try_receive()
    await scene.answered(calm, PING)
    await scene.answered(scene.connect(address="198.51.100.1"), called())
    nursery.cancel_scope.cancel()


async def test_who_breaks_a_rule_now_and_then_is_not_kept_out(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Eight times a second, for a minute, after fifty at once."""
    scene = await begin(nursery)
    breaches = 0
    while trio.current_time() < 60:
        for _ in range(50 if not breaches else 1):
            await scene.visit(BREACH)
            breaches += 1
        await trio.sleep(1 / 8)
    assert scene.counted() == {"broken_rule": breaches} and breaches > 500
    nursery.cancel_scope.cancel()


async def test_the_statistics_count_calls_that_no_term_has_seen(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """And worker streams that were refused, by whomever."""
    scene = await begin(nursery)
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
