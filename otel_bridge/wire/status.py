"""
What a peer is told of an error: one table for gRPC and HTTP.

A retry helps for UNAVAILABLE / 503 and 429 only; it comes with `google.rpc.RetryInfo` / `Retry-After`, so a client never has to
guess. Over a quota it is 429: balancers take 503 for an ill instance, and one tenant's haste is no illness. Over gRPC it is
never RESOURCE_EXHAUSTED, which many clients do not send again.
"""

import math
import random
from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from otel_bridge import errors

RETRY_AFTER_S = 1.0
_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Code:
    """How an error is called on either wire."""

    grpc: grpc.StatusCode
    http: int


CODES: dict[type[Exception], Code] = {
    errors.MalformedRequest: Code(grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.MalformedETDump: Code(grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.MalformedMapping: Code(grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.TooLarge: Code(grpc.StatusCode.RESOURCE_EXHAUSTED, 413),
    errors.Unauthenticated: Code(grpc.StatusCode.UNAUTHENTICATED, 401),
    errors.PermissionDenied: Code(grpc.StatusCode.PERMISSION_DENIED, 403),
    errors.MappingConflict: Code(grpc.StatusCode.ALREADY_EXISTS, 409),
    errors.MappingNotFound: Code(grpc.StatusCode.NOT_FOUND, 404),
    errors.QuotaMet: Code(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.Rejected: Code(grpc.StatusCode.FAILED_PRECONDITION, 400),
    errors.OverQuota: Code(grpc.StatusCode.UNAVAILABLE, 429),
    errors.Unavailable: Code(grpc.StatusCode.UNAVAILABLE, 503),
    Exception: Code(grpc.StatusCode.INTERNAL, 500),
}
"""By the nearest class of the error."""


def code_of(error: Exception) -> Code:
    """The code of an error."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def message_of(error: Exception) -> str:
    """What the peer reads: the message of our own errors; of a fault inside, only that there was one."""
    return str(error) if isinstance(error, errors.BridgeError) else "the bridge failed; its log says how"


def retry_after_s(error: Exception) -> float | None:
    """How long the peer should wait, with jitter so that a fleet does not come back at once; None: a retry does not help."""
    if not isinstance(error, errors.Unavailable):
        return None
    wait = error.retry_after_s if error.retry_after_s is not None else RETRY_AFTER_S
    return wait * (1 + _JITTER * random.random())  # noqa: S311 - spreading load needs no secrecy


def status_of(error: Exception, wait_s: float | None = None) -> status_pb2.Status:
    """
    The error as `google.rpc.Status`, with `ErrorInfo` (the reason) and, where a retry helps, `RetryInfo`.

    wait_s   what `retry_after_s` gave, where the peer is told of it elsewhere, too
    """
    details = []
    if isinstance(error, errors.BridgeError):
        details.append(error_details_pb2.ErrorInfo(reason=error.reason.upper(), domain="otel_bridge"))
    wait = wait_s if wait_s is not None else retry_after_s(error)
    if wait is not None:
        seconds, fraction = divmod(wait, 1)
        delay = Duration(seconds=math.floor(seconds), nanos=math.floor(fraction * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    packed = []
    for detail in details:
        holder = Any()
        holder.Pack(detail)
        packed.append(holder)
    return status_pb2.Status(code=code_of(error).grpc.value[0], message=message_of(error), details=packed)
