"""Ids of tasks and leases: who issues them and how they are laid out (engine.md section 1).

A term, the time between winning leadership and losing it, has an *epoch*, 1..32767. With a durable store the first task
id of a term is ``epoch << 48 | 1``, so that two terms never issue the same id and a signed 64-bit column holds it. The
memory store has no epoch that survives: its first id is ``(Unix seconds at start) << 24 | 1``, so that an id of an
earlier process does not name another task (server.md section 14.38).

The task id is also the submission sequence, the FIFO tie-break inside a class: ids are issued in the order of admission
and always above every id issued before, over all terms.
"""

MAX_EPOCH = 32_767
EPOCH_SHIFT = 48
MEMORY_SHIFT = 24


def next_epoch(epoch: int) -> int:
    """The epoch of the term after ``epoch``: 1..32767, then 1 again."""
    return epoch % MAX_EPOCH + 1


def first_id(epoch: int, highest_issued: int = 0) -> int:
    """The first task id of a term on a durable store; ``highest_issued`` counts pruned tasks too.

    A sequence that overflowed its 48 bits spilled over into the epoch, and epochs start again after 32767: both are the
    reason why the highest id issued ever is asked for.
    """
    return max(epoch << EPOCH_SHIFT | 1, highest_issued + 1)


def first_memory_id(unix_seconds: int, highest_issued: int = 0) -> int:
    """The first task or lease id of a term on the memory store."""
    return max(unix_seconds << MEMORY_SHIFT | 1, highest_issued + 1)
