"""`kill -9` of a server with schedules that fire every second, and what its file says after each death.

Five schedules, one of each overlap policy and one without a key, fire every second, and one every ten seconds, so that
its latest fire has mostly been dealt with when a server starts; a foreign worker runs what they make. Beside them one
is added and the one before it removed in each cycle, just before the kill, which comes at a random instant, every
other time close to a full second. The file and its log as the killed process left them are copied, and the copy is
read with SQLite alone: an image of what a power cut leaves is never less than that.

In each image: of no schedule two tasks have the same start; how far a schedule has come is never before where it was,
is the start of the last task that was made, and names that task; what was acknowledged is there. In the end: no task
started before its time, every one has ended, and every fire that is missing came while no server could make it, and is
in the log as missed.
"""

import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from calendar import timegm
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Client, connect, wait_until
from tests.acceptance.crash import end_worker
from tests.acceptance.ledger import percentiles, record
from tests.acceptance.server import HANG, Server, environment, free_port

EVERY_SECOND = "* * * * * *"
SECOND = 1_000_000_000
TOLERANCE = 1
"""Seconds; the default of a template."""
SLACK = 1.0
"""Seconds within which, on a busy machine, the next occurrence is stored, and the first one after a restart is made."""
SLOTS = 32
LONG_DOWN = 4.0
"""Seconds for which one cycle leaves the server down: however fast it starts, more fires pass than one of them can be
made ahead and one made late, so some are missed for good."""
SCHEDULES = {
    "allow": {"overlap": pb.OVERLAP_ALLOW, "key": "allow"},
    "queue": {"overlap": pb.OVERLAP_QUEUE, "key": "queue"},
    "success": {"overlap": pb.OVERLAP_QUEUE_ON_SUCCESS, "key": "success"},
    "skip": {"overlap": pb.OVERLAP_SKIP, "key": "skip"},
    "keyless": {"overlap": pb.OVERLAP_ALLOW, "key": ""},
    "rare": {"overlap": pb.OVERLAP_ALLOW, "key": "rare", "cron": "*/10 * * * * *"},
}
MISSED = re.compile(r"an occurrence did not happen .*schedule=(\w+) reason=missed at=(\S+)(?: .*last=(\S+))?")
STALLED = "the process could not run"
"""In a log: the machine was so busy that fires may be missed although the server was up."""
POOLS = '[[pools]]\nname = "default"\nmax = 1000\n'


@dataclass
class Image:
    """What a killed server left of its schedules."""

    through: dict[str, int]
    last_task: dict[str, int]
    names: set[str]
    """Schedules that are stored."""
    tasks: dict[str, dict[int, int]]
    """Of a schedule: start to id."""
    started: dict[int, int]
    """Id to the first start of an attempt; wall time."""
    live: int
    statuses: dict[int, int]
    faults: list[str] = field(default_factory=list)


def read_image(path: Path) -> Image:
    """Read a file that no server has open."""
    with closing(sqlite3.connect(path)) as connection:
        fired = connection.execute("SELECT name, through, last_task, local FROM cronoq_trio_fired").fetchall()
        names = {name for (name,) in connection.execute("SELECT name FROM cronoq_trio_recurring")}
        tasks = connection.execute("SELECT id, key, spec FROM cronoq_trio_tasks").fetchall()
        states = connection.execute("SELECT id, status, first_started FROM cronoq_trio_states").fetchall()
        live = connection.execute("SELECT count(*) FROM cronoq_trio_live").fetchone()[0]
        damage = connection.execute("PRAGMA integrity_check").fetchall()
    image = Image(
        {name: through for name, through, _, _ in fired},
        {name: last_task for name, _, last_task, _ in fired},
        names,
        defaultdict(dict),
        {task_id: at for task_id, _, at in states if at},
        live,
        {task_id: status for task_id, status, _ in states},
    )
    if damage != [("ok",)]:
        image.faults.append(f"the file is damaged: {damage}")
    for name, through, _, local in fired:
        if local not in (-1, through):
            image.faults.append(f"{name} has come through {through}, by the clock of UTC {local}")
    for task_id, key, stored in tasks:
        spec = msgspec.msgpack.decode(stored)
        name, start = dict(spec["g"])["cronoq.recurring"], spec["b"]
        other = image.tasks[name].setdefault(start, task_id)
        if other != task_id:
            image.faults.append(f"tasks {other} and {task_id} are both the occurrence of {name} at {start}")
        prefix = SCHEDULES.get(name, {"key": name})["key"]
        wanted = f"{prefix}@{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(start // SECOND))}" if prefix else ""
        if key != wanted:
            image.faults.append(f"task {task_id} of {name} at {start} has the key {key!r}, not {wanted!r}")
    return image


class ScheduleCrash:
    """The whole rig: server, worker, and what must hold from one image to the next."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.server = Server(folder, "sqlite", port=free_port(), pools=POOLS)
        self.images: list[Image] = []
        self.faults: list[str] = []
        self.down: list[tuple[float, float]] = []
        """Wall times of the kills, and of when a server was ready again."""
        self.acknowledged: set[str] = set()
        """Schedules that must be there; no call was in flight when the server was killed."""
        self.final: Image | None = None

    def run(self, cycles: int) -> None:
        worker = self.start_worker()
        try:
            self.server.start()
            with connect(self.server.address) as client:
                for name, fields in SCHEDULES.items():
                    self.put(client, name, **fields)
            for number in range(cycles):
                self.cycle(number, LONG_DOWN if number == 1 else 0.0)
            self.finish()
        finally:
            self.server.kill()
            end_worker(worker)

    def start_worker(self) -> "subprocess.Popen[bytes]":
        ledger = self.folder / "worker.jsonl"
        script = Path(__file__).with_name("crash_worker.py")
        command = [sys.executable, str(script), str(self.server.port), str(SLOTS), str(ledger), "default"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment())

    def put(self, client: Client, name: str, *, key: str, cron: str = EVERY_SECOND, **fields: Any) -> None:
        template = pb.TaskSpec(pool="default", kind="quick", key=key, payload=name.encode())
        request = pb.RecurringRequest(name=name, cron=cron, template=template, **fields)
        client.admin.AddRecurring(request, timeout=HANG)
        self.acknowledged.add(name)

    def cycle(self, number: int, pause: float) -> None:
        """Let the schedules fire, change one, kill at a random instant, look at what is left, start again."""
        time.sleep(self.random.uniform(0.5, 1.0))
        instant = self.random.uniform(-0.01, 0.04) if number % 2 else self.random.uniform(0.0, 1.0)
        with connect(self.server.address) as client:
            self.put(client, f"brief {number}", key=f"brief {number}")
            if number:
                name = f"brief {number - 1}"
                assert client.admin.RemoveRecurring(pb.RemoveRecurringRequest(name=name), timeout=HANG).removed
                self.acknowledged.remove(name)
        time.sleep((instant - time.time()) % 1.0)
        killed = time.time()
        self.server.kill()
        self.look(number)
        time.sleep(pause)
        self.server.start()
        self.down.append((killed, time.time()))
        with connect(self.server.address) as client:
            listed = client.admin.ListRecurring(pb.Empty(), timeout=HANG).schedules
            if {schedule.name for schedule in listed} != self.acknowledged:
                self.faults.append(f"after the restart there are {listed}, acknowledged are {self.acknowledged}")

    def look(self, number: int) -> None:
        """Read what the killed server left, in a copy: the next server finds the file as it was."""
        copy = self.folder / f"image{number}.db"
        for ending in ("", "-wal"):
            shutil.copy(f"{self.server.database}{ending}", f"{copy}{ending}")
        image = read_image(copy)
        self.faults += image.faults
        if image.names != self.acknowledged:
            self.faults.append(f"stored are {image.names}, acknowledged are {self.acknowledged}")
        for name in SCHEDULES:
            self.faults += never_back(name, self.images[-1] if self.images else None, image)
        self.images.append(image)

    def finish(self) -> None:
        """Remove every schedule, let its last task run, stop, and read the file a last time."""
        time.sleep(1.0)
        with connect(self.server.address) as client:
            for name in sorted(self.acknowledged):
                assert client.admin.RemoveRecurring(pb.RemoveRecurringRequest(name=name), timeout=HANG).removed
            wait_until(lambda: client.snapshot().live_tasks == 0, "every occurrence has ended")
        assert self.server.stop() == 0
        self.final = read_image(self.server.database)

    # --- the verdict

    def verdict(self, name: str, cycles: int) -> None:
        """Write the figures down and fail on every broken promise."""
        assert self.final is not None
        final, faults = self.final, self.faults
        faults += final.faults
        faults += self.too_early()
        missing = {name: self.missing(name) for name in ("allow", "keyless", "queue")}
        faults += [f"fires of {name} are missing: {found}" for name, found in missing.items() if found[1]]
        made = {name: len(final.tasks[name]) for name in SCHEDULES}
        record(
            name,
            cycles=cycles,
            occurrences=sum(map(len, final.tasks.values())),
            dropped_while_down={name: len(found[0]) for name, found in missing.items()},
            faults=len(faults),
            seconds_down=percentiles([ready - killed for killed, ready in self.down]),
        )
        assert not faults, faults[:10]
        assert (final.names, final.through, final.live) == (set(), {}, 0), final
        ends = {pb.TASK_STATUS_SUCCEEDED, pb.TASK_STATUS_SKIPPED, pb.TASK_STATUS_DEAD_LETTERED}
        assert set(final.statuses.values()) <= ends, final.statuses
        assert all(count > cycles for name, count in made.items() if name != "rare") and made["rare"], made
        assert missing["allow"][0], "a server that was down for so long missed some"
        self.server.check_log()

    def too_early(self) -> list[str]:
        """Occurrences that started before their time."""
        assert self.final is not None
        return [
            f"task {task_id} of {name} started at {self.final.started[task_id]}, its time is {start}"
            for name, tasks in self.final.tasks.items()
            for start, task_id in tasks.items()
            if self.final.started.get(task_id, start) < start
        ]

    def missing(self, name: str) -> tuple[list[int], list[int]]:
        """Fires between the first and the last that were not made: while the server was down, and without a cause."""
        assert self.final is not None
        log = self.server.log.read_text()
        told: set[int] = set()
        for schedule, first, last in MISSED.findall(log):
            if schedule == name:
                told.update(range(seconds(first), seconds(last or first) + 1))
        starts = {start // SECOND for start in self.final.tasks[name]}
        excused, lost = [], []
        for second in sorted(set(range(min(starts), max(starts))) - starts):
            down = any(killed - SLACK < second < ready - TOLERANCE + SLACK for killed, ready in self.down)
            cause = second in told and (down or STALLED in log)
            (excused if cause else lost).append(second)
        return excused, lost


def seconds(text: str) -> int:
    """Unix seconds of a time in a log."""
    return timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def never_back(name: str, before: Image | None, image: Image) -> list[str]:
    """What is wrong with how far a schedule has come."""
    through, last = image.through.get(name, 0), image.last_task.get(name, 0)
    tasks = image.tasks[name]
    faults = []
    if before is not None and through < before.through.get(name, 0):
        faults.append(f"{name} had come through {before.through[name]} and is now at {through}")
    if tasks and (through != max(tasks) or last != tasks[max(tasks)]):
        faults.append(f"{name} has come through {through} with task {last}, its last one is {max(tasks.items())}")
    if before is not None and not before.tasks[name].items() <= tasks.items():
        faults.append(f"occurrences of {name} are gone or changed")
    return faults


def crash_schedules(folder: Path, name: str, cycles: int) -> None:
    """Run that many cycles and judge them."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the instants: {seed}")
    rig = ScheduleCrash(folder, seed)
    rig.run(cycles)
    rig.verdict(name, cycles)
