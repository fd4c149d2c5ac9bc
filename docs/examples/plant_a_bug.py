"""Plants a bug into a copy of a rule, lets the simulator find it, and shows the shortest way to it."""

from cronoq_sansio.engine import lifecycle, retry
from cronoq_sansio.sim import run, shrunk
from cronoq_sansio.sim.plants import Patch


def retry_or_bury(engine, task, message, retry_after=0):
    """`lifecycle.retry_or_bury`, copied, with one character too many."""
    if task.attempt >= task.max_attempts + 1:
        lifecycle._end(engine, task, lifecycle.DEAD_LETTERED, message)
        return
    delay = retry.delay(task.retry, task.attempt + 1, retry_after, engine.random)
    task.message = message
    engine.totals.retries += 1
    lifecycle.back_off(engine, task, engine.now + delay)
    lifecycle._count_pending(engine, task, +1)
    lifecycle.store(engine, task, engine.wall(delay))
    if engine.watched:
        lifecycle._tell(engine, task, lifecycle.RETRYING, message)


if __name__ == "__main__":
    patch = Patch()
    patch.setattr(lifecycle, "retry_or_bury", retry_or_bury)
    try:
        failure = run(seeds=50, world="server").failures[0]
        print(f"seed {failure.seed}, after {failure.step} steps: {failure.what}")
        short = shrunk(failure, budget=40_000)
        print(f"after {len(short.trace.steps)} steps:")
        print(short.transcript)
        print(short.details)
    finally:
        patch.undo()
