"""
Spans as trees in a terminal: what a trace view shows, for those who have none at hand.

It reads OTLP, as any back end would, and knows nothing of how the spans were made.
"""

from collections.abc import Iterable, Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otel_bridge.spans import attributes as at

_BAR = 24
_NAME = 44
_STATUS_STYLES = {"exact": "green", "derived": "green", "delegate": "cyan", "phase": "cyan"}
_KNOWN_RESOURCE = (at.MODEL_VERSION, at.MAPPING_ID)


def trees(payloads: Iterable[bytes]) -> Iterator[RenderableType]:
    """One renderable a trace, in the order of their starts; a payload is a serialised `ExportTraceServiceRequest`."""
    traces: dict[bytes, tuple[list[Span], dict[str, str]]] = {}
    for payload in payloads:
        for resource in ExportTraceServiceRequest.FromString(payload).resource_spans:
            about = {attribute.key: _text(attribute.value) for attribute in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    traces.setdefault(span.trace_id, ([], about))[0].append(span)
    for spans, about in sorted(traces.values(), key=lambda trace: min(span.start_time_unix_nano for span in trace[0])):
        yield _tree(spans, about)


def _tree(spans: list[Span], about: dict[str, str]) -> RenderableType:
    ids = {span.span_id for span in spans}
    children: dict[bytes, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.start_time_unix_nano, -span.end_time_unix_nano)):
        parent = span.parent_span_id if span.parent_span_id in ids else b""
        children.setdefault(parent, []).append(span)
    root = children[b""][0]
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column()  # the only one that gives way on a narrow terminal
    for depth, span in _walk(children, b"", 0):
        table.add_row(*_row(span, depth, root))
    shown = ", ".join(f"{key.rpartition('.')[2]} {about[key]}" for key in _KNOWN_RESOURCE if key in about)
    device = about.get("device.model.identifier", about.get(at.SERVICE_NAME, ""))
    return Group(Text(f"{device}  {shown}", style="bold"), table, Text())


def _walk(children: dict[bytes, list[Span]], parent: bytes, depth: int) -> Iterator[tuple[int, Span]]:
    for span in children.get(parent, []):
        yield depth, span
        yield from _walk(children, span.span_id, depth + 1)


def _row(span: Span, depth: int, root: Span) -> tuple[Text, Text, Text, Text, Text]:
    said = {attribute.key: attribute for attribute in span.attributes}
    status = _of(said, at.RESOLUTION_STATUS)
    return (
        Text("  " * depth + _fit(span.name)),
        Text(_fit(_of(said, at.DELEGATE_DEBUG_ID)), style="yellow"),
        Text(status, style=_STATUS_STYLES.get(status, "red" if status else "")),
        Text(f"{_bar(span, root)} {_length(span, said):>9} us"),
        Text("  ".join(_details(said)), style="dim"),
    )


def _details(said: dict[str, KeyValue]) -> Iterator[str]:
    if at.DEBUG_HANDLES in said:
        yield f"handles {_ranges([item.int_value for item in said[at.DEBUG_HANDLES].value.array_value.values])}"
    if at.CODE_FILE_PATH in said:
        yield f"{_of(said, at.CODE_FILE_PATH)}:{_of(said, at.CODE_LINE_NUMBER)}"
    for key in said:
        if key.startswith(at.METADATA_PREFIX) or key in {at.METADATA_VALUES, at.METADATA_RAW}:
            yield f"{key.removeprefix(at.METADATA_PREFIX).rpartition('.')[2]}={_of(said, key)}"


def _ranges(handles: list[int]) -> str:
    """Ascending numbers, runs of them shortened: 1-3, 7."""
    runs: list[list[int]] = []
    for handle in handles:
        if runs and handle == runs[-1][-1] + 1:
            runs[-1].append(handle)
        else:
            runs.append([handle])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _fit(text: str) -> str:
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"


def _bar(span: Span, root: Span) -> str:
    """Where the span lies within its root."""
    whole = max(root.end_time_unix_nano - root.start_time_unix_nano, 1)
    begin = (span.start_time_unix_nano - root.start_time_unix_nano) * _BAR // whole
    width = max(1, round((span.end_time_unix_nano - span.start_time_unix_nano) * _BAR / whole))
    begin = min(max(begin, 0), _BAR - 1)
    width = min(width, _BAR - begin)
    return "·" * begin + "█" * width + "·" * (_BAR - begin - width)


def _length(span: Span, said: dict[str, KeyValue]) -> str:
    """The true duration in microseconds; "?" where it is not known."""
    length_ns = span.end_time_unix_nano - span.start_time_unix_nano
    if at.TIME_DURATION_NS in said:
        length_ns = said[at.TIME_DURATION_NS].value.int_value
    elif at.TIME_UNIT in said and length_ns == 1:  # shown as an instant, for want of a length
        return "?"
    return f"{length_ns / 1000:.1f}"


def _of(said: dict[str, KeyValue], key: str) -> str:
    return _text(said[key].value) if key in said else ""


def _text(value: AnyValue) -> str:
    which = value.WhichOneof("value")
    if which == "array_value":
        return ", ".join(_text(item) for item in value.array_value.values)
    if which == "double_value":
        return f"{value.double_value:g}"
    return str(getattr(value, which)) if which else ""
