"""The core of cronoq without I/O: everything that decides, nothing that reads a clock, a socket or a file.

Table of contents, from the inside out. An inner ring never imports an outer one.

- Shared words: `settings` and `check_settings`, `spec` (what a task is), `errors` (every code and its mapping),
  `limits` (every fixed limit and its reason), `clock`, `ids`.
- `Engine` decides: queues, leases, retries, time. It is told `events`, answers with a `Step` of `actions` and
  `records`, and knows no client, worker or byte.
- `Outbox` says what may be performed when: nothing that shows state leaves before the store has it.
- `Service` is the protocol: calls, waits, worker sessions. Its words are `messages`.
- `cronoq_sansio.wire.grpc.GrpcServer` turns bytes into those words and back. It is not imported here, because it needs
  h2 and protobuf and who embeds the Engine or the Service does not.

The contract in a sentence: call `handle(events, now)` with everything that one read brought, perform the step whole,
only then call it again; call it with `TimerFired` when `next_timeout()` has passed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronoq_sansio import clock, errors, ids, limits, settings, spec
    from cronoq_sansio.engine import actions, events, records
    from cronoq_sansio.engine.actions import Step
    from cronoq_sansio.engine.engine import Engine
    from cronoq_sansio.engine.events import TimerFired
    from cronoq_sansio.errors import Code, LocalProtocolError, Rejection, RemoteProtocolError
    from cronoq_sansio.outbox import Outbox, StepsDurable
    from cronoq_sansio.service import messages
    from cronoq_sansio.service.service import Service
    from cronoq_sansio.settings import Settings
    from cronoq_sansio.settings_check import check_settings
    from cronoq_sansio.settings_walk import Problem
    from cronoq_sansio.spec import Priority, RetryPolicy, TaskSpec, TaskStatus

__all__ = [
    "Code",
    "Engine",
    "LocalProtocolError",
    "Outbox",
    "Priority",
    "Problem",
    "Rejection",
    "RemoteProtocolError",
    "RetryPolicy",
    "Service",
    "Settings",
    "Step",
    "StepsDurable",
    "TaskSpec",
    "TaskStatus",
    "TimerFired",
    "actions",
    "check_settings",
    "clock",
    "errors",
    "events",
    "ids",
    "limits",
    "messages",
    "records",
    "settings",
    "spec",
]

#: Where each name lives. It is imported when somebody asks for it: a client needs none of the machines.
_MODULES = {
    "actions": "cronoq_sansio.engine.actions",
    "clock": "cronoq_sansio.clock",
    "errors": "cronoq_sansio.errors",
    "events": "cronoq_sansio.engine.events",
    "ids": "cronoq_sansio.ids",
    "limits": "cronoq_sansio.limits",
    "messages": "cronoq_sansio.service.messages",
    "records": "cronoq_sansio.engine.records",
    "settings": "cronoq_sansio.settings",
    "spec": "cronoq_sansio.spec",
}
_OBJECTS = {
    "Code": "cronoq_sansio.errors",
    "Engine": "cronoq_sansio.engine.engine",
    "LocalProtocolError": "cronoq_sansio.errors",
    "Outbox": "cronoq_sansio.outbox",
    "Priority": "cronoq_sansio.spec",
    "Problem": "cronoq_sansio.settings_walk",
    "Rejection": "cronoq_sansio.errors",
    "RemoteProtocolError": "cronoq_sansio.errors",
    "RetryPolicy": "cronoq_sansio.spec",
    "Service": "cronoq_sansio.service.service",
    "Settings": "cronoq_sansio.settings",
    "Step": "cronoq_sansio.engine.actions",
    "StepsDurable": "cronoq_sansio.outbox",
    "TaskSpec": "cronoq_sansio.spec",
    "TaskStatus": "cronoq_sansio.spec",
    "TimerFired": "cronoq_sansio.engine.events",
    "check_settings": "cronoq_sansio.settings_check",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found: Any = import_module(_MODULES[name])
    elif name in _OBJECTS:
        found = getattr(import_module(_OBJECTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
