"""A server that comes back with another configuration: what becomes of the schedules that it finds."""

import re
import sqlite3
import time
from contextlib import closing

from cronoq._proto import cronoq_pb2 as pb
from tests.acceptance.clients import Status, connect, refused, wait_until
from tests.acceptance.server import HANG
from tests.acceptance.workers import serving

POOL = '[[pools]]\nname = "{}"\nmax = 100\n'
BOTH = POOL.format("default") + POOL.format("old")
DEFAULT = POOL.format("default")
GPU = '[[resources]]\nname = "gpu"\nkind = "semaphore"\npermits = 2\n'
NIGHTLY = '[[recurring]]\nname = "nightly"\ncron = "0 3 * * *"\nkind = "report"\n'
EVERY_SECOND = "* * * * * *"
SECOND = 1_000_000_000


def add(client, name, cron=EVERY_SECOND, overlap=pb.OVERLAP_ALLOW, **template):
    request = pb.RecurringRequest(
        name=name, cron=cron, overlap=overlap, template=pb.TaskSpec(**{"key": name, **template})
    )
    client.admin.AddRecurring(request, timeout=HANG)


def remove(client, name):
    return client.admin.RemoveRecurring(pb.RemoveRecurringRequest(name=name), timeout=HANG).removed


def schedules(client):
    found = client.admin.ListRecurring(pb.Empty(), timeout=HANG).schedules
    return {schedule.name: schedule for schedule in found}


def armed(client):
    """Whether each schedule has a next occurrence."""
    return {name: schedule.HasField("next_unix_ns") for name, schedule in schedules(client).items()}


def restart(server, end, **tables):
    """End the server, start it with other tables; what it logged of schedules at this start."""
    getattr(server, end)()
    server.configure(**tables)
    server.start()
    return [line for line in server.output().splitlines() if "part=term" in line and "schedule" in line]


def keys(server, prefix):
    """The keys of all tasks of a schedule, in their order. The server is stopped."""
    with closing(sqlite3.connect(server.database)) as connection:
        rows = connection.execute("SELECT key FROM cronoq_trio_tasks ORDER BY id").fetchall()
    return [key for (key,) in rows if key.startswith(f"{prefix}@")]


def rows(server):
    """Name and number of each stored definition; one that is written anew has another number."""
    with closing(sqlite3.connect(server.database)) as connection:
        return dict(connection.execute("SELECT name, id FROM cronoq_trio_recurring"))


def test_a_schedule_of_a_pool_that_is_gone_waits_for_it_to_come_back(start):
    server = start("sqlite", pools=BOTH)
    with connect(server.address) as client, serving(client.channel, pool="old"):
        add(client, "kept", "0 0 1 1 *")
        add(client, "lost", pool="old")
        wait_until(lambda: schedules(client)["lost"].last_task_id, "it has fired")
        time.sleep(1.0)
    told = restart(server, "kill", pools=DEFAULT)
    assert re.search(r"schedules +part=term armed=1 not_armed=1", told[0])
    assert "a schedule does nothing" in told[1] and "schedule=lost" in told[1] and "'old'" in told[1]
    with connect(server.address) as client:
        assert armed(client) == {"kept": True, "lost": False}
        last = schedules(client)["lost"].last_task_id
        time.sleep(1.1)
        assert schedules(client)["lost"].last_task_id == last, "it does nothing"
        with refused(Status.INVALID_ARGUMENT, "unknown pool 'old'"):
            add(client, "lost", pool="old")
    told = restart(server, "kill", pools=BOTH)
    assert len(told) == 1 and "armed=2 not_armed=0" in told[0]
    with connect(server.address) as client, serving(client.channel, pool="old"):
        assert armed(client) == {"kept": True, "lost": True}
        wait_until(lambda: schedules(client)["lost"].last_task_id > last, "it fires again")
        assert remove(client, "lost")
        wait_until(lambda: client.snapshot().live_tasks == 0, "its last task has ended")
    assert server.stop() == 0
    made = keys(server, "lost")
    assert made == sorted(set(made)) and len(made) >= 3, "each occurrence once, in its order"


def test_a_schedule_of_a_resource_that_is_gone_or_became_too_small(start):
    server = start("sqlite", extra=GPU)
    with connect(server.address) as client:
        add(client, "needs two", "0 0 1 1 *", resources={"gpu": 2})
        add(client, "needs one", "0 0 1 1 *", resources={"gpu": 1})
    told = restart(server, "kill", extra=GPU.replace("permits = 2", "permits = 1"))
    assert len(told) == 2 and "schedule='needs two'" in told[1] and "gpu" in told[1]
    with connect(server.address) as client:
        assert armed(client) == {"needs one": True, "needs two": False}
    told = restart(server, "kill", extra="")
    assert "armed=0 not_armed=2" in told[0]
    with connect(server.address) as client:
        assert remove(client, "needs one"), "one that does nothing can be removed"
        assert armed(client) == {"needs two": False}
    told = restart(server, "kill", extra=GPU)
    assert len(told) == 1
    with connect(server.address) as client:
        assert armed(client) == {"needs two": True}


# --- the configuration file


def test_a_schedule_of_the_file_is_there_until_the_file_has_it_no_more(start):
    often = NIGHTLY.replace("0 3 * * *", EVERY_SECOND) + 'key = "n"\n'
    server = start("sqlite", extra=often)
    with connect(server.address) as client:
        wait_until(lambda: schedules(client)["nightly"].last_task_id, "it has fired")
        for call in (lambda: add(client, "nightly"), lambda: remove(client, "nightly")):
            with refused(Status.FAILED_PRECONDITION, "nightly", "configuration file"):
                call()
        add(client, "called", "0 0 1 1 *")
    told = restart(server, "stop", extra="")
    gone = [line for line in told if "a schedule was removed: the configuration file does not have it any more" in line]
    assert len(gone) == 1 and gone[0].endswith("schedule=nightly") and "armed=1 not_armed=0" in told[0]
    with connect(server.address) as client:
        assert set(schedules(client)) == {"called"}
        assert client.snapshot().live_tasks, "its tasks stay"
        add(client, "nightly", "0 0 1 1 *")
    assert len(restart(server, "stop", extra="")) == 1, "now it is a caller's"
    with connect(server.address) as client:
        assert armed(client) == {"called": True, "nightly": True}


def test_the_file_wins_over_what_is_stored_and_writes_only_what_is_different(start):
    server = start("sqlite")
    with connect(server.address) as client:
        add(client, "nightly", "0 0 1 1 *", kind="other")
        add(client, "called", "0 0 1 1 *")
    before = rows(server)
    text = NIGHTLY + (
        'tz = "Europe/Helsinki"\noverlap = "queue"\ndst_gap = "skip"\ndst_fold = "both"\ntolerance_s = 5\n'
        'on_miss = "skip"\ndeadline_in_s = 60\ntenant = "acme"\npriority = "high"\ntags = { a = "b" }\n'
    )
    restart(server, "kill", extra=text + NIGHTLY.replace("nightly", "bare"))
    with connect(server.address) as client:
        shown = schedules(client)["nightly"]
        assert (shown.cron, shown.kind, shown.tz) == ("0 3 * * *", "report", "Europe/Helsinki")
        assert shown.next_unix_ns // SECOND % 86_400 in (0, 3_600), "03:00 in Helsinki"
        with refused(Status.FAILED_PRECONDITION, "nightly"):
            remove(client, "nightly")
    first = rows(server)
    assert set(first) == {"nightly", "called", "bare"}
    assert first["nightly"] != before["nightly"] and first["called"] == before["called"]
    restart(server, "kill")
    assert rows(server) == first, "the same file says the same again"


def test_on_the_memory_store_the_file_alone_remains(start):
    server = start("memory", extra=NIGHTLY)
    with connect(server.address) as client:
        add(client, "called", "0 0 1 1 *")
        assert armed(client) == {"called": True, "nightly": True}
    restart(server, "stop")
    with connect(server.address) as client:
        assert armed(client) == {"nightly": True}
