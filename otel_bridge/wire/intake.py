"""
Taking in events: the way from a request's bytes to the spool, the same for gRPC and HTTP.

Invariants
* The answer is given only once the events are in the spool: receive, append, then acknowledge.
* A request that is sent again gets the receipt and the builds of its first attempt, as far as that is remembered, so its spans
  are the same byte for byte and a back end shows them once.
* What takes long (a large file) is parsed in a thread; the event loop never waits for it.
"""

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from otel_bridge.errors import BridgeError, MalformedRequest
from otel_bridge.model.stream import trail
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.traces import SILENT, Traces
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, BuildOf, Receipt, Rules, admit_etdump, admit_events
from otel_bridge.wire.frame import Frame

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


class Watch(Protocol):
    """Told what came in."""

    def accepted(self, events: int) -> None:
        """Events were put into the spool."""

    def refused(self, events: int, reason: str) -> None:
        """Events were not taken: some of an accepted request, or all of one that is to come again."""

    def sender_dropped(self, events: int, reason: str) -> None:
        """The sender had dropped events before it sent."""


@dataclass(slots=True)
class Attempt:
    """What the first attempt at a request fixed for all: when it came, and the builds that its aliases named."""

    receipt: Receipt
    bound: dict[tuple[str, str], str] = field(default_factory=dict)

    def bind(self, build_of: BuildOf) -> BuildOf:
        """`build_of` with the answers of the first attempt."""

        def bound(name: str, version: str) -> str | None:
            known = self.bound.get((name, version)) or build_of(name, version)
            if known is not None:
                self.bound[name, version] = known
            return known

        return bound


class Receipts:
    """
    Remembers the last `max_entries` requests, so that a second attempt is given what the first one fixed.

    Thread-safe: large bodies are hashed off the event loop.
    """

    def __init__(self, max_entries: int = 100_000) -> None:
        self._max_entries = max_entries
        self._known: OrderedDict[tuple[str, bytes], Attempt] = OrderedDict()
        self._lock = threading.Lock()

    def first(self, body: bytes, receipt: Receipt) -> Attempt:
        """The first attempt of a tenant with this body: this one, or an earlier one."""
        key = receipt.tenant, hashlib.blake2b(body, digest_size=16).digest()
        with self._lock:
            known = self._known.setdefault(key, Attempt(receipt))
            self._known.move_to_end(key)
            if len(self._known) > self._max_entries:
                self._known.popitem(last=False)
        return known


class Intake:
    """
    Admits requests and appends their events to the spool.

    build_of   binds an alias of a tenant to the build that it names now
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
        now_ns: Callable[[], int] = time.time_ns,
        *,
        spend: Spend = for_nothing,
        traces: Traces = SILENT,
    ) -> None:
        self._spool = spool
        self._rules = rules
        self._build_of = build_of
        self._watch = watch
        self._now_ns = now_ns
        self._receipts = Receipts()
        self._spend = spend
        self._traces = traces

    async def export_events(self, body: bytes, sent: str | None, tenant: str = "") -> pb.ExportEventsResponse:
        """
        Take a serialised `ExportEventsRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Raises `Rejected` and `Unavailable`.
        """
        self._spend(tenant, 0, len(body))
        receipt = Receipt(self._now_ns(), _sent_ns(sent), tenant)
        admitted = await off_loop(body, lambda: self._admit_events(body, receipt))
        await self._keep(admitted)
        return pb.ExportEventsResponse(
            accepted=len(admitted.batch), rejected=_rejections(admitted.rejected), first_rejection=admitted.first_rejection
        )

    async def upload_etdump(self, body: bytes, sent: str | None, tenant: str = "") -> pb.UploadETDumpResponse:
        """
        Take a serialised `UploadETDumpRequest` of a tenant; `sent` is the value of `SENT_KEY`.

        Raises `Rejected` and `Unavailable`.
        """
        self._spend(tenant, 0, len(body))
        receipt = Receipt(self._now_ns(), _sent_ns(sent), tenant)
        admitted = await off_loop(body, lambda: self._admit_etdump(body, receipt))
        await self._keep(admitted)
        return pb.UploadETDumpResponse(
            accepted=len(admitted.batch),
            rejected=_rejections(admitted.rejected),
            first_rejection=admitted.first_rejection,
            blocks=len(admitted.batch.blocks),
        )

    def _admit_events(self, body: bytes, receipt: Receipt) -> Admitted:
        frame = parse(Frame, body)
        first = self._receipts.first(body, receipt)
        return admit_events(frame, body, first.receipt, self._rules, first.bind(partial(self._build_of, receipt.tenant)))

    def _admit_etdump(self, body: bytes, receipt: Receipt) -> Admitted:
        request = parse(pb.UploadETDumpRequest, body)
        first = self._receipts.first(body, receipt)
        return admit_etdump(request, first.receipt, self._rules, first.bind(partial(self._build_of, receipt.tenant)))

    async def _keep(self, admitted: Admitted) -> None:
        if len(admitted.batch):
            self._traces.remember(map(trail, admitted.batch.streams))
            try:
                with self._traces.step("spool.append", {"otel_bridge.events": len(admitted.batch)}):
                    await self._spool.append(admitted.batch)
            except BridgeError as error:
                self._watch.refused(len(admitted.batch), error.reason)
                raise
        self._watch.accepted(len(admitted.batch))
        self._spend(admitted.batch.streams[0].tenant, len(admitted.batch), 0)
        for reason, events in admitted.rejected.items():
            self._watch.refused(events, reason)
        for reason, events in admitted.sender_dropped.items():  # not before: a refused request comes again
            self._watch.sender_dropped(events, reason)


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
