"""Pages of very many tasks cost what they look at, hold up nobody, and read neither payloads nor outputs."""

import os
import threading
import time
from pathlib import Path

import pytest

from cronoq._proto import cronoq_pb2 as pb
from cronoq_sansio.limits import MAX_LIST_SCAN
from tests.acceptance.clients import connect, word
from tests.acceptance.ledger import percentiles, record
from tests.acceptance.server import HANG
from tests.acceptance.workers import Worker, serving

LIVE = 200_000
BATCH = 1_000
STORES = ["memory"]
SERVER = {
    "pools": "".join(f'[[pools]]\nname = "{name}"\nmax = 100\n' for name in ("default", "rare", "busy")),
    "limits": f"max_pending_per_pool = {2 * LIVE}",
}
RETRYING, RUNNING, READY = pb.TASK_STATUS_RETRYING, pb.TASK_STATUS_RUNNING, pb.TASK_STATUS_READY


def page(client, **fields):
    return client.tasks.ListTasks(pb.ListTasksRequest(**fields), timeout=HANG)


def pages(client, **fields):
    """Each page up to the last one."""
    after = 0
    while True:
        answer = page(client, after=after, **fields)
        yield answer
        if not answer.next_after:
            return
        after = answer.next_after


@pytest.fixture(scope="module")
def crowd(server):
    """Their ids follow each other; those at 50,000 and 150,000 are of the pool `rare`."""
    with connect(server.address) as client:
        common, mixed = [pb.TaskSpec()] * BATCH, [*[pb.TaskSpec()] * (BATCH - 1), pb.TaskSpec(pool="rare")]
        ids = []
        for number in range(LIVE // BATCH):
            specs = mixed if number in (49, 149) else common
            reply = client.tasks.SubmitBatch(pb.SubmitBatchRequest(tasks=specs), timeout=HANG)
            ids += [member.id for member in reply.tasks]
        assert ids == list(range(ids[0], ids[0] + LIVE))
        yield ids


def test_a_filter_that_nothing_passes_goes_on_in_pages_of_bounded_work(client, crowd):
    """Each page says how far it has looked."""
    found = list(pages(client, statuses=[RETRYING, RUNNING], limit=1_000))
    assert not any(answer.tasks for answer in found)
    ends = [answer.next_after for answer in found]
    assert ends == [*crowd[MAX_LIST_SCAN - 1 : -1 : MAX_LIST_SCAN], 0]


def test_other_pools_are_not_looked_through(client, crowd):
    for fields in ({}, {"statuses": [READY]}, {"statuses": [READY, RETRYING], "limit": 1}):
        answers = list(pages(client, pools=["rare"], **fields))
        assert len(answers) == (2 if "limit" in fields else 1)
        assert [info.id for answer in answers for info in answer.tasks] == [crowd[49_999], crowd[149_999]]
    assert page(client, pools=["busy"]).next_after == 0


def test_pages_begin_anywhere(client, crowd):
    for position in (0, 99_999, LIVE - 101, LIVE - 50):
        answer = page(client, after=crowd[position] - 1)
        assert [info.id for info in answer.tasks] == crowd[position : position + 100]
        assert answer.next_after == (crowd[position + 99] if position + 100 < LIVE else 0)


def test_others_are_served_while_somebody_lists(client, server, crowd):
    """A worker gets its leases and a caller its answers while two look for what is not there, over and over."""
    stop = threading.Event()
    looked = []

    def look():
        with connect(server.address) as lister:
            while not stop.is_set():
                for answer in pages(lister, statuses=[RETRYING]):
                    looked.append(len(answer.tasks))
                    if stop.is_set():
                        return

    listers = [threading.Thread(target=look) for _ in range(2)]
    for lister in listers:
        lister.start()
    taken = []
    try:
        with Worker(client.channel, pool="busy", slots=1) as worker:
            while len(taken) < 100 or len(looked) < 4 * LIVE // MAX_LIST_SCAN:
                begun = time.monotonic()
                task_id = client.submit(pool="busy").id
                lease = worker.lease()
                assert lease.task_id == task_id
                worker.complete(lease.lease)
                assert word(client.wait(task_id).status) == "succeeded"
                taken.append(time.monotonic() - begun)
    finally:
        stop.set()
        for lister in listers:
            lister.join(HANG)
    record("one task beside listings of 200,000", seconds=percentiles(taken), pages=len(looked))
    assert sorted(taken)[len(taken) // 2] < 0.5, "three calls and a lease, beside 2 ms of looking each; 15 ms measured"


# --- the store

COUNT, SIZE = 40, 512 << 10


def bytes_read(server):
    """What the process of the server has read so far, from files and sockets."""
    counts = Path(f"/proc/{server.pid}/io")
    if not os.access(counts, os.R_OK):
        pytest.skip("this system does not count what a process reads")
    return int(dict(line.split(": ") for line in counts.read_text().splitlines())["rchar"])


def test_pages_and_looks_read_neither_payloads_nor_outputs_from_the_store(start):
    """Of the 20 MiB of each that lie there. A Wait reads the one output that it brings."""
    server = start("sqlite", outputs="cache_entries = 0\ninfo_entries = 0")
    with connect(server.address) as client, serving(client.channel):
        replies = [
            client.submit(wait=True, key=f"k{number}", payload=os.urandom(SIZE), tenant=f"t{number}")
            for number in range(COUNT)
        ]
        assert all(len(reply.result.output) == SIZE for reply in replies)
        waiting = client.submit(pool="default", labels={"no": "body"}, payload=os.urandom(SIZE)).id
    assert server.stop() == 0
    server.start()
    with connect(server.address) as client:
        client.snapshot()
        before = bytes_read(server)
        infos = [info for answer in pages(client, limit=7) for info in answer.tasks]
        assert [(info.key, info.tenant, info.output_available) for info in infos] == [
            *((f"k{number}", f"t{number}", True) for number in range(COUNT)), ("", "", False)
        ]  # fmt: skip
        assert len(page(client, statuses=[pb.TASK_STATUS_SUCCEEDED], pools=["default"]).tasks) == COUNT
        assert client.get("k7") == client.get(replies[7].id) == infos[7]
        assert infos[-1].id == waiting
        assert bytes_read(server) - before < SIZE
        assert client.wait("k7").output == replies[7].result.output
        assert bytes_read(server) - before >= SIZE
