"""
Requests as devices send them, and what admission makes of them.

Invariant: a request travels as bytes, as it would by gRPC: what is admitted has been parsed.
"""

from collections.abc import Callable
from dataclasses import replace

from support.scenes import NOON_NS, STREAM, E, batch_of, delegated, execute, runtime

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, BuildOf, Receipt, Rules, admit_etdump, admit_events
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.frame import Frame
from otel_bridge.wire.intake import parse

Break = Callable[[pb.ExportEventsRequest], object]
"""Damages a request."""

ANYTHING = Rules(lambda _key: True, lambda _key: True, max_clock_error_ns=300 * 10**9)
"""Every attribute is kept; clocks may be wrong by five minutes."""

NOON = Receipt(NOON_NS)


def no_alias(_name: str, _version: str) -> str | None:
    """A registry without aliases."""
    return None


def a_request(*events: E) -> pb.ExportEventsRequest:
    """One inference with these events."""
    return request_of(batch_of((execute(), events)))


def an_inference(sequence: int, *, metadata_bytes: int = 0) -> pb.ExportEventsRequest:
    """A request of two events, of an app called "app"."""
    metadata = sequence.to_bytes(4, "big") * (metadata_bytes // 4)
    stream = replace(STREAM, sequence=sequence, resource=(("service.name", "app"),))
    events = [delegated("x", 0, 1, 2, metadata=metadata), runtime("Method::execute", 0, 5)]
    return request_of(batch_of((execute(), events), stream=stream))


def admitted(
    request: pb.ExportEventsRequest, *, receipt: Receipt = NOON, rules: Rules = ANYTHING, build_of: BuildOf = no_alias
) -> Admitted:
    """What admission makes of `ExportEvents`."""
    return admitted_bytes(request.SerializeToString(), receipt=receipt, rules=rules, build_of=build_of)


def admitted_bytes(body: bytes, *, receipt: Receipt = NOON, rules: Rules = ANYTHING, build_of: BuildOf = no_alias) -> Admitted:
    """The same, of any bytes."""
    return admit_events(parse(Frame, body), body, receipt, rules, build_of)


def admitted_dump(
    request: pb.UploadETDumpRequest, *, receipt: Receipt = NOON, rules: Rules = ANYTHING, build_of: BuildOf = no_alias
) -> Admitted:
    """What admission makes of `UploadETDump`."""
    return admit_etdump(parse(pb.UploadETDumpRequest, request.SerializeToString()), receipt, rules, build_of)


def is_clear(message: str) -> bool:
    """Whether a message is one line of bounded length that a terminal shows as it is."""
    return 0 < len(message) <= 1000 and message.isascii() and message.isprintable()
