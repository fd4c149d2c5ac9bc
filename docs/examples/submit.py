"""Submits a task, waits for its end and prints what came back."""

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto.cronoq_pb2_grpc import TasksStub

with grpc.insecure_channel("127.0.0.1:7070") as channel:
    task = pb.TaskSpec(pool="default", kind="shout", payload=b"hello", key="greeting-1")
    reply = TasksStub(channel).Submit(pb.SubmitRequest(task=task, wait=True))
    print("task", reply.id, pb.TaskStatus.Name(reply.result.status), reply.result.output)
