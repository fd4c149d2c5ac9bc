"""One line that says how the server is doing, logged on SIGUSR1 (a metrics port is not built yet)."""

from typing import TYPE_CHECKING, Any

from cronoq._observe.logs import get_logger
from cronoq._runtime.committer import CommitFigures
from cronoq_sansio.clock import MILLISECOND

if TYPE_CHECKING:
    from cronoq._runtime.lobby import Lobby
    from cronoq._runtime.term import Terms

log = get_logger("server")


class Statistics:
    """Collects the figures from whoever has them. Commit figures are those since the last line."""

    def __init__(self, lobby: "Lobby", terms: "Terms") -> None:
        self._lobby = lobby
        self._terms = terms

    def log(self) -> None:
        """Log the line."""
        log.info("statistics", **self.collect())

    def collect(self) -> dict[str, Any]:
        """The figures; those of a term only while one serves."""
        lobby, terms = self._lobby, self._terms
        figures: dict[str, Any] = {"serving": lobby.serving, "connections": len(lobby.connections)}
        figures["connections_in_turns"] = len(lobby.looks)
        if terms.claim is not None:
            figures["epoch"] = terms.claim.epoch
        driver = terms.driver
        if driver is not None:
            committer = driver.committer
            written, committer.figures = committer.figures, CommitFigures()
            commits, steps = written.commits + written.applied, written.steps + written.applied
            figures["ready"] = committer.ready
            figures["commits"] = commits
            figures["commit_retries"] = written.retries
            figures["steps_per_commit"] = round(steps / max(commits, 1), 1)
            figures["commit_ms_mean"] = round(written.spent / max(commits, 1) / MILLISECOND, 2)
            figures["commit_ms_max"] = round(written.longest / MILLISECOND, 2)
            figures["steps_waiting"] = committer.waiting()
            figures["actions_held"] = driver.outbox.held()
        if terms.service is not None:
            figures.update(terms.service.statistics())
            for reason, count in terms.service.engine.recurring.dropped.items():
                figures[f"dropped.{reason}"] = count
        for limit, count in sorted(lobby.peer_log.counts.items()):
            figures[f"limits.{limit}"] = count
        for (method, outcome), count in sorted(lobby.calls.items()):
            figures[f"calls.{method}.{outcome}"] = count
        return figures
