"""A worker with four slots on the pool `default`: answers each task with its payload in capitals."""

import queue
import sys

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto.cronoq_pb2_grpc import WorkersStub

outgoing = queue.SimpleQueue()
outgoing.put(pb.WorkerMessage(register=pb.Register(pool="default", slots=4, worker_name="readme", protocol_version=3)))

try:
    with grpc.insecure_channel("127.0.0.1:7070") as channel:
        for message in WorkersStub(channel).Work(iter(outgoing.get, None)):
            if message.HasField("registered"):
                print("worker", message.registered.worker_id, "is ready", flush=True)
            if message.HasField("lease"):
                lease = message.lease
                print("task", lease.task_id, "attempt", lease.attempt, lease.payload, flush=True)
                outgoing.put(pb.WorkerMessage(complete=pb.Complete(lease=lease.lease, output=lease.payload.upper())))
except grpc.RpcError as error:
    sys.exit(f"the stream has ended: {error.details()}")
except KeyboardInterrupt:
    pass
