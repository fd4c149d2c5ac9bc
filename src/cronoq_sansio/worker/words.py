"""The words of a worker's session: what comes in, what handlers ended with, what goes out, what the shell must do.

Durations and times are nanoseconds, the latter on the scale of the `now` that the session is given.
"""

from cronoq_sansio.values import value


class Held:
    """One lease that the worker was given, and the handler that runs it. Made by the session, kept by the shell."""

    __slots__ = ("ended", "job", "lease", "period", "running", "task", "wait_until")

    def __init__(self, lease: int, job: object, period: int) -> None:
        self.lease = lease
        self.job = job
        """What the shell gave with the lease; the session never looks at it."""
        self.period = period
        """Between two heartbeats; 0 = none."""
        self.running = False
        """A handler was started and has not exited."""
        self.ended = False
        """The server does not count it as ours any more: it was reported, aborted, or the stream is over."""
        self.wait_until = 0
        """Until when it waits for a handler to exit, while it has none of its own."""
        self.task: object = None
        """The shell's."""


# --- from the server


@value
class Registered:
    """The server accepted the worker."""

    worker_id: int
    slots: int
    """What it grants; 0 = what was asked for."""
    version: int
    """Of the protocol; 0 counts as 1."""
    lease_ttl: int | None
    """None = leases do not expire."""
    max_message_bytes: int | None


@value
class Leased:
    """An attempt to run."""

    lease: int
    ttl: int | None
    """None = as registered."""
    job: object


@value
class Aborted:
    """The server has given an attempt up."""

    lease: int
    reason: str


@value
class ServerLeaves:
    """The server has given all attempts up and ends the stream soon."""

    reason: str
    not_leader: bool


# --- from the shell


@value
class Completed:
    """The handler returned this."""

    output: bytes
    content_type: str


@value
class Failed:
    """The handler failed; `retry_after` in seconds."""

    message: str
    permanent: bool = False
    retry_after: float | None = None


@value
class Refused:
    """The handler wants another worker to run it."""

    reason: str


@value
class Withdrawn:
    """The handler ends the task as cancelled."""

    text: str


@value
class Interrupted:
    """The handler was cut off and has nothing to report."""


Outcome = Completed | Failed | Refused | Withdrawn | Interrupted


@value
class HandlerExited:
    """A handler of this session is over."""

    held: Held
    outcome: Outcome


@value
class EarlierExited:
    """A handler of an earlier session is over; its slot is free now."""


@value
class StopAsked:
    """Take nothing more; what runs may go on until then. A second one can only bring the end nearer."""

    until: int


@value
class StreamEnded:
    """The stream is over, whoever ended it."""


Input = Registered | Leased | Aborted | ServerLeaves | HandlerExited | EarlierExited | StopAsked | StreamEnded


# --- to the server


@value
class Beat:
    """The lease is still being worked on."""

    lease: int


@value
class Offer:
    """So many slots from now on."""

    slots: int


@value
class Complete:
    """The attempt succeeded."""

    lease: int
    output: bytes
    content_type: str


@value
class Fail:
    """The attempt failed; `retry_after` in seconds."""

    lease: int
    message: str
    permanent: bool
    retry_after: float | None


@value
class Nack:
    """Somebody else should run it."""

    lease: int
    reason: str


@value
class Cancelled:
    """The task is to end as cancelled."""

    lease: int


Report = Complete | Fail | Nack | Cancelled
ToServer = Beat | Offer | Report


# --- what the shell must do


@value
class Start:
    """Start the handler."""

    held: Held


@value
class Interrupt:
    """Cancel the handler. It still tells when it exits."""

    held: Held
    reason: str


@value
class Part:
    """Send what there is to say, then half-close and wait for the end."""


@value
class Leave:
    """The session is over: close the stream. None of its leases is ours any more."""

    reason: str
    not_leader: bool


Effect = Start | Interrupt | Part | Leave
