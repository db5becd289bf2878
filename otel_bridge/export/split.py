"""
Halving what is too large for the back end.

Invariants
* A payload that the back end finds too large is halved by spans until the parts are taken. Order is kept.
* A part of `floor_bytes` or less, or of one span, is not halved: it is counted as rejected. No back end's limit is that low, so
  one that says "too large" and means "too many" is not asked once for every span.
* If a part ends unavailable (retries are inside), it is counted as rejected where another part was taken, so that what the
  back end has is not called lost; where none was, the error is raised.
"""

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.protocol import TOO_LARGE, Exporter, Sent

FLOOR_BYTES = 65_536


class Split:
    """Sends to `inner` in halves what it rejects as too large."""

    def __init__(self, inner: Exporter, *, floor_bytes: int = FLOOR_BYTES) -> None:
        self._inner = inner
        self._floor_bytes = floor_bytes

    async def send(self, payload: bytes) -> Sent:
        """See `Exporter.send`."""
        try:
            return await self._inner.send(payload)
        except ExportRejected as error:
            halves = self._halves(payload) if error.reason == TOO_LARGE else ()
            if not halves:
                raise
        sent: list[Sent] = []
        lost: BackEndUnavailable | None = None
        for half in halves:
            try:
                sent.append(await self._send_half(half))
            except BackEndUnavailable as error:
                lost = error
                sent.append(Sent(count_spans(ExportTraceServiceRequest.FromString(half)), str(error)))
        whole = _sum(sent)
        if lost is not None and whole.rejected_spans == count_spans(ExportTraceServiceRequest.FromString(payload)):
            raise lost
        return whole

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._inner.close()

    async def _send_half(self, half: bytes) -> Sent:
        try:
            return await self.send(half)
        except ExportRejected as error:
            return Sent(count_spans(ExportTraceServiceRequest.FromString(half)), str(error))

    def _halves(self, payload: bytes) -> tuple[bytes, ...]:
        if len(payload) <= self._floor_bytes:
            return ()
        try:
            request = ExportTraceServiceRequest.FromString(payload)
        except DecodeError:
            return ()
        spans = count_spans(request)
        if spans < 2:  # noqa: PLR2004  # two halves need two spans
            return ()
        return tuple(_slice(request, *bounds).SerializeToString() for bounds in ((0, spans // 2), (spans // 2, spans)))


def count_spans(request: ExportTraceServiceRequest) -> int:
    """Spans of all resources and scopes."""
    return sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)


def _slice(request: ExportTraceServiceRequest, first: int, last: int) -> ExportTraceServiceRequest:
    """Spans `first` to `last`, counted over the whole request, under copies of their resources and scopes."""
    part = ExportTraceServiceRequest()
    position = 0
    for resource in request.resource_spans:
        kept_resource = None
        for scope in resource.scope_spans:
            spans = scope.spans[max(0, first - position) : max(0, last - position)]
            position += len(scope.spans)
            if not spans:
                continue
            if kept_resource is None:
                kept_resource = part.resource_spans.add(schema_url=resource.schema_url)
                if resource.HasField("resource"):
                    kept_resource.resource.CopyFrom(resource.resource)
            kept_scope = kept_resource.scope_spans.add(schema_url=scope.schema_url, spans=spans)
            if scope.HasField("scope"):
                kept_scope.scope.CopyFrom(scope.scope)
    return part


def _sum(parts: list[Sent]) -> Sent:
    said = next((part.message for part in parts if part.message), "")
    return Sent(sum(part.rejected_spans for part in parts), said)
