"""Several workers as one: the sessions of a registry that spans pools."""

from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup, TaskStatus

from cronoq._client.worker import Worker
from cronoq._client.worker_block import ServingBlock
from cronoq.errors import ClientError


class TasksWorker(ServingBlock):
    """Runs the handlers of a registry: one `Worker` for each pool. Made by `Tasks.worker`.

    What is said of `Worker` about `run`, `stop`, `wait_registered` and `async with` holds here too. When one of the
    sessions fails, the others stop gracefully, and then `run` raises what it failed with.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = {worker.pool: worker for worker in workers}
        """By pool."""
        self._failure: BaseException | None = None
        self._running = False
        self._stopping = False

    @property
    def running(self) -> int:
        """Leases held now."""
        return sum(worker.running for worker in self.workers.values())

    async def run(self, *, task_status: TaskStatus[None] | None = None) -> None:
        """Serve all pools until `stop`; `task_status.started()` once all are registered."""
        if self._running:
            raise RuntimeError("this worker is running already")
        self._running, self._stopping, self._failure = True, False, None
        try:
            async with anyio.create_task_group() as tasks:
                waiting = anyio.CancelScope()
                tasks.start_soon(self._tell, task_status, waiting)
                async with anyio.create_task_group() as sessions:
                    for worker in self.workers.values():
                        sessions.start_soon(self._serve, worker, sessions)
                waiting.cancel()
        finally:
            self._running = False
        if self._failure is not None:
            raise self._failure

    async def _serve(self, worker: Worker, sessions: TaskGroup) -> None:
        if self._failure is not None or self._stopping:
            return
        try:
            await worker.run()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            if self._failure is None:
                self._failure = error
                for other in self.workers.values():
                    sessions.start_soon(other.stop)

    async def _tell(self, task_status: TaskStatus[None] | None, waiting: anyio.CancelScope) -> None:
        with waiting:
            try:
                await self.wait_registered()
            except (ClientError, RuntimeError):
                return  # `run` raises what it was
            if task_status is not None:
                task_status.started()

    async def stop(self, grace: float | None = None) -> None:
        """Stop all sessions; see `Worker.stop`."""
        self._stopping = True
        async with anyio.create_task_group() as tasks:
            for worker in self.workers.values():
                tasks.start_soon(worker.stop, grace)

    async def wait_registered(self, timeout: float | None = None) -> None:
        """Until all pools are served; see `Worker.wait_registered`."""
        with anyio.fail_after(timeout):
            for worker in self.workers.values():
                try:
                    await worker.wait_registered()
                except ClientError as error:
                    raise self._failure or error from None
