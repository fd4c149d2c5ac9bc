"""A worker that keeps all rules: heartbeats, failures, aborts, an orderly end, and connecting again."""

import itertools
import os
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto.cronoq_pb2_grpc import WorkersStub

ADDRESS = "127.0.0.1:7070"
SLOTS = 4
HEARTBEAT, REPORT, END = range(3)  # what goes out first: a heartbeat must not wait behind a large output
draining = threading.Event()


def handle(payload, aborted):
    """The work itself; looks at `aborted` now and then. Raising means: try again later."""
    return payload.upper()


class Session:
    """One stream, from its Register to its end. What ran on it is lost with it: the server has it tried again."""

    def __init__(self):
        self.outgoing = queue.PriorityQueue()
        self.count = itertools.count()
        self.running = {}  # lease -> an event that tells its handler to give up
        self.registered = False
        self.over = threading.Event()

    def send(self, rank=REPORT, outcome_of=None, **fields):
        self.outgoing.put((rank, next(self.count), outcome_of, pb.WorkerMessage(**fields)))

    def requests(self):
        """What gRPC sends. It asks for the next message when the one before has left."""
        yield pb.WorkerMessage(register=pb.Register(pool="default", slots=SLOTS, protocol_version=3))
        while True:
            rank, _, outcome_of, message = self.outgoing.get()
            if rank == END:
                return
            yield message
            self.running.pop(outcome_of, None)  # only now: until its outcome has left, a lease needs heartbeats
            self.end_when_drained()

    def run(self, lease, aborted):
        """One attempt: its outcome is reported exactly once, unless the server gave it up."""
        try:
            output = handle(lease.payload, aborted)
            outcome = {"complete": pb.Complete(lease=lease.lease, output=output)}
        except Exception as error:
            permanent = isinstance(error, ValueError)  # no retry makes a bad payload good
            outcome = {"fail": pb.Fail(lease=lease.lease, message=str(error), permanent=permanent)}
        if not aborted.is_set():
            self.send(outcome_of=lease.lease, **outcome)

    def beat(self, interval):
        """Heartbeats for everything that runs, three times per time-to-live."""
        while not self.over.wait(interval):
            for lease in list(self.running):
                self.send(HEARTBEAT, heartbeat=pb.Heartbeat(lease=lease))

    def drain(self):
        """No new work; what runs may finish."""
        self.send(set_slots=pb.SetSlots(slots=0))
        self.end_when_drained()

    def end_when_drained(self):
        if draining.is_set() and not self.running:
            self.outgoing.put((END, next(self.count), None, None))  # ends our side of the stream

    def work(self, threads):
        """Talk to the server until the stream ends."""
        try:
            # The server bounds its messages itself; gRPC would refuse those above 4 MiB.
            options = [("grpc.max_receive_message_length", -1)]
            with grpc.insecure_channel(ADDRESS, options=options) as channel:
                for message in WorkersStub(channel).Work(self.requests()):
                    self.receive(message, threads)
        except grpc.RpcError as error:
            print("the stream ended:", error.details(), flush=True)
        finally:
            self.over.set()
            for aborted in list(self.running.values()):
                aborted.set()
            self.outgoing.put((END, next(self.count), None, None))

    def receive(self, message, threads):
        which = message.WhichOneof("msg")
        if which == "registered":
            self.registered = True
            interval = message.registered.lease_ttl_s / 3
            threading.Thread(target=self.beat, args=[interval], daemon=True).start()
            if draining.is_set():
                self.drain()
        elif which == "lease":
            aborted = self.running[message.lease.lease] = threading.Event()
            threads.submit(self.run, message.lease, aborted)
        elif which == "abort":
            aborted = self.running.pop(message.abort.lease, None)
            if aborted:
                aborted.set()
            self.send(cancelled=pb.Cancelled(lease=message.abort.lease))
        elif which == "shutdown":
            print("the server stops:", message.shutdown.reason, flush=True)


def main():
    # Signals are taken by a thread of its own, so that it may use locks; a signal handler may not.
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    session, pause = Session(), 0.2

    def drain():
        signal.sigwait(stops)
        draining.set()
        session.drain()
        signal.sigwait(stops)
        os._exit(1)  # a second one: at once, the server has the tasks tried again

    threading.Thread(target=drain, daemon=True).start()
    with ThreadPoolExecutor(SLOTS) as threads:
        while True:
            session.work(threads)
            pause = 0.2 if session.registered else min(2 * pause, 10)
            if draining.wait(pause):
                return
            session = Session()


if __name__ == "__main__":
    main()
