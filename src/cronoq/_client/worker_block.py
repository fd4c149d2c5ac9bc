"""`async with worker:` for whatever has `run`, `stop` and `wait_registered`."""

from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from cronoq.errors import ClientError


class ServingBlock:
    """Serves while the block runs, and stops gracefully at its end.

    What `run` raises ends the block and is raised where it ends. What the block raises comes out as it is, after
    handlers were cut off.
    """

    _block: TaskGroup | None = None
    _failure_in_block: BaseException | None = None

    async def run(self, *, task_status: Any = None) -> None:
        """Serve until stopped."""
        raise NotImplementedError

    async def stop(self, grace: float | None = None) -> None:
        """End `run`."""
        raise NotImplementedError

    async def wait_registered(self, timeout: float | None = None) -> None:
        """Until it serves."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Serve in the background; returns once registered, raises what `run` raises."""
        if self._block is not None:
            raise RuntimeError("this worker is running already")
        self._failure_in_block = None
        self._block = block = anyio.create_task_group()
        await block.__aenter__()
        try:
            await block.start(self._run_in_block)
        except BaseException as error:
            await self._leave_block(error)
            if self._failure_in_block is not None:
                raise self._failure_in_block from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not _is_cancelled(error):
            try:
                await self.stop(None if error is None else 0)
            except BaseException as interruption:
                await self._leave_block(interruption)
                raise
        return await self._leave_block(error)

    async def _run_in_block(self, *, task_status: Any) -> None:
        try:
            await self.run(task_status=task_status)
        except BaseException as error:
            if _is_cancelled(error):
                raise
            self._failure_in_block = error
            block = self._block
            if block is not None:
                block.cancel_scope.cancel()

    async def _leave_block(self, error: BaseException | None) -> bool:
        """Join `run`; raise what it has failed with. Whether it swallowed `error`, which only tells of that failure."""
        block, self._block = self._block, None
        assert block is not None
        failure = self._failure_in_block
        block.cancel_scope.cancel()
        swallowed = False
        if error is not None and _is_cancelled(error):
            swallowed = bool(await block.__aexit__(type(error), error, None))
        else:
            # The block's own error is not handed over: it would come back in an exception group.
            await block.__aexit__(None, None, None)
        if failure is not None and (error is None or _is_cancelled(error) or isinstance(error, ClientError)):
            raise failure
        return swallowed


def _is_cancelled(error: BaseException | None) -> bool:
    return isinstance(error, anyio.get_cancelled_exc_class())
