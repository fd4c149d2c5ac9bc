"""What this package raises. The text is for people: what happened, what to do."""

__all__ = [
    "CancelTask",
    "ClientError",
    "ConfigError",
    "CronoqError",
    "Permanent",
    "Reject",
    "Retryable",
    "StartError",
]


class CronoqError(Exception):
    """Base of the errors of this package."""


class ConfigError(CronoqError):
    """The configuration cannot be used. `problems` has every reason, each one line that begins with the file."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StartError(CronoqError):
    """The server cannot start or go on: an address that is taken, a store that cannot be used. One sentence."""


class ClientError(CronoqError):
    """A call failed.

    `code` is the gRPC status in lower case (`not_found`, `unavailable`, …), `message` what the server or the client
    says about it, `metadata` what the server sent along, as (name, value) pairs; the text is `code: message`.
    `unprocessed`: no server has looked at the call, so that trying again cannot do anything twice.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        metadata: tuple[tuple[str, str | bytes], ...] = (),
        unprocessed: bool = False,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.metadata = metadata
        self.unprocessed = unprocessed

    @property
    def retryable(self) -> bool:
        """The same call may succeed later: the server was not there or stopped, or its queues were full."""
        return self.code in ("unavailable", "resource_exhausted")

    @property
    def shard(self) -> str | None:
        """The shard that serves the task or pool, when the refusal names it."""
        return self._text("cronoq-shard")

    @property
    def endpoint(self) -> str | None:
        """Where that shard is."""
        return self._text("cronoq-shard-endpoint")

    def _text(self, name: str) -> str | None:
        return next((value for key, value in self.metadata if key == name and isinstance(value, str)), None)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message), self.__dict__


class Retryable(CronoqError):
    """Raised by a handler: the attempt failed, another may succeed.

    `retry_after`: seconds until then, instead of the backoff of the task's retry policy; None = that backoff.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Permanent(CronoqError):
    """Raised by a handler: the task failed, and trying again cannot help."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Reject(CronoqError):
    """Raised by a handler of a worker: another worker should run the task; this does not count as an attempt.

    When no other worker of the pool has a free slot, the attempt fails as a retryable one does.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class CancelTask(CronoqError):
    """Raised by a handler of a worker: the task ends as `cancelled`."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
