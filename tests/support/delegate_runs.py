"""
One inference with one delegate call, as a backend would log it: the dump is written, resolved and decoded.

    0            100 ns                                    9,100 ns        10,000 ns
    Method::execute
                 DELEGATE_CALL, instruction 0
                 | what the backend logs |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.jaeger import StoredSpan
from support.mappings import mapping_of
from support.spans import LIMIT_BYTES, TICK_ZERO_NS, Resolved, by_id, reference_spans, resolve_dump

from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2 as pb

CALL_START, CALL_END = 100, 9_100

Identifier = int | str


def logged(identifier: Identifier, start: int, end: int, metadata: bytes = b"") -> ProfileEvent:
    """A delegate event, as `event_tracer_log_profiling_delegate` leaves it."""
    number, text = (identifier, None) if isinstance(identifier, int) else (None, identifier)
    return ProfileEvent(chain=0, instruction=0, id_int=number, id_str=text, metadata=metadata, start=start, end=end)


def stretch(name: str, start: int, end: int) -> ProfileEvent:
    """A stretch of the runtime inside the call, as `EventTracer::start_profiling` leaves it."""
    return ProfileEvent(name=name, chain=0, instruction=0, start=start, end=end)


@dataclass(frozen=True, slots=True)
class DelegateRun:
    """What became of it. `events` are the spans of delegate events by identifier as text, each of which stands once."""

    spans: list[StoredSpan]
    call: StoredSpan
    events: dict[str, StoredSpan]
    resolved: Resolved

    def said(self, identifier: Identifier, *prefixes: str) -> dict[str, object]:
        """Attributes of a delegate event's span whose keys begin so, after `executorch.`."""
        return chosen(self.events[str(identifier)], *prefixes)

    def times(self, identifier: Identifier) -> tuple[int, int]:
        """Start and end of a delegate event's span, nanoseconds since tick 0."""
        span = self.events[str(identifier)]
        return span.start_ns - TICK_ZERO_NS, span.end_ns - TICK_ZERO_NS


def chosen(span: StoredSpan, *prefixes: str) -> dict[str, object]:
    """Attributes whose keys begin so, after `executorch.`; that is left out of the keys."""
    found = {key.removeprefix("executorch."): value for key, value in span.attributes.items()}
    return {key: value for key, value in found.items() if key.startswith(prefixes)}


def run_delegate(
    backend: str,
    events: Sequence[ProfileEvent],
    *,
    entries: Mapping[Identifier, list[int]] | None = None,
    handles: Sequence[int] = (1, 2, 3),
    formats: Sequence[pb.MetadataFormat] = (),
    parsers: Sequence[str] = (),
) -> DelegateRun:
    """
    Resolve a run of a backend whose map has `entries`; `handles` are those of the call, each with an operator `aten.op<n>`.

    Both ways to build spans are taken, and each event must have ended once.
    """
    mapping = mapping_of(dict(entries or {}), backend=backend)
    call = mapping.methods[0].instructions[0]
    call.handles[:] = handles
    for handle in handles:
        call.operators.add(handle=handle, operators=[pb.Operator(name=f"aten.op{handle}")])
    mapping.metadata.extend(formats)
    around = [
        ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=CALL_START, end=CALL_END),
        ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=0, end=10_000),
    ]
    dump = write_etdump([RunData("Execute", [*events, *around])])
    resolved = resolve_dump(dump, pb.MappingFile(mapping=mapping), parsers=parsers)
    assert by_id(resolved.spans) == by_id(reference_spans(resolved.scene))
    assert sum(payload.events for payload in assemble(resolved.scene, LIMIT_BYTES)) == len(events) + 2
    (bearer,) = [span for span in resolved.spans if span.name.startswith("delegate ")]
    named = [span for span in resolved.spans if "executorch.delegate.debug_id" in span.attributes]
    by_identifier = {str(span.attributes["executorch.delegate.debug_id"]): span for span in named}
    assert len(by_identifier) == len(named)
    return DelegateRun(resolved.spans, bearer, by_identifier, resolved)
