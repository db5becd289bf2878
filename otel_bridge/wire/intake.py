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
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from otel_bridge.errors import BridgeError, MalformedRequest
from otel_bridge.model.stream import trail
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.traces import SILENT, Traces
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, Receipt, Rules, admit_etdump, admit_events
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
    ) -> pb.ExportEventsResponse:
        """
        Take a serialised `ExportEventsRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Raises `Rejected`, `Unavailable`, and `Disconnected` where `is_given_up` says that nobody waits any more.
        """
        self._spend(tenant, 0, len(body))
        receipt = Receipt(self._now_ns(), _sent_ns(sent), tenant)
        build_of = partial(self._build_of, tenant)

        def read() -> _Read[Frame]:
            frame = parse(Frame, body)
            stream = frame.stream or pb.Stream()
            return _Read(frame, name_of(body, tenant, stream.stream_id, stream.sequence))

        def admit(frame: Frame) -> Admitted:
            return admit_events(frame, body, receipt, self._rules, build_of)

        return pb.ExportEventsResponse.FromString(await self._take(body, read, admit, _events_answer, is_given_up))

    async def upload_etdump(
        self, body: bytes, sent: str | None, tenant: str = "", is_given_up: Callable[[], bool] = _never
    ) -> pb.UploadETDumpResponse:
        """
        Take a serialised `UploadETDumpRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Raises as `export_events` does.
        """
        self._spend(tenant, 0, len(body))
        receipt = Receipt(self._now_ns(), _sent_ns(sent), tenant)
        build_of = partial(self._build_of, tenant)

        def read() -> _Read[pb.UploadETDumpRequest]:
            request = parse(pb.UploadETDumpRequest, body)
            return _Read(request, name_of(body, tenant, request.stream.stream_id, None))

        def admit(request: pb.UploadETDumpRequest) -> Admitted:
            return admit_etdump(request, receipt, self._rules, build_of)

        return pb.UploadETDumpResponse.FromString(await self._take(body, read, admit, _upload_answer, is_given_up))

    async def _take(
        self,
        body: bytes,
        read: "Callable[[], _Read[M]]",
        admit: Callable[[M], Admitted],
        answer_of: Callable[[Admitted], Message],
        is_given_up: Callable[[], bool],
    ) -> bytes:
        _check_awaited(is_given_up)
        found = await off_loop(body, read)

        async def keep() -> bytes:
            admitted = await off_loop(body, lambda: admit(found.message))
            _check_awaited(is_given_up)
            answer = answer_of(admitted).SerializeToString()
            await self._keep(admitted, found.name, answer)
            return answer

        return await self._repeats.once(found.name, keep)

    async def _keep(self, admitted: Admitted, name: Name, answer: bytes) -> None:
        if len(admitted.batch):
            self._traces.remember(map(trail, admitted.batch.streams))
            try:
                with self._traces.step("spool.append", {"otel_bridge.events": len(admitted.batch)}):
                    await self._spool.append(admitted.batch, self._repeats.row_of(name, answer))
            except BridgeError as error:
                self._watch.refused(len(admitted.batch), error.reason)
                raise
            self._repeats.remember(name, answer)
        self._watch.accepted(len(admitted.batch))
        self._spend(admitted.batch.streams[0].tenant, len(admitted.batch), 0)
        for reason, events in admitted.rejected.items():
            self._watch.refused(events, reason)
        for reason, events in admitted.sender_dropped.items():  # not before: a refused request comes again
            self._watch.sender_dropped(events, reason)


@dataclass(frozen=True, slots=True)
class _Read(Generic[M]):
    message: M
    name: Name


def _check_awaited(is_given_up: Callable[[], bool]) -> None:
    if is_given_up():
        raise Disconnected


def _events_answer(admitted: Admitted) -> Message:
    return pb.ExportEventsResponse(
        accepted=len(admitted.batch), rejected=_rejections(admitted.rejected), first_rejection=admitted.first_rejection
    )


def _upload_answer(admitted: Admitted) -> Message:
    return pb.UploadETDumpResponse(
        accepted=len(admitted.batch),
        rejected=_rejections(admitted.rejected),
        first_rejection=admitted.first_rejection,
        blocks=len(admitted.batch.blocks),
    )


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


async def off_loop(body: bytes, work: Callable[[], T]) -> T:
    """What comes of work on a body: in a thread where the body is large."""
    return await asyncio.to_thread(work) if len(body) > ADMIT_OFF_LOOP_BYTES else work()


def _rejections(rejected: Mapping[str, int]) -> list[pb.Rejection]:
    return [pb.Rejection(reason=reason, events=events) for reason, events in sorted(rejected.items())]


def _sent_ns(sent: str | None) -> int | None:
    """The sender's word for when it sent; None where it says nothing that could be a time."""
    if sent is None or not sent.isascii() or not sent.isdecimal() or len(sent) > len(str(_MAX_SENT_NS)):
        return None
    return int(sent) if 0 < int(sent) < _MAX_SENT_NS else None
