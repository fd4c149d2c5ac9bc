"""What happens to processes, clocks and the store: time, commits, crashes, take-overs, stops, restarts."""

from typing import TYPE_CHECKING, Any, ClassVar

from cronoq_sansio.clock import SECOND
from cronoq_sansio.engine.actions import Answer
from cronoq_sansio.engine.events import Stalled, WallClockMoved
from cronoq_sansio.engine.records import LoadedRecord, TaskDamaged, TaskLoaded
from cronoq_sansio.errors import Code, Rejection
from cronoq_sansio.limits import MAX_STORE_OUTAGE
from cronoq_sansio.service import messages as m
from cronoq_sansio.settings import Settings
from cronoq_sansio.sim.faults import BY_NAME
from cronoq_sansio.sim.server import worlds
from cronoq_sansio.sim.server.node import Node
from cronoq_sansio.sim.server.store import writes_of
from cronoq_sansio.spec import TaskStatus

if TYPE_CHECKING:
    from cronoq_sansio.sim.server.world import ServerWorld

SPANS = (0, 1, SECOND // 100, SECOND // 2, SECOND, 2 * SECOND, 5 * SECOND)
STEPS = (-30 * SECOND, -3 * SECOND, -1, 2 * SECOND, 25 * SECOND, 100 * SECOND)
OUTAGES = (0, 0, 1, SECOND, 5 * SECOND, 30 * SECOND)
RARE = {"return": 6, "edge": 64, "retry": 3, "schedule": 3}
"""Of `faults.WRITES`: few transactions hold them, and what ends a term meets those so many times as often."""
MAX_NODES = 3
FENCED_LATE = 20
"""A server that has lost the store finds out with one commit of so many, so that it goes on being talked to."""
CATCH_UP = 8  #: transactions that a quick store writes before time passes
UNREADABLE = Rejection(Code.UNAVAILABLE, "the store cannot be asked now; try again")


class Operators:
    """Whoever runs the processes of one world."""

    OFTEN: ClassVar = {
        "restart": 0,  # when nobody serves
        "pass_time": 10,
        "commit": 24,
        "answer": 6,
        "set_clock": 2,
        "pause": 2,
        "hang": 1,
        "die_telling": 3,
        "break_term": 1,
        "take_over": 3,
        "flap": 1,
        "stop": 2,
    }

    def __init__(self, world: "ServerWorld") -> None:
        self._world = world
        self._pick = world.pick
        self._last_word = ""
        """What a process tells last that dies while it tells."""

    # --- time

    def pass_time(self) -> None:
        """Time passes, with every timer when it is due."""
        self.let_pass(self._pick(SPANS))

    def let_pass(self, span: int) -> None:
        """So much time passes. Where the store is never slow it does its work before."""
        world = self._world
        if span >= SECOND and not world.on("commit slow"):
            for node in list(world.nodes):
                for _ in range(CATCH_UP if node.epoch == world.store.epoch or world.one_in(FENCED_LATE) else 0):
                    if node.flight is None or not self._write(node):
                        break
        world.advance(span)

    def set_clock(self) -> None:
        """The wall clock of all hosts is set."""
        world = self._world
        step = self._pick(STEPS)
        if world.strikes("clock step", "forward" if step > 0 else "back"):
            for node in world.nodes:
                node.view.look()
            world.latest_wall = max(world.latest_wall, world.now + world.wall_shift)
            world.wall_shift += step
            for node in list(world.nodes):
                node.handle(WallClockMoved(world.wall_shift - node.skew))

    def pause(self) -> None:
        """A process stands still for a while; what arrives meanwhile is read before its timers fire."""
        world = self._world
        node = world.some_node()
        if node is None or not world.on("pause"):
            return
        node.flush()
        if not node.serving:
            return
        met = "leases running" if node.engine.running else "nothing running"
        if node.flight is not None and self._pick((False, True)):
            met = "commit in flight"
        if not world.strikes("pause", met, 4 if met == "nothing running" else 1):
            return
        lateness = self._pick((SECOND // 2 + 1, 3 * SECOND, 20 * SECOND))
        node.paused = True
        world.advance(lateness)
        node.paused = False
        node.forgive(lateness)
        node.handle(Stalled(lateness))
        node.fire()

    # --- the store

    def commit(self) -> None:
        """The store comes to a transaction."""
        world = self._world
        flying = [node for node in world.nodes if node.flight is not None]
        if not flying:
            return
        node = flying[0] if len(flying) == 1 else self._pick(flying)
        if node.epoch != world.store.epoch and not world.one_in(FENCED_LATE):
            return
        flight = node.flight
        assert flight is not None
        found = writes_of(flight.records)
        rare = [one for one in found if one in RARE]
        op = "edge" if "edge" in found else self._pick(rare if rare and world.one_in(2) else found)
        often = RARE.get(op, 1)
        strikes = world.strikes
        if strikes("commit refused", op, min(often, 4)):
            return
        if strikes("crash before commit", op, often):
            self._crash(node)
            return
        if len(world.nodes) < MAX_NODES and strikes("take-over", op, often):
            self.start_term()
            return
        if not node.apply():
            self._fenced()
            return
        self._applied(node, op)

    def _applied(self, node: Node, op: str) -> None:
        """The transaction in flight is in the store: whether anybody hears of it."""
        world = self._world
        often = RARE.get(op, 1)
        if world.strikes("commit unknown", op, min(often, 8)):
            return
        if world.strikes("crash after commit", op, often):
            self._crash(node)
            return
        node.confirm()

    def _write(self, node: Node) -> bool:
        """The store takes the transaction in flight, without a fault of its own. False when the term is over."""
        if not node.apply():
            self._fenced()
            return False
        node.confirm()
        return node.serving

    def hang(self) -> None:
        """The store takes no commit for so long that the term ends."""
        world = self._world
        node = world.some_node()
        if node is None or node.flight is None:
            return
        running = node.engine.running
        if world.strikes("store outage", "leases running" if running else "nothing running", 3 if running else 12):
            world.advance(MAX_STORE_OUTAGE + SECOND)

    def answer(self) -> None:
        """The store answers a query, or cannot."""
        world = self._world
        asking = [node for node in world.nodes if node.queries]
        if not asking:
            return
        node = asking[0]
        index = self._pick(range(len(node.queries)))
        op = "find" if isinstance(node.queries[index], m.FindTask) else "list"
        node.answer_query(index, UNREADABLE if world.strikes("query refused", op) else None)

    def damage(self, rows: list[LoadedRecord]) -> dict[int, None]:
        """A term recovers: of these rows the store cannot read some. Their ids; the rows say that.

        Not those that a schedule has made, nor those whose key is awaited: who is it that cannot be read is anybody's
        guess then, and what the term makes of it is not to be foreseen from the rows.
        """
        world, damaged = self._world, dict[int, None]()
        if not world.on("row damaged"):
            return damaged
        loaded = {index: row for index, row in enumerate(rows) if type(row) is TaskLoaded}
        awaited = {edge.key for row in loaded.values() for edge in row.inserted.edges}
        known = [
            index
            for index, row in loaded.items()
            if not row.inserted.spec.tags and not (row.inserted.spec.key and row.inserted.spec.key in awaited)
        ]
        for _ in range(self._pick((1, 2, 4)) if known else 0):
            row = loaded[index := self._pick(known)]
            running = row.changed is not None and row.changed.status == TaskStatus.RUNNING
            task_id = row.inserted.task_id
            if task_id not in damaged and world.strikes("row damaged", "running" if running else "waiting", 4):
                rows[index] = TaskDamaged(task_id, "its row is damaged")
                damaged[task_id] = None
        return damaged

    # --- processes

    def doom(self, node: Node, action: Any) -> None:
        """The process dies when it has told some, the last of them this; or goes on until it tells what it must."""
        if not self._world.on("crash while telling"):
            return  # everything was healed before it happened
        kind = type(action)
        told = "leases" if kind is m.SendLease else "events" if kind is m.SendEvent else "aborts"
        if kind is Answer or kind is m.Reject:
            told = "replies"
        if told != self._last_word:
            node.doomed = 1
            return
        self._world.strike("crash while telling", told)
        self._crash(node)

    def die_telling(self) -> None:
        """The process will die when it tells something, and what it would have told beside that is never told."""
        world = self._world
        node = world.some_node()
        if node is None or not world.on("crash while telling"):
            return
        if world.one_in(max(world.swarm.rates["crash while telling"] // 16, 1)):
            self._last_word = self._pick(BY_NAME["crash while telling"].meets)
            node.doomed = self._pick((1, 2, 3))

    def break_term(self) -> None:
        """A term ends by a fault; a fresh one recovers."""
        world = self._world
        node = world.some_node()
        if node is None:
            return
        if not node.asks:
            return
        met = "calls open"
        if node.flight is not None and node.engine.running:
            met = "everything in flight"
        if not world.strikes("fault of the term", met, 8 if met == "calls open" else 2):
            return
        if node.flight is not None and self._pick((False, True)) and not node.apply():
            self._fenced()  # what was being written is written to its end before the store can be claimed again
            return
        node.end("a fault")

    def take_over(self) -> None:
        """Another process takes the store while nothing is written; the old one finds out when it writes again."""
        world = self._world
        if world.store.volatile or not 0 < len(world.nodes) < MAX_NODES:
            return
        if all(node.flight is None for node in world.nodes) and world.strikes("take-over", "nothing", 32):
            self.start_term()

    def flap(self) -> None:
        """Another process takes the store and dies at once; the one before wins it back when it finds out."""
        world = self._world
        if world.store.volatile or not 0 < len(world.nodes) < MAX_NODES:
            return
        if world.strikes("leadership flaps", "taken"):
            self.start_term()
            self._crash(world.nodes[-1])

    def stop(self) -> None:
        """The server is stopped in order."""
        world = self._world
        node = world.some_node()
        if node is None:
            return
        met = "leases running" if node.engine.running else "nothing running"
        if node.stopping or world.strikes("graceful stop", met, 2 if node.engine.running else 6):
            if node.stopping:
                world.strike("graceful stop", "asked again")
            node.stopping = True
            node.handle(m.StopRequested(self._pick((0, SECOND, 10 * SECOND, 60 * SECOND))))

    def restart(self) -> None:
        """Nobody serves: after a while somebody takes over, perhaps with another configuration."""
        world = self._world
        if world.nodes:
            return
        world.advance(self._pick(OUTAGES))
        index = self._pick(range(len(worlds.OTHERS)))
        if world.on("other settings") and world.strikes("other settings", worlds.NAMES[index], 16):
            self.start_term(worlds.OTHERS[index])
        else:
            self.start_term()
        if world.strikes("fault of the term", "just begun", 4):
            world.nodes[-1].end("a fault")

    def start_term(self, settings: Settings | None = None, skew: int | None = None) -> None:
        """A process claims the store and recovers from it."""
        world = self._world
        if skew is None:
            skew = self._pick(worlds.SKEWS)
        world.terms += 1
        node = Node(world, world.terms, settings or world.settings, skew, world.wall_shift - skew)
        world.nodes.append(node)

    def _crash(self, node: Node) -> None:
        node.end("crashed")

    def _fenced(self) -> None:
        """A term found out that it lost the store. Where leadership flaps its process wins it back at once."""
        world = self._world
        if world.on("leadership flaps") and not world.nodes:
            world.strike("leadership flaps", "regained")
            self.start_term()
