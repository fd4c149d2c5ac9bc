"""A server of `cronoq.v1` on grpcio: it answers with what the test puts into `answers`, and keeps what it was asked."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from cronoq.client import Client

UNARY = (
    *("Submit", "SubmitBatch", "Cancel", "Get", "ListTasks", "Wait"),
    *("Snapshot", "AddRecurring", "RemoveRecurring", "ListWorkers", "ListRecurring"),
)


class Refusal(Exception):
    """An answer that is a status."""

    def __init__(self, code: grpc.StatusCode, text: str = "", *metadata: tuple[str, str | bytes]) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.metadata = metadata


class ForeignServer:
    """`answers[method]` is a message, a `Refusal`, a function of the request, or a list of these: one for each call."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []
        self.compression = grpc.Compression.NoCompression
        self.watchers_gone = threading.Semaphore(0)
        self._server = grpc.server(ThreadPoolExecutor(20), options=[("grpc.so_reuseport", 0)])
        methods = {name: self._unary(name) for name in UNARY}
        tasks = type("Tasks", (stubs.TasksServicer,), {**methods, "Watch": self._watch})()
        admin = type("Admin", (stubs.AdminServicer,), methods)()
        workers = type("Workers", (stubs.WorkersServicer,), {"Work": self._work})()
        stubs.add_TasksServicer_to_server(tasks, self._server)
        stubs.add_AdminServicer_to_server(admin, self._server)
        stubs.add_WorkersServicer_to_server(workers, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "ForeignServer":
        self._server.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.stop(None).wait()

    def reset(self, **answers: Any) -> None:
        """Forget what was asked; from now on answer with these."""
        self.answers = answers
        self.asked.clear()
        self.metadata.clear()

    def _decide(self, name: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.asked.append((name, request))
        self.metadata.append(dict(context.invocation_metadata()))
        answer = self.answers[name]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Refusal):
            context.set_trailing_metadata(answer.metadata)
            context.abort(answer.code, answer.text)
        return answer

    def _unary(self, name: str) -> Any:
        def method(_self: Any, request: Any, context: grpc.ServicerContext) -> Any:
            context.set_compression(self.compression)
            answer = self._decide(name, request, context)
            if isinstance(answer, tuple):
                answer, metadata = answer
                context.set_trailing_metadata(metadata)
            return answer

        return method

    def _watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The answer is a list of events; "hang" waits until the caller has gone."""
        self.asked.append(("Watch", request))
        context.add_callback(self.watchers_gone.release)
        context.send_initial_metadata((("x-subscribed", "yes"),))
        gone = threading.Event()
        context.add_callback(gone.set)
        for answer in self.answers["Watch"]:
            if answer == "hang":
                gone.wait(30)
            elif isinstance(answer, Refusal):
                context.abort(answer.code, answer.text)
            else:
                yield answer

    def _work(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Each message comes back as a lease with its output as payload."""
        for request in requests:
            if request.WhichOneof("msg") == "complete":
                complete = request.complete
                yield pb.ServerMessage(lease=pb.Lease(lease=complete.lease, payload=complete.output))
            else:
                yield pb.ServerMessage(registered=pb.Registered(worker_id=1, slots=request.register.slots))


LATE = Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "the task has not ended in the time to wait")
DOWN = Refusal(grpc.StatusCode.UNAVAILABLE, "not the leader")
FULL = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "pool 'default' has 5 pending tasks")
DONE = pb.TaskResult(id=7, status=pb.TASK_STATUS_SUCCEEDED, output=b"{}", output_available=True)
INFO = pb.TaskInfo(
    id=9,
    status=pb.TASK_STATUS_RUNNING,
    pool="p",
    key="k",
    kind="kind",
    attempt=2,
    max_attempts=3,
    created_unix_ns=1_700_000_000_123_456_789,
    started_unix_ns=0,
    message="m",
    tenant="t",
    priority=pb.PRIORITY_LOW,
)


def each(run: Callable[..., Any], foreign: ForeignServer, function: Any, **options: Any) -> Any:
    """Run `function(client)` with a client of the foreign server."""

    async def main() -> Any:
        async with Client(foreign.address, **options) as client:
            return await function(client)

    return run(main)
