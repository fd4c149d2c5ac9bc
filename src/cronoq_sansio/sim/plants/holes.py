"""Bugs that the simulator does not find, or too seldom to be counted on: what it cannot be trusted with yet.

They are measured and shown like the others, so that nobody takes the list of those that are found for all there are.
"""

from typing import Any

from cronoq_sansio.engine import dispatch
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.service import calls, listing
from cronoq_sansio.service.messages import Complete
from cronoq_sansio.service.workers import Workers
from cronoq_sansio.sim.plants.planting import Bed, Patch

BED = Bed()
plant = BED.plant


@plant
def what_one_step_leaves_over_is_forgotten(patch: Patch) -> None:
    """When a step has run out of units nobody is told that there is more to do; few worlds are large enough for it."""

    def make(before: Any) -> Any:
        def next_timeout(self: Any) -> Any:
            known, self._more = self._more, False
            due = before(self)
            self._more = known
            return due

        return next_timeout

    patch.wrap(Engine, "next_timeout", make)


@plant
def overdue_tasks_rise_faster(patch: Patch) -> None:
    """A task past its deadline rises twice as fast as it should, which seldom changes who goes first."""
    patch.setattr(dispatch, "OVERDUE", 2 * dispatch.OVERDUE)


@plant
def the_store_is_asked_for_a_task_too_early(patch: Patch) -> None:
    """The store is asked for a task before it has what was written, and shows a state that was true a moment ago."""
    patch.wrap(calls, "ReadStore", lambda before: lambda query, _after: before(query, 0))


@plant
def failures_without_words_are_successes(patch: Patch) -> None:
    """A failure with an empty message counts as a success; no worker here fails without words."""

    def make(before: Any) -> Any:
        def fail(self: Any, session: Any, message: Any) -> None:
            if message.message:
                before(self, session, message)
            else:
                self._complete(session, Complete(message.lease, b"", ""))

        return fail

    patch.wrap(Workers, "_fail", make)


@plant
def the_store_is_asked_for_a_page_too_early(patch: Patch) -> None:
    """The store is asked for a page of a listing before it has what was written, and leaves out what has just ended."""
    patch.wrap(listing, "ReadStore", lambda before: lambda query, _after: before(query, 0))
