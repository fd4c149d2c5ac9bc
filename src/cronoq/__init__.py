"""A task scheduler: client, worker and server around `cronoq_sansio`. What a name needs is imported when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronoq._client.dependencies import Dep
    from cronoq._client.specs import RetryPolicy
    from cronoq.errors import CronoqError, Permanent, Retryable
    from cronoq_sansio.spec import Priority

__all__ = ["CronoqError", "Dep", "Permanent", "Priority", "RetryPolicy", "Retryable", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "CronoqError": "cronoq.errors",
    "Dep": "cronoq._client.dependencies",
    "Permanent": "cronoq.errors",
    "Priority": "cronoq_sansio.spec",
    "RetryPolicy": "cronoq._client.specs",
    "Retryable": "cronoq.errors",
}
_MODULES = ("client", "errors", "handlers", "testing", "worker")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"cronoq.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
