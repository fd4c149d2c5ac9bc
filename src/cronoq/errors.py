"""What the runtime raises to whoever starts it. The text is for the operator: what happened, what to do."""

__all__ = ["ConfigError", "CronoqError", "StartError"]


class CronoqError(Exception):
    """Base of the errors of this package."""


class ConfigError(CronoqError):
    """The configuration cannot be used. `problems` has every reason, each one line that begins with the file."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StartError(CronoqError):
    """The server cannot start or go on: an address that is taken, a store that cannot be used. One sentence."""
