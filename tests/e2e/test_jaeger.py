"""
The proof with a real back end: captures go through a running bridge into a running Jaeger, which is then asked what it has.

Each capture goes in by one of the three doors, under a service name of its own. Its ticks are anchored, so that a span is found
by its event's time. What Jaeger should show is worked out from ExecuTorch's own reading of the dump (support/captures.py).
"""

import json
from collections.abc import Callable, Iterator

import pytest
from support.captures import CAPTURES, Capture
from support.doors import HARDWARE, VERSION, Bridge, export_events, post_file, running_bridge, send_file
from support.jaeger import Jaeger, StoredSpan
from support.spans import TICK_ZERO_NS, resolve_dump

HOUR_NS = 3_600_000_000_000
INTERNAL = 1

Door = Callable[[Bridge, Capture, str], None]

SENT: dict[str, tuple[Door, str]] = {
    "toy_backend_int/run10": (export_events, "camera"),
    "two_backends/run": (export_events, "camera-zoom"),
    "xnnpack/run100": (export_events, "gallery"),
    "multi_method/run": (send_file, "keyboard"),
    "xnn_mobile/run10": (send_file, "gallery-faces"),
    "mixed_ops/run": (send_file, "notes"),
    "toy_backend_str/run": (post_file, "camera-night"),
    "xnn_transformer/run": (post_file, "translator"),
    "portable_only/run10": (post_file, "clock"),
}
"""What is sent: by which door, and as which app."""


@pytest.fixture(scope="module")
def bridge(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that every capture of `SENT` went through."""
    with running_bridge(jaeger, tmp_path_factory.mktemp("bridge")) as running:
        send_all(running)
        yield running


def send_all(bridge: Bridge) -> None:
    for capture_id, (door, service) in SENT.items():
        door(bridge, CAPTURES[capture_id], service)
    bridge.settle()


def stored(jaeger: Jaeger, service: str) -> list[StoredSpan]:
    """All that Jaeger shows of a service, in one order."""
    traces = jaeger.search(service, start_ns=TICK_ZERO_NS, end_ns=TICK_ZERO_NS + HOUR_NS)
    by_id = [span for trace_id in sorted(traces) for span in jaeger.trace(trace_id)]
    assert by_id == [span for trace_id in sorted(traces) for span in traces[trace_id]]
    return by_id


@pytest.fixture(params=SENT)
def capture(request: pytest.FixtureRequest) -> Capture:
    return CAPTURES[request.param]


@pytest.fixture
def spans(capture: Capture, jaeger: Jaeger, bridge: Bridge) -> list[StoredSpan]:
    assert bridge.is_ready
    return stored(jaeger, SENT[capture.id][1])


def test_all_spans_are_there(capture: Capture, spans: list[StoredSpan]) -> None:
    """Jaeger has one span for each event of the dump, and each block is a trace."""
    assert len(spans) == len(capture.events) == len(capture.pair(spans, TICK_ZERO_NS))
    assert len({span.trace_id for span in spans}) == len(capture.blocks)


def test_parents_are_right(capture: Capture, spans: list[StoredSpan]) -> None:
    """Each span hangs under the span of the event that it happened in."""
    pairs = capture.pair(spans, TICK_ZERO_NS)
    ids = {event.number: span.span_id for event, span in pairs}
    for event, span in pairs:
        parent = capture.parent_of(event)
        assert span.parent_span_id == (ids[parent.number] if parent else "")


def test_attributes_are_right(capture: Capture, spans: list[StoredSpan]) -> None:
    """Names, times, and attributes with their types are those of a replay of the file, which test_every_capture proves."""
    local = resolve_dump(capture.dump, capture.mapping, model=capture.model).spans
    expected = dict(capture.pair(local, TICK_ZERO_NS))
    for event, span in capture.pair(spans, TICK_ZERO_NS):
        replayed = expected[event]
        assert (span.name, span.start_ns, span.end_ns) == (replayed.name, replayed.start_ns, replayed.end_ns)
        assert (span.kind, span.status, span.scope, span.flags) == (INTERNAL, 0, replayed.scope, replayed.flags)
        assert with_types(span) == with_types(replayed)


def with_types(span: StoredSpan) -> dict[str, tuple[object, ...]]:
    """Attributes with the types of values and of array items."""
    return {
        key: (value, type(value), [type(item) for item in value] if isinstance(value, tuple) else None)
        for key, value in span.attributes.items()
    }


def test_types_survive(capture: Capture, spans: list[StoredSpan]) -> None:
    """Handles arrive as arrays of integers, operators as arrays of strings, numbers in metadata as doubles."""
    for event, span in capture.pair(spans, TICK_ZERO_NS):
        content = json.loads(event.metadata) if event.metadata.startswith(b"{") else {}
        numbers = [key for key, value in content.items() if isinstance(value, int)]
        assert [type(span.attributes[f"executorch.delegate.metadata.{key}"]) for key in numbers] == [float] * len(numbers)
        for name, kind in (("debug_handles", int), ("operator.names", str)):
            items = span.attributes.get(f"executorch.{name}", ())
            assert isinstance(items, tuple)
            assert {type(item) for item in items} <= {kind}


def test_identifiers_resolve_as_the_maps_say(capture: Capture, spans: list[StoredSpan]) -> None:
    """What Jaeger shows of a delegate event is what the model's maps say of its identifier."""
    for event, span in capture.pair(spans, TICK_ZERO_NS):
        if event.identifier is not None:
            expected = capture.resolution_of(event)
            assert span.attributes["executorch.resolution.status"] == expected.status
            assert span.attributes.get("executorch.debug_handles", ()) == expected.handles


def test_the_resource_is_right(capture: Capture, spans: list[StoredSpan], jaeger: Jaeger) -> None:
    """Service, device, model and mapping stand on the resource, and only what may: the same on all spans of a capture."""
    service = SENT[capture.id][1]
    assert service in jaeger.services()
    (digest,) = {str(span.resource["executorch.mapping.id"]) for span in spans}
    for span in spans:
        assert span.resource == {
            "service.name": service,
            "device.model.identifier": HARDWARE,
            "executorch.model.name": capture.model,
            "executorch.model.version": VERSION,
            "executorch.model.build_id": f"sha256:{digest}",
            "executorch.mapping.id": digest,
        }


def test_jaeger_has_nothing_to_complain_of(capture: Capture, spans: list[StoredSpan], jaeger: Jaeger) -> None:
    """No span of any trace carries a warning, also those of no length and those of another clock."""
    zero = [event for event in capture.events if event.start == event.end]
    assert len([span for span in spans if span.attributes.get("executorch.time.duration_ns") == 0]) == len(zero)
    assert [jaeger.warnings(trace_id) for trace_id in {span.trace_id for span in spans}] == [{}] * len(capture.blocks)


def test_the_captures_hold_what_jaeger_dislikes() -> None:
    """Among what is sent are events of no length, and events outside their call: the test above sees both."""
    events = [(CAPTURES[capture_id], event) for capture_id in SENT for event in CAPTURES[capture_id].events]
    assert any(event.start == event.end for _, event in events)
    assert any(parent and event.start < parent.start for capture, event in events for parent in [capture.parent_of(event)])


def test_sending_again_changes_nothing(bridge: Bridge, jaeger: Jaeger) -> None:
    """Each request sent a second time is answered, is emitted no second time, and leaves what Jaeger shows as it was."""
    before = {service: stored(jaeger, service) for _, service in SENT.values()}
    emitted = bridge.emitted_events
    send_all(bridge)
    assert bridge.emitted_events == emitted == sum(map(len, before.values()))
    assert {service: stored(jaeger, service) for _, service in SENT.values()} == before
