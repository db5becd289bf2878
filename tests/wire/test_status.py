"""What a peer is told of an error, on either wire."""

import inspect
import math

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

from otel_bridge import errors
from otel_bridge.wire.status import CODES, RETRY_AFTER_S, code_of, message_of, retry_after_s, status_of

ERRORS: list[type[errors.BridgeError]] = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BridgeError) and kind not in {errors.BridgeRefused, errors.BridgeUnavailable}
]
"""All but those that a client raises: no bridge answers with them."""

WITHOUT_REASONS = {errors.Unauthenticated, errors.PermissionDenied}
"""Those that have one reason each: a peer is not told more of why a credential was refused."""

RETRYABLE_GRPC = {grpc.StatusCode.UNAVAILABLE}
"""Of the codes in use, those that OTLP clients and gRPC's own retries take for "try again"."""
RETRYABLE_HTTP = {429, 502, 503, 504}


def details(error: Exception, kind: type[Message]) -> list[Message]:
    """The details of one kind in the status of an error."""
    found = []
    for packed in status_of(error).details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


@pytest.mark.parametrize("kind", ERRORS)
def test_each_error_has_its_row(kind: type[errors.BridgeError]) -> None:
    """Each class of errors.py has a code that fits its promise: what can be retried, and only that, says so on both wires."""
    code = code_of(kind("said"))
    assert (code.grpc in RETRYABLE_GRPC) is issubclass(kind, errors.Unavailable)
    assert (code.http in RETRYABLE_HTTP) is issubclass(kind, errors.Unavailable)
    if issubclass(kind, errors.Rejected):
        assert 400 <= code.http < 500
    assert status_of(kind("said")).code == code.grpc.value[0]


def test_the_table_names_no_stranger() -> None:
    """Each row is of a class that somebody raises, or of all that nobody foresaw."""
    assert set(CODES) - {Exception} <= set(ERRORS)


@pytest.mark.parametrize(
    ("error", "grpc_code", "http_code"),
    [
        (errors.MalformedRequest(""), "INVALID_ARGUMENT", 400),
        (errors.MalformedETDump(""), "INVALID_ARGUMENT", 400),
        (errors.MalformedMapping(""), "INVALID_ARGUMENT", 400),
        (errors.TooLarge(""), "RESOURCE_EXHAUSTED", 413),
        (errors.Unauthenticated(""), "UNAUTHENTICATED", 401),
        (errors.PermissionDenied(""), "PERMISSION_DENIED", 403),
        (errors.MappingConflict(""), "ALREADY_EXISTS", 409),
        (errors.MappingNotFound(""), "NOT_FOUND", 404),
        (errors.SpoolFull(""), "UNAVAILABLE", 503),
        (errors.Draining(""), "UNAVAILABLE", 503),
        (ValueError(""), "INTERNAL", 500),
    ],
)
def test_the_codes_are_an_interface(error: Exception, grpc_code: str, http_code: int) -> None:
    """Clients branch on these codes: a change of one is breaking."""
    assert (code_of(error).grpc.name, code_of(error).http) == (grpc_code, http_code)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("asked_s", [None, 0.0, 0.25, 3.0])
def test_who_may_retry_is_told_when(kind: type[errors.BridgeError], asked_s: float | None) -> None:
    """Every Unavailable carries one RetryInfo, of the wait that it asks for and up to half as much again; others none."""
    if not issubclass(kind, errors.Unavailable):
        assert details(kind("said"), RetryInfo) == []
        assert retry_after_s(kind("said")) is None
        return
    (info,) = details(kind("said", retry_after_s=asked_s), RetryInfo)
    assert isinstance(info, RetryInfo)
    least = RETRY_AFTER_S if asked_s is None else asked_s
    assert least - 1e-9 <= info.retry_delay.seconds + info.retry_delay.nanos / 1e9 <= least * 1.5


@pytest.mark.parametrize("kind", ERRORS)
def test_the_reason_travels(kind: type[errors.BridgeError]) -> None:
    """The reason of an error, its own or the one it was raised with, stands in ErrorInfo under the bridge's name."""
    told = [(kind("said"), kind.reason)]
    if kind not in WITHOUT_REASONS:
        told.append((kind("said", reason="odd_one"), "odd_one"))
    for error, reason in told:
        (info,) = details(error, ErrorInfo)
        assert isinstance(info, ErrorInfo)
        assert (info.reason, info.domain) == (reason.upper(), "otel_bridge")


def test_waits_differ() -> None:
    """Peers that were turned away together are not all told the same wait."""
    waits = {retry_after_s(errors.SpoolFull("full", retry_after_s=1.0)) for _ in range(20)}
    assert len(waits) > 1
    assert all(wait is not None and math.isfinite(wait) for wait in waits)


def test_a_fault_inside_stays_inside() -> None:
    """Of an error that is not the bridge's own the peer learns that there was one, and no more."""
    error = KeyError("/etc/secret")
    assert "secret" not in message_of(error) + str(status_of(error))
    assert message_of(errors.TooLarge("over the limit")) == "over the limit"
