"""What the log says of a recovery: tasks that the configuration ended, schedules that do nothing, or that are gone."""

from collections.abc import Sequence

from cronoq._observe.logs import get_logger

log = get_logger("term")

MAX_REASONS = 10
"""Lines about tasks that recovery ended; a sum is told of further reasons, and nobody reads more lines."""
MAX_NAMES = 20
"""Lines about single schedules, of each kind; the others are counted."""


def tell_hopeless(counts: dict[str, int], skipped: int) -> None:
    """Log which tasks the configuration ended, the most frequent reason first, and how many were skipped meanwhile."""
    if not counts:
        return
    remedy = (
        "what ended stays so; put back what is missing before a start: "
        "a copy of the database from before this one still has the tasks"
    )
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for reason, count in ordered[:MAX_REASONS]:
        log.warning("tasks ended for good, as failed", tasks=count, reason=reason, remedy=remedy)
    rest = sum(count for _, count in ordered[MAX_REASONS:])
    if rest:
        log.warning("tasks ended for good, as failed", tasks=rest, reason="further reasons", remedy=remedy)
    if skipped:
        reason = "what they depend on has ended otherwise than they ask for"
        log.warning("tasks ended for good, as skipped", tasks=skipped, reason=reason)


def tell_schedules(schedules: int, unarmed: int, notes: Sequence[tuple[str, str]], removed: Sequence[str]) -> None:
    """Log how many schedules there are, which ones do nothing and why, and which ones the file no longer has.

    `unarmed` of the `schedules` do nothing; `notes` has name and reason of the first of them.
    """
    if schedules:
        log.info("schedules", armed=schedules - unarmed, not_armed=unarmed)
    remedy = "it stays stored; put back what is missing before the next start, or replace or remove the schedule"
    for name, reason in notes[:MAX_NAMES]:
        log.warning("a schedule does nothing", schedule=name, reason=reason, remedy=remedy)
    rest = unarmed - min(len(notes), MAX_NAMES)
    if rest > 0:
        log.warning("further schedules do nothing", schedules=rest)
    for name in removed[:MAX_NAMES]:
        log.info("a schedule was removed: the configuration file does not have it any more", schedule=name)
    if len(removed) > MAX_NAMES:
        log.info("further schedules were removed, as the configuration file says", schedules=len(removed) - MAX_NAMES)
