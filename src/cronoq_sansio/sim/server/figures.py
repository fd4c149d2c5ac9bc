"""What is told of workers and in figures, compared with what there is (server.md section 10).

It is told at once and waits for no commit, so it is of the middle of a step. What workers offer is compared whenever no
event of the step may have changed that; what runs and waits when the question is the only event.
"""

from typing import TYPE_CHECKING

from cronoq_sansio.service import messages as m
from cronoq_sansio.sim.failure import Kind, Violation
from cronoq_sansio.sim.server.shadow import RUNNING

if TYPE_CHECKING:
    from cronoq_sansio.engine.events import Labels
    from cronoq_sansio.sim.server.callers import Ask
    from cronoq_sansio.sim.server.holders import Desk
    from cronoq_sansio.sim.server.node import Node


def fault(what: str, ask: "Ask", details: object) -> Violation:
    """A promise is broken."""
    return Violation(Kind.SAFETY, what, f"{ask.request} -> {details}")


def workers(node: "Node", ask: "Ask", reply: m.WorkerList) -> None:
    """Every worker that there is, with what it offers and runs. Raises `Violation`."""
    holders = node.holders
    if not (holders.calm or holders.alone):
        return
    desks = _open(node)
    told = [(worker.worker_id, worker.pool, worker.labels, worker.slots) for worker in reply.workers]
    if told != sorted((desk.id, desk.pool, desk.labels, desk.slots) for desk in desks):
        raise fault("the workers that are told of are not those that there are", ask, reply)
    if not holders.alone:
        return
    running = _running(node)
    busy = dict.fromkeys(running, 0)
    for worker in reply.workers:
        busy[worker.pool] += worker.busy
    having = {desk.id: len(desk.held) for desk in desks}  # others may be on their way
    if busy != running or any(worker.busy < having[worker.worker_id] for worker in reply.workers):
        raise fault("workers are told to be busy with other than what runs", ask, f"{reply}, {running}, {having}")


def snapshot(node: "Node", ask: "Ask", reply: m.SnapshotReply) -> None:
    """Slots by pool and labels, and counts. Raises `Violation`."""
    holders = node.holders
    if holders.calm or holders.alone:
        _offered(node, ask, reply)
    if not holders.alone:
        return
    view, engine = node.view, reply.engine
    told = (engine.live_tasks, engine.running, engine.pending)
    expected = (len(view.live), view.running, len(view.live) - view.running)
    if told != expected:
        raise fault("figures are told that are not so", ask, f"{told}, not {expected}")
    for name, count in view.counts.items():
        if engine.totals[name] != count:
            raise fault("figures are told that are not so", ask, f"{name}: {engine.totals[name]}, not {count}")
    busy = {pool.name: pool.busy for pool in engine.pools}
    if busy != _running(node):
        raise fault("figures are told that are not so", ask, f"{busy} run, not {_running(node)}")


def _offered(node: "Node", ask: "Ask", reply: m.SnapshotReply) -> None:
    """Slots are what workers offer, not what they still run of more; one group without labels is always there."""
    slots: dict[str, dict[Labels, int]] = {pool.name: {(): 0} for pool in node.settings.pools}
    connected = dict.fromkeys(slots, 0)
    for desk in _open(node):
        groups = slots[desk.pool]
        groups[desk.labels] = groups.get(desk.labels, 0) + desk.slots
        connected[desk.pool] += 1
    for pool in reply.engine.pools:
        told = {group.labels: group.capacity for group in pool.groups if group.capacity or not group.labels}
        expected = {labels: count for labels, count in slots[pool.name].items() if count or not labels}
        if pool.capacity != sum(expected.values()) or told != expected:
            raise fault("slots are told that are not what workers offer", ask, f"{pool}, workers offer {expected}")
    by_pool = {name: count for name, count in connected.items() if count}
    if reply.workers_by_pool != by_pool or reply.workers_connected != sum(by_pool.values()):
        raise fault("other workers are told to be connected than are", ask, f"{reply.workers_by_pool}, not {by_pool}")


def _open(node: "Node") -> list["Desk"]:
    return [desk for desk in node.holders.desks.values() if not desk.closing]


def _running(node: "Node") -> dict[str, int]:
    """Tasks that run, by pool."""
    found = dict.fromkeys((pool.name for pool in node.settings.pools), 0)
    for shadow in node.view.live.values():
        if shadow.status == RUNNING:
            found[shadow.spec.pool] += 1
    return found
