"""A worker that keeps all rules: heartbeats, failures, aborts, and an orderly end."""

import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto.cronoq_pb2_grpc import WorkersStub

SLOTS = 4
outgoing = queue.SimpleQueue()
running = {}  # lease -> an event that tells its handler to give up
draining = threading.Event()


def handle(payload, aborted):
    """The work itself; looks at `aborted` now and then. Raising means: try again later."""
    return payload.upper()


def run(lease, aborted):
    """One attempt: its outcome is reported exactly once, unless the server gave it up."""
    try:
        output = handle(lease.payload, aborted)
        report = pb.WorkerMessage(complete=pb.Complete(lease=lease.lease, output=output))
    except Exception as error:
        permanent = isinstance(error, ValueError)  # no retry makes a bad payload good
        report = pb.WorkerMessage(fail=pb.Fail(lease=lease.lease, message=str(error), permanent=permanent))
    if running.pop(lease.lease, None) is not None:
        outgoing.put(report)
    finish_when_drained()


def beat(interval):
    """Heartbeats for everything that runs, three times per time-to-live."""
    while True:
        time.sleep(interval)
        for lease in list(running):
            outgoing.put(pb.WorkerMessage(heartbeat=pb.Heartbeat(lease=lease)))


def drain(*_):
    """No new work; what runs may finish."""
    draining.set()
    outgoing.put(pb.WorkerMessage(set_slots=pb.SetSlots(slots=0)))
    finish_when_drained()


def finish_when_drained():
    if draining.is_set() and not running:
        outgoing.put(None)  # ends our side of the stream


def main():
    signal.signal(signal.SIGTERM, drain)
    outgoing.put(pb.WorkerMessage(register=pb.Register(pool="default", slots=SLOTS, protocol_version=3)))
    with grpc.insecure_channel("127.0.0.1:7070") as channel, ThreadPoolExecutor(SLOTS) as threads:
        for message in WorkersStub(channel).Work(iter(outgoing.get, None)):
            which = message.WhichOneof("msg")
            if which == "registered":
                threading.Thread(target=beat, args=[message.registered.lease_ttl_s / 3], daemon=True).start()
            elif which == "lease":
                aborted = running[message.lease.lease] = threading.Event()
                threads.submit(run, message.lease, aborted)
            elif which == "abort":
                aborted = running.pop(message.abort.lease, None)
                if aborted:
                    aborted.set()
                outgoing.put(pb.WorkerMessage(cancelled=pb.Cancelled(lease=message.abort.lease)))
            elif which == "shutdown":
                print("the server stops:", message.shutdown.reason)


if __name__ == "__main__":
    main()
