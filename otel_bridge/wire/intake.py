"""
Taking in events: the way from a request's bytes to the spool, the same for gRPC and HTTP.

Invariants
* The answer is given only once the events are in the spool: receive, append, then acknowledge.
* A request that is sent again is answered as its first attempt was (repeats.py). Nothing else follows from it.
* A request that nobody waits for any more is not parsed, and not kept.
* What takes long (a large file) is parsed in a thread; the event loop never waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, ParamSpec, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from otel_bridge.errors import BridgeError, MalformedRequest
from otel_bridge.model.stream import trail
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.traces import SILENT, Traces
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, BuildOf, Receipt, Rules, admit_etdump, admit_events
from otel_bridge.wire.frame import Frame
from otel_bridge.wire.repeats import Name, Repeats, name_of

SENT_KEY = "otel-bridge-sent-unix-ns"
"""gRPC metadata key and HTTP header that tells when this attempt was sent."""

ADMIT_OFF_LOOP_BYTES = 65_536
"""A body over this is parsed and admitted in a thread: below it takes some milliseconds, whatever it holds."""

_MAX_SENT_NS = 2**63

TenantsBuildOf = Callable[[str, str, str], str | None]
"""(tenant, name, version) -> the build that the alias names now."""

M = TypeVar("M", bound=Message | Frame)
P = ParamSpec("P")
T = TypeVar("T")


Spend = Callable[[str, int, int], None]
"""(tenant, events, bytes): what it has sent."""


def for_nothing(tenant: str, events: int, size_bytes: int) -> None:
    """Where nobody asks what a tenant has sent."""


def _never() -> bool:
    return False


class Disconnected(Exception):
    """The client went away before its request was kept: nobody waits for the answer."""


class Watch(Protocol):
    """Told what came in."""

    def accepted(self, events: int) -> None:
        """Events were put into the spool."""

    def refused(self, events: int, reason: str) -> None:
        """Events were not taken: some of an accepted request, or all of one that is to come again."""

    def sender_dropped(self, events: int, reason: str) -> None:
        """The sender had dropped events before it sent."""


class Intake:
    """
    Admits requests and appends their events to the spool.

    build_of   binds an alias of a tenant to the build that it names now
    repeats    knows what was sent before
    spend      told what a tenant has sent: events that were kept, bytes whatever became of them
    now_ns     wall clock, nanoseconds since 1970
    traces     spans of the bridge's own
    """

    def __init__(
        self,
        spool: Spool,
        rules: Rules,
        build_of: TenantsBuildOf,
        watch: Watch,
        repeats: Repeats,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        spend: Spend = for_nothing,
        traces: Traces = SILENT,
    ) -> None:
        self._spool = spool
        self._rules = rules
        self._build_of = build_of
        self._watch = watch
        self._repeats = repeats
        self._now_ns = now_ns
        self._spend = spend
        self._traces = traces

    async def export_events(
        self, body: bytes, sent: str | None, tenant: str = "", is_given_up: Callable[[], bool] = _never
    ) -> bytes:
        """
        Take a serialised `ExportEventsRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Returns a serialised `ExportEventsResponse`.

        Raises `Rejected`, `Unavailable`, and `Disconnected` where `is_given_up` says that nobody waits any more.
        """
        return await self._take(_EVENTS, body, sent, tenant, is_given_up)

    async def upload_etdump(
        self, body: bytes, sent: str | None, tenant: str = "", is_given_up: Callable[[], bool] = _never
    ) -> bytes:
        """
        Take a serialised `UploadETDumpRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Returns a serialised `UploadETDumpResponse`. Raises as `export_events` does.
        """
        return await self._take(_ETDUMP, body, sent, tenant, is_given_up)

    async def _take(
        self, kind: "_Kind[M]", body: bytes, sent: str | None, tenant: str, is_given_up: Callable[[], bool]
    ) -> bytes:
        self._spend(tenant, 0, len(body))
        receipt = Receipt(self._now_ns(), _sent_ns(sent), tenant)
        _check_awaited(is_given_up)
        message, name = await off_loop(body, kind.read, body, tenant)

        async def keep() -> bytes:
            admitted = await off_loop(body, kind.admit, message, body, receipt, self._rules, partial(self._build_of, tenant))
            _check_awaited(is_given_up)
            answer = kind.answer(admitted)
            await self._keep(admitted, name, answer)
            return answer

        return await self._repeats.once(name, keep)

    async def _keep(self, admitted: Admitted, name: Name, answer: bytes) -> None:
        events = len(admitted.batch)
        if events:
            self._traces.remember(map(trail, admitted.batch.streams))
            try:
                with self._traces.step("spool.append", {"otel_bridge.events": events}):
                    await self._spool.append(admitted.batch, self._repeats.row_of(name, answer))
            except BridgeError as error:
                self._watch.refused(events, error.reason)
                raise
            self._repeats.remember(name, answer)
        self._watch.accepted(events)
        self._spend(admitted.batch.streams[0].tenant, events, 0)
        for reason, events in admitted.rejected.items():
            self._watch.refused(events, reason)
        for reason, events in admitted.sender_dropped.items():  # not before: a refused request comes again
            self._watch.sender_dropped(events, reason)


def _check_awaited(is_given_up: Callable[[], bool]) -> None:
    if is_given_up():
        raise Disconnected


@dataclass(frozen=True, slots=True)
class _Kind(Generic[M]):
    """
    What differs between requests with events and with a file.

    read     (body, tenant) -> message and name
    admit    (message, body, receipt, rules, aliases) -> its events
    answer   what its sender is told, serialised
    """

    read: Callable[[bytes, str], tuple[M, Name]]
    admit: Callable[[M, bytes, Receipt, Rules, BuildOf], Admitted]
    answer: Callable[[Admitted], bytes]


def _read_events(body: bytes, tenant: str) -> tuple[Frame, Name]:
    frame = parse(Frame, body)
    stream = frame.stream
    return frame, name_of(body, tenant, stream.stream_id, stream.sequence) if stream else name_of(body, tenant, b"", 0)


def _events_answer(admitted: Admitted) -> bytes:
    if not admitted.rejected:
        return _all_accepted(len(admitted.batch))
    return pb.ExportEventsResponse(
        accepted=len(admitted.batch), rejected=_rejections(admitted.rejected), first_rejection=admitted.first_rejection
    ).SerializeToString()


@lru_cache(maxsize=1024)
def _all_accepted(events: int) -> bytes:
    """Nearly every answer: devices send as many events again and again."""
    return pb.ExportEventsResponse(accepted=events).SerializeToString()


def _read_upload(body: bytes, tenant: str) -> tuple[pb.UploadETDumpRequest, Name]:
    request = parse(pb.UploadETDumpRequest, body)
    return request, name_of(body, tenant, request.stream.stream_id, None)


def _admit_upload(request: pb.UploadETDumpRequest, _body: bytes, receipt: Receipt, rules: Rules, build_of: BuildOf) -> Admitted:
    return admit_etdump(request, receipt, rules, build_of)


def _upload_answer(admitted: Admitted) -> bytes:
    return pb.UploadETDumpResponse(
        accepted=len(admitted.batch),
        rejected=_rejections(admitted.rejected),
        first_rejection=admitted.first_rejection,
        blocks=len(admitted.batch.blocks),
    ).SerializeToString()


_EVENTS = _Kind(_read_events, admit_events, _events_answer)
_ETDUMP = _Kind(_read_upload, _admit_upload, _upload_answer)


def parse(message: type[M], body: bytes) -> M:
    """The message in the bytes. Raises `MalformedRequest`."""
    try:
        return cast("M", message.FromString(body))
    except DecodeError as error:
        raise MalformedRequest(
            f"the body of {len(body)} bytes is no {message.DESCRIPTOR.full_name}: {error}; "
            "check that client and bridge use the same proto files",
            reason="undecodable",
        ) from error


async def off_loop(body: bytes, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What comes of work on a body: in a thread where the body is large."""
    if len(body) > ADMIT_OFF_LOOP_BYTES:
        return await asyncio.to_thread(work, *given, **named)
    return work(*given, **named)


def _rejections(rejected: Mapping[str, int]) -> list[pb.Rejection]:
    return [pb.Rejection(reason=reason, events=events) for reason, events in sorted(rejected.items())]


def said_later(sent: str | None, passed_ns: int) -> str | None:
    """What a sender that said so would say after so many nanoseconds: its clock is as far from ours as it was."""
    said_ns = _sent_ns(sent)
    return None if said_ns is None else str(said_ns + passed_ns)


def _sent_ns(sent: str | None) -> int | None:
    """The sender's word for when it sent; None where it says nothing that could be a time."""
    if sent is None or not sent.isascii() or not sent.isdecimal() or len(sent) > len(str(_MAX_SENT_NS)):
        return None
    return int(sent) if 0 < int(sent) < _MAX_SENT_NS else None
