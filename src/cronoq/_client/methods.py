"""The methods of `cronoq.v1` as a caller needs them."""

from typing import Any

from cronoq_sansio.values import value
from cronoq_sansio.wire import pb


@value
class Method:
    """One method of the contract."""

    name: str
    """For people: `Tasks.Submit`."""
    path: bytes
    """As in `:path`."""
    request: Any
    """Class of the messages that go out."""
    response: Any
    """Class of the messages that come back."""
    sends_stream: bool = False
    receives_stream: bool = False


def _method(
    service: str, name: str, request: Any, response: Any, *, sends: bool = False, receives: bool = False
) -> Method:
    return Method(f"{service}.{name}", f"/cronoq.v1.{service}/{name}".encode(), request, response, sends, receives)


SUBMIT = _method("Tasks", "Submit", pb.SubmitRequest, pb.SubmitResponse)
SUBMIT_BATCH = _method("Tasks", "SubmitBatch", pb.SubmitBatchRequest, pb.SubmitBatchResponse)
CANCEL = _method("Tasks", "Cancel", pb.CancelRequest, pb.CancelResponse)
GET = _method("Tasks", "Get", pb.GetRequest, pb.TaskInfo)
LIST_TASKS = _method("Tasks", "ListTasks", pb.ListTasksRequest, pb.ListTasksResponse)
WAIT = _method("Tasks", "Wait", pb.WaitRequest, pb.TaskResult)
WATCH = _method("Tasks", "Watch", pb.WatchRequest, pb.StatusEvent, receives=True)
WORK = _method("Workers", "Work", pb.WorkerMessage, pb.ServerMessage, sends=True, receives=True)
SNAPSHOT = _method("Admin", "Snapshot", pb.Empty, pb.SnapshotResponse)
ADD_RECURRING = _method("Admin", "AddRecurring", pb.RecurringRequest, pb.Empty)
REMOVE_RECURRING = _method("Admin", "RemoveRecurring", pb.RemoveRecurringRequest, pb.RemoveRecurringResponse)
LIST_WORKERS = _method("Admin", "ListWorkers", pb.Empty, pb.ListWorkersResponse)
LIST_RECURRING = _method("Admin", "ListRecurring", pb.Empty, pb.ListRecurringResponse)
