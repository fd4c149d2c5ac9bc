"""The three kinds of error, and the one table from every error code to gRPC, HTTP and Python.

- A request's fault is a value: `Rejection`. It is never raised.
- A peer that breaks its protocol raises `RemoteProtocolError`, which names the reply it gets.
- Our own misuse of a machine raises `LocalProtocolError`.
- Our own bug is a failed assertion; the term ends and a fresh one recovers from the store.

Codes and their mapping: source page "Errors and status codes".
"""

from enum import Enum, IntEnum

from cronoq_sansio.values import value


class GrpcStatus(IntEnum):
    """gRPC status codes, numbered as in `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Code(Enum):
    """Every way in which a request can be refused. Callers within the process see it, others what it maps to."""

    INVALID = "invalid"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_RESOURCE = "unknown_resource"
    RESOURCE_EXCEEDS_CAPACITY = "resource_exceeds_capacity"
    RESERVATION_CONFLICT = "reservation_conflict"
    CYCLE = "cycle"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    FULL = "full"
    OVERLOADED = "overloaded"
    DUPLICATE_KEY_IN_BATCH = "duplicate_key_in_batch"
    NOT_FOUND = "not_found"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    FAILED_PRECONDITION = "failed_precondition"
    TOO_LARGE = "too_large"
    UNIMPLEMENTED = "unimplemented"
    UNAVAILABLE = "unavailable"
    DATA_LOSS = "data_loss"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


@value
class Mapping:
    """What a code becomes for each kind of caller, and what it tells the person who has it."""

    grpc: GrpcStatus
    http: int
    cause: str
    remedy: str


MAPPINGS: dict[Code, Mapping] = {
    Code.INVALID: Mapping(GrpcStatus.INVALID_ARGUMENT, 400, "Malformed request or task.", "Fix the request."),
    Code.UNKNOWN_POOL: Mapping(GrpcStatus.NOT_FOUND, 404, "No pool with that name.", "Fix the pool name."),
    Code.UNKNOWN_RESOURCE: Mapping(GrpcStatus.NOT_FOUND, 404, "No resource with that name.", "Fix the resource name."),
    Code.RESOURCE_EXCEEDS_CAPACITY: Mapping(
        GrpcStatus.INVALID_ARGUMENT,
        400,
        "More units than the resource's permits or burst: the task could never run.",
        "Request fewer units.",
    ),
    Code.RESERVATION_CONFLICT: Mapping(
        GrpcStatus.FAILED_PRECONDITION,
        409,
        "Fixed starts would reserve more of the pool's slots at that time than they may; the message names the time.",
        "Pick another start, or raise `reservable_fraction` or `max` of the pool.",
    ),
    Code.CYCLE: Mapping(GrpcStatus.INVALID_ARGUMENT, 400, "The dependencies form a cycle.", "Fix the graph."),
    Code.UNKNOWN_DEPENDENCY: Mapping(
        GrpcStatus.NOT_FOUND,
        404,
        "A dependency on an unknown id, or on an unknown key in a pool that does not wait for keys.",
        "Submit the parent first, or set `await_unknown_dependencies_s`.",
    ),
    Code.FULL: Mapping(
        GrpcStatus.RESOURCE_EXHAUSTED,
        429,
        "Queue bounds reached in a pool with the overflow policy `wait`; the message says which. "
        "Callers within the process wait instead.",
        "Retry with backoff.",
    ),
    Code.OVERLOADED: Mapping(
        GrpcStatus.RESOURCE_EXHAUSTED,
        429,
        "Bounds of queues, of payloads or of what waits for clients reached; the message says which.",
        "Retry with backoff, or shed load upstream.",
    ),
    Code.DUPLICATE_KEY_IN_BATCH: Mapping(
        GrpcStatus.INVALID_ARGUMENT, 400, "A batch defines the same new key twice.", "Deduplicate the batch."
    ),
    Code.NOT_FOUND: Mapping(
        GrpcStatus.NOT_FOUND, 404, "No task with that id or key.", "Check the id or key; it may have been pruned."
    ),
    Code.UNAUTHENTICATED: Mapping(
        GrpcStatus.UNAUTHENTICATED, 401, "Missing or unknown credentials.", "Send a valid token."
    ),
    Code.PERMISSION_DENIED: Mapping(
        GrpcStatus.PERMISSION_DENIED, 403, "The role or scope does not allow it.", "Use other credentials."
    ),
    Code.FAILED_PRECONDITION: Mapping(
        GrpcStatus.FAILED_PRECONDITION,
        409,
        "A worker with an older protocol version, or a change of a schedule that stands in the configuration file.",
        "Upgrade the worker; change the schedule in the file.",
    ),
    Code.TOO_LARGE: Mapping(
        GrpcStatus.RESOURCE_EXHAUSTED,
        413,
        "A message, or what a call would be answered, is above `limits.max_message_bytes`.",
        "Send less, or raise the limit.",
    ),
    Code.UNIMPLEMENTED: Mapping(
        GrpcStatus.UNIMPLEMENTED,
        501,
        "The method, or the encoding of the message, is not known to this version.",
        "Look at the address and the contract, or upgrade the server.",
    ),
    Code.UNAVAILABLE: Mapping(
        GrpcStatus.UNAVAILABLE,
        503,
        "Starting, stopping, or the store does not answer.",
        "Retry with backoff; with a key no task is made twice.",
    ),
    Code.DATA_LOSS: Mapping(
        GrpcStatus.DATA_LOSS,
        500,
        "A `Watch` stream fell behind; events were dropped.",
        "Watch again, and look with `Get` or `ListTasks` at what happened meanwhile.",
    ),
    Code.DEADLINE_EXCEEDED: Mapping(
        GrpcStatus.DEADLINE_EXCEEDED,
        504,
        "The wait or the call's deadline ran out; a task that is stored goes on.",
        "Wait again; a Submit that was told no `cronoq-task-id` is sent again with its key.",
    ),
    Code.CANCELLED: Mapping(
        GrpcStatus.CANCELLED,
        500,
        "The call ran longer than `max_wait_s + request_timeout_s`.",
        "Call again with a shorter wait.",
    ),
    Code.INTERNAL: Mapping(
        GrpcStatus.INTERNAL, 500, "A fault of the server; its log has the details.", "Report it with the log line."
    ),
}


@value
class Rejection:
    """A request's fault, as a value."""

    code: Code
    message: str
    """One sentence: which field, what is allowed."""
    details: tuple[tuple[str, str], ...] = ()
    """Metadata for the caller, lower-case names: `cronoq-task-id`, …"""


class RemoteProtocolError(Exception):
    """The peer broke its protocol. `reply` is what the machine that raised it sends before the connection closes."""

    def __init__(self, message: str, reply: object = None) -> None:
        super().__init__(message)
        self.reply = reply


class LocalProtocolError(Exception):
    """We asked a machine for something that its state does not allow. The state is unchanged."""
