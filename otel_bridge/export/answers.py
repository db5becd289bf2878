"""
What a back end answers, read with care.

By the OTLP specification (opentelemetry-proto docs/specification.md): partial success in `ExportTraceServiceResponse`, failures
as `google.rpc.Status`, the time to wait in its `google.rpc.RetryInfo`. Whatever cannot be read is as if it were not there.
"""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_bridge.export.protocol import Sent

_SHOWN_CHARACTERS = 300


def shown(text: str | None) -> str:
    """A back end's text on one line: escaped, cut, in quotes."""
    text = text or ""
    return ascii(text[:_SHOWN_CHARACTERS]) + ("..." if len(text) > _SHOWN_CHARACTERS else "")


def read_sent(body: bytes) -> Sent:
    """What a successful answer says. The payload was taken even if the body makes no sense."""
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return Sent(message=f"the answer is no ExportTraceServiceResponse ({len(body)} bytes)")
    return Sent(max(0, partial.rejected_spans), shown(partial.error_message) if partial.error_message else "")


def read_status(body: bytes) -> Status | None:
    """`google.rpc.Status`, or None."""
    try:
        return Status.FromString(body)
    except DecodeError:
        return None


def read_retry_info(status: Status | None) -> RetryInfo | None:
    """The first `google.rpc.RetryInfo` among the details, or None."""
    for detail in status.details if status else ():
        info = RetryInfo()
        try:
            if detail.Unpack(info):
                return info
        except DecodeError:
            continue
    return None


def wait_s(info: RetryInfo | None) -> float | None:
    """The wait it asks for in seconds; None: it leaves that to us."""
    if info is None:
        return None
    wait = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return wait if wait > 0 else None


def read_retry_after_s(header: str | None, now: datetime | None = None) -> float | None:
    """
    The wait that a `Retry-After` header asks for: a number of seconds or an HTTP-date (RFC 9110, 10.2.3).

    None where it is neither, or asks for no wait at all: that leaves it to us.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
            seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError):  # a zone of years overflows
            return None
    return seconds if 0 < seconds < math.inf else None
