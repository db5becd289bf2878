"""
What the spans of a stream say of their device and app: the resource, made once for whatever a device says again.

Invariants
* A resource follows from the stream and its mapping alone; it is remembered by the very objects that admission remembers too
  (wire/admission.py), which are kept alive as long as this, so that nothing is compared.
* What is remembered has a bound: at most `_KEPT`, each of at most `_KEPT_BYTES`.
"""

from collections import OrderedDict
from dataclasses import dataclass

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from otel_bridge.model.stream import Attributes, Stream
from otel_bridge.spans import attributes as at
from otel_bridge.spans import encode

_KEPT = 4096
_KEPT_BYTES = 2048
_SCHEMA = ResourceSpans(schema_url=at.SCHEMA_URL).SerializeToString()


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """
    A resource.

    attributes   what it says
    head         the fragment of a serialised `ResourceSpans` in front of its spans: resource and schema URL
    cuts         how many of its texts were cut
    """

    attributes: Attributes
    head: bytes
    cuts: int


class Resources:
    """Resources of streams. One thread uses it at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], tuple[object, Resource]] = OrderedDict()

    def of(self, stream: Stream, mapping_digest: str | None) -> Resource:
        """The resource of a stream whose mapping has this digest; None: it has none."""
        key = (id(stream.resource), id(stream.model), stream.build, stream.runtime_version, stream.tenant, mapping_digest)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known[1]
        attributes = attributes_of(stream, mapping_digest)
        encoded = encode.resource(attributes)
        resource = Resource(attributes, encode.field(1, len(encoded)) + encoded + _SCHEMA, at.count_cuts(attributes))
        if len(resource.head) <= _KEPT_BYTES:
            self._known[key] = (stream.resource, stream.model), resource  # not the stream: it may have hundreds of clocks
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return resource


def attributes_of(stream: Stream, mapping_digest: str | None) -> Attributes:
    """The resource attributes of a stream: what the sender gave (admission has filtered it), then what the bridge knows."""
    known: dict[str, str | int | float | bool] = dict(stream.resource)
    model = stream.model
    given = known.get(at.SERVICE_NAME)
    if not isinstance(given, str) or not given:  # back ends group by it, and Jaeger marks a span without
        known[at.SERVICE_NAME] = model.name or "unknown_service:executorch"
    told = {
        at.MODEL_NAME: model.name,
        at.MODEL_VERSION: model.version,
        at.MODEL_BUILD_ID: stream.build or model.build_id,
        at.MAPPING_ID: mapping_digest[:16] if mapping_digest else None,
        at.RUNTIME_VERSION: stream.runtime_version,
        at.TENANT: stream.tenant,
    }
    known.update({key: value for key, value in told.items() if value})
    return tuple((key, at.cut(value) if isinstance(value, str) else value) for key, value in known.items())
