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
from cronoq_sansio.settings_check import Problem, check_settings
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
