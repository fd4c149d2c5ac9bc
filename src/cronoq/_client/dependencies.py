"""Which tasks are meant, and what a task asks of those that must end first (client.md section 2, `task()`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cronoq._client.payloads import text
from cronoq._client.results import number
from cronoq_sansio.wire import pb

TaskRef = int | str

_MAX_ID = 2**64 - 1
_CONDITIONS = "success, complete, failure"


@dataclass(frozen=True, slots=True)
class Dep:
    """A task that must end first, for `deps=`; `task` checks it.

    It is the same as the pair `(target, on)`.
    """

    target: TaskRef
    """Its id (int) or its key (str)."""
    on: str = "success"
    """`success`; `failure`: it failed or used up its attempts; `complete`: it ended, however. `on_success` … too."""


def task_ref(reference: TaskRef) -> pb.TaskRef:
    """An id or a key. TypeError or ValueError for what is neither."""
    if isinstance(reference, str):
        return pb.TaskRef(key=text("the key", reference))
    if isinstance(reference, bool) or not isinstance(reference, int):
        raise TypeError(f"a task is named by its id (int) or key (str), not by {type(reference).__name__}")
    if not 0 <= reference <= _MAX_ID:
        raise ValueError(f"{reference} is not an id: ids are 0 to 2^64 - 1")
    return pb.TaskRef(id=reference)


def edges(after: TaskRef | Iterable[TaskRef] | None, deps: Iterable[Any]) -> list[pb.Dep]:
    """All of both, those of `after` first. TypeError or ValueError names the option and the place in it."""
    found = [_edge(f"after[{place}]", reference, "success") for place, reference in enumerate(_references(after))]
    if isinstance(deps, (str, Mapping, bytes, bytearray, memoryview)) or not isinstance(deps, Iterable):
        raise TypeError(f"deps: a list is needed, not {type(deps).__name__}")
    found += [_dependency(f"deps[{place}]", dependency) for place, dependency in enumerate(deps)]
    return found


def _references(after: TaskRef | Iterable[TaskRef] | None) -> list[TaskRef]:
    if after is None:
        return []
    if isinstance(after, (str, int)):
        return [after]
    if isinstance(after, (Mapping, bytes, bytearray, memoryview)) or not isinstance(after, Iterable):
        raise TypeError(f"after: a key, an id or several of them are needed, not {type(after).__name__}")
    return list(after)


def _dependency(name: str, dependency: Any) -> pb.Dep:
    if isinstance(dependency, Dep):
        return _edge(name, dependency.target, dependency.on)
    if isinstance(dependency, (str, int)):
        return _edge(name, dependency, "success")
    if isinstance(dependency, Mapping):
        unknown = sorted(str(key) for key in dependency if key not in ("ref", "cond"))
        if unknown or "ref" not in dependency:
            raise ValueError(f"{name}: a mapping has `ref`, and `cond` if it is not success")
        return _edge(name, dependency["ref"], dependency.get("cond", "success"))
    if isinstance(dependency, (tuple, list)) and len(dependency) == 2:
        return _edge(name, *dependency)
    raise TypeError(f"{name}: a key, an id, a Dep, a pair (ref, cond) or a mapping with `ref` and `cond` is needed")


def _edge(name: str, reference: TaskRef, condition: object) -> pb.Dep:
    try:
        target = task_ref(reference)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    if not isinstance(condition, str):
        raise TypeError(f"{name}: the condition is a str, not {type(condition).__name__}")
    lower = condition.lower()
    found = number("EdgeCond", lower if lower.startswith("on_") else f"on_{lower}")
    if found is None:
        raise ValueError(f"{name}: the condition {condition!r} is not one of {_CONDITIONS}")
    return pb.Dep(target=target, cond=found)  # type: ignore[arg-type]
