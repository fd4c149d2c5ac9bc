"""What each code of a refusal is for callers of gRPC and HTTP: the table of the source page, written out again."""

import pytest

from cronoq_sansio.errors import MAPPINGS, Code, GrpcStatus, Rejection
from cronoq_sansio.wire.status import trailers

STATUSES = {
    "invalid": ("INVALID_ARGUMENT", 400),
    "unknown_pool": ("NOT_FOUND", 404),
    "unknown_resource": ("NOT_FOUND", 404),
    "resource_exceeds_capacity": ("INVALID_ARGUMENT", 400),
    "reservation_conflict": ("FAILED_PRECONDITION", 409),
    "cycle": ("INVALID_ARGUMENT", 400),
    "unknown_dependency": ("NOT_FOUND", 404),
    "full": ("RESOURCE_EXHAUSTED", 429),
    "overloaded": ("RESOURCE_EXHAUSTED", 429),
    "duplicate_key_in_batch": ("INVALID_ARGUMENT", 400),
    "not_found": ("NOT_FOUND", 404),
    "unauthenticated": ("UNAUTHENTICATED", 401),
    "permission_denied": ("PERMISSION_DENIED", 403),
    "failed_precondition": ("FAILED_PRECONDITION", 409),
    "too_large": ("RESOURCE_EXHAUSTED", 413),
    "unimplemented": ("UNIMPLEMENTED", 501),
    "unavailable": ("UNAVAILABLE", 503),
    "data_loss": ("DATA_LOSS", 500),
    "deadline_exceeded": ("DEADLINE_EXCEEDED", 504),
    "cancelled": ("CANCELLED", 500),
    "internal": ("INTERNAL", 500),
}
NUMBERS = {
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}


def test_the_table_is_whole() -> None:
    assert [code.value for code in Code] == [code.value for code in MAPPINGS]
    assert {code.value for code in Code} == STATUSES.keys()


@pytest.mark.parametrize("code", Code, ids=lambda code: code.value)
def test_each_code_has_its_status(code: Code) -> None:
    found = MAPPINGS[code]
    assert (found.grpc.name, found.http) == STATUSES[code.value]
    assert found.cause.endswith(".") and found.remedy.endswith("."), "both are sentences for people"


@pytest.mark.parametrize("code", Code, ids=lambda code: code.value)
def test_a_caller_sees_the_number_the_message_and_the_details(code: Code) -> None:
    fields = dict(trailers(Rejection(code, "deps[0]: no such task", (("cronoq-batch-index", "3"),))))
    number = NUMBERS[STATUSES[code.value][0]]
    assert fields == {
        b"grpc-status": b"%d" % number,
        b"grpc-message": b"deps[0]: no such task",
        b"cronoq-batch-index": b"3",
    }


def test_the_numbers_of_grpc() -> None:
    assert {status.name: int(status) for status in GrpcStatus if status.name in NUMBERS} == NUMBERS
