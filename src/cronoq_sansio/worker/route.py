"""Where a worker connects next, when, and when it gives up (client.md section 3).

Theory. Between two sessions there is one decision, from how the last one ended:

    redirect        the server names the endpoint that serves the pool: there at once, at most `MAX_REDIRECTS` in a row
    fatal           trying again cannot help: the status is raised
    anything else   back to the configured target after a pause; with `reconnect=False` it is raised

Pauses have full jitter: each is drawn from 0 to a bound that doubles from `backoff[0]` to `backoff[1]`, and starts anew
once a worker was registered. So a fleet that lost its server does not come back in step.
"""

from cronoq_sansio.limits import MAX_REDIRECTS
from cronoq_sansio.values import value

FATAL = (
    "unauthenticated",
    "permission_denied",
    "not_found",
    "failed_precondition",
    "invalid_argument",
    "unimplemented",
)


@value
class Redirect:
    """The server named another endpoint."""

    target: str
    refusal: str = ""
    """Why it must not be followed; empty = it may."""


@value
class SessionEnd:
    """How a session ended: a status in lower case, and what was said."""

    code: str
    message: str
    redirect: Redirect | None = None


@value
class Again:
    """Connect to `target` after `pause` nanoseconds."""

    target: str
    pause: int


@value
class GiveUp:
    """Raise this."""

    code: str
    message: str


class Route:
    """The way of one run. Times are nanoseconds."""

    def __init__(self, target: str, backoff: tuple[int, int], *, reconnect: bool = True) -> None:
        self.target = target
        """Where to connect now."""
        self._home = target
        self._backoff = backoff
        self._reconnect = reconnect
        self._bound = backoff[0]
        self._redirects = 0

    @property
    def redirected(self) -> bool:
        """The present target came from a server."""
        return self.target != self._home

    def registered(self) -> None:
        """A session was accepted: the next pause is short, the next redirect the first."""
        self._bound = self._backoff[0]
        self._redirects = 0

    def ended(self, end: SessionEnd, random: float) -> Again | GiveUp:
        """What to do after a session; `random` from 0 to 1."""
        if end.redirect is not None:
            return self._follow(end, end.redirect)
        self._redirects = 0
        self.target = self._home
        if end.code in FATAL or not self._reconnect:
            return GiveUp(end.code, end.message)
        pause = round(self._bound * random)
        self._bound = min(2 * self._bound, self._backoff[1])
        return Again(self._home, pause)

    def _follow(self, end: SessionEnd, redirect: Redirect) -> Again | GiveUp:
        self._redirects += 1
        if redirect.refusal:
            return GiveUp("failed_precondition", redirect.refusal)
        if self._redirects > MAX_REDIRECTS:
            text = f"redirected {self._redirects} times in a row, last to {redirect.target}: the shards disagree"
            return GiveUp("failed_precondition", f"{text} ({end.message})")
        self.target = redirect.target
        return Again(redirect.target, 0)

    def check_invariants(self) -> None:
        """Bounds hold."""
        assert self._backoff[0] <= self._bound <= self._backoff[1]
        assert 0 <= self._redirects <= MAX_REDIRECTS + 1
