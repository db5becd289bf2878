"""What the spans of an inference share: their trace by W3C Trace Context, and what the root says of clocks."""

from dataclasses import replace

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.scenes import NOON_NS, STREAM, batch_of, call, execute, runtime, spans_in, stages_with

from otel_bridge.model.stream import Anchor, Clock, ClockFault, ClockSource, Stream
from otel_bridge.spans import attributes as at
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.ids import trace_id
from otel_bridge.wire.blocks import context_of

TRACE, PARENT = bytes(range(1, 17)), bytes(range(21, 29))
SAMPLED, RANDOM, HAS_IS_REMOTE, IS_REMOTE = 1, 2, 0x100, 0x200


def traceparent(flags: str = "01", version: str = "00", more: str = "") -> bytes:
    """The header of the app's span."""
    return f"{version}-{TRACE.hex()}-{PARENT.hex()}-{flags}{more}".encode()


def spans_of(header: bytes = b"", state: bytes = b"", stream: Stream = STREAM) -> tuple[Span, Span]:
    """The root of an inference with this context, and its one child."""
    block = execute(context=context_of(header, state))
    batch = batch_of((block, [call("DELEGATE_CALL", 0, 10, 20), runtime("Method::execute", 5, 30)]), stream=stream)
    child, root = spans_in(assemble(stages_with().run(batch), 10**6))
    return root, child


def said(span: Span) -> dict[str, object]:
    """The attributes of a span whose values are texts and numbers."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


OWN = trace_id(STREAM, execute())


def test_a_sampled_context_makes_the_inference_a_part_of_the_apps_trace() -> None:
    """The root is a child of the app's span, which is remote; `tracestate` is on every span, as it came."""
    root, child = spans_of(traceparent(), b"vendor=a:1,other=b")
    assert (root.trace_id, root.parent_span_id) == (TRACE, PARENT)
    assert (child.trace_id, child.parent_span_id) == (TRACE, root.span_id)
    assert (root.flags, child.flags) == (SAMPLED | HAS_IS_REMOTE | IS_REMOTE, SAMPLED | HAS_IS_REMOTE)
    assert root.trace_state == child.trace_state == "vendor=a:1,other=b"
    assert not root.links


def test_the_flags_of_the_app_are_kept() -> None:
    """Also `random`, and bits that no standard names yet: whether an id is random is for whoever drew it to say."""
    root, child = spans_of(traceparent("ff"))
    assert (root.flags & 0xFF, child.flags & 0xFF) == (0xFF, 0xFF)


def test_a_context_that_is_not_sampled_becomes_a_link() -> None:
    """The app's span is not recorded, so a child of it would be an orphan: the inference has its own trace, with a link."""
    root, child = spans_of(traceparent("02"), b"vendor=a")
    assert (root.trace_id, root.parent_span_id, child.trace_id) == (OWN, b"", OWN)
    (link,) = root.links
    assert (link.trace_id, link.span_id, link.trace_state) == (TRACE, PARENT, "vendor=a")
    assert link.flags == RANDOM | HAS_IS_REMOTE | IS_REMOTE
    assert (root.trace_state, child.trace_state, len(child.links)) == ("", "", 0)
    assert root.flags == child.flags == SAMPLED | RANDOM | HAS_IS_REMOTE


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        traceparent().upper(),
        traceparent(version="ff"),
        traceparent(more="-more"),
        traceparent()[:-1],
        traceparent() + b"0",
        traceparent().replace(TRACE.hex().encode(), b"0" * 32),
        traceparent().replace(PARENT.hex().encode(), b"0" * 16),
        b"\xff" * 55,
    ],
)
def test_without_a_valid_context_the_inference_is_a_trace_of_its_own(header: bytes) -> None:
    """Absent and invalid are alike, as the standard says: the header is ignored, and its `tracestate` with it."""
    root, child = spans_of(header, b"vendor=a")
    assert (root.trace_id, root.parent_span_id, root.trace_state, child.trace_id) == (OWN, b"", "", OWN)
    assert not root.links
    assert root.flags == child.flags == SAMPLED | RANDOM | HAS_IS_REMOTE


def test_a_later_version_of_the_header_is_read_as_far_as_it_is_known() -> None:
    """The standard lets later versions add fields."""
    root, _ = spans_of(traceparent(version="42", more="-more"))
    assert (root.trace_id, root.parent_span_id) == (TRACE, PARENT)


@pytest.mark.parametrize("state", [b"v=" + b"x" * 511, b"v=\x07", "v=é".encode()])
def test_a_tracestate_that_cannot_be_kept_is_left_out_alone(state: bytes) -> None:
    """The context stands without it."""
    root, _ = spans_of(traceparent(), state)
    assert (root.trace_id, root.trace_state) == (TRACE, "")


def test_an_anchored_clock_needs_no_words() -> None:
    """The root says nothing of clocks where the sender's anchor places it and nothing was corrected."""
    assert not any(key.startswith("executorch.clock.") for key in said(spans_of()[0]))


def test_the_root_says_what_places_it() -> None:
    """Receipt, or the sender's word for the end; and why an anchor was not taken."""
    stream = replace(STREAM, clocks=(Clock(),))
    assert said(spans_of(stream=stream)[0])[at.CLOCK_SOURCE] == "receipt"
    told = replace(stream, ended_source=ClockSource.ENDED_AT)
    assert said(spans_of(stream=told)[0])[at.CLOCK_SOURCE] == "ended_at"
    faulty = said(spans_of(stream=replace(stream, clock_fault=ClockFault.IMPLAUSIBLE))[0])
    assert (faulty[at.CLOCK_SOURCE], faulty[at.CLOCK_FAULT]) == ("receipt", "implausible")


def test_a_run_in_the_future_says_by_how_much_it_was_moved() -> None:
    """What was added to the device's wall clock, all in all: the correction, and the way back to the receipt."""
    clock = Clock(anchor=Anchor(0, NOON_NS + 10**12))
    stream = replace(STREAM, clocks=(clock,), correction_ns=5, latest_ns=NOON_NS + 100)
    root, child = spans_of(stream=stream)
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (NOON_NS - 25, NOON_NS)
    assert (child.start_time_unix_nano, child.end_time_unix_nano) == (NOON_NS - 20, NOON_NS - 10)
    about = said(root)
    assert (about[at.CLOCK_SOURCE], about[at.CLOCK_FAULT]) == ("receipt", "future")
    assert about[at.CLOCK_CORRECTION_NS] == -(10**12) - 30


def test_inferences_that_ran_the_same_and_ended_otherwise_are_said_apart() -> None:
    """Of one kind and one sender, in one pass: each says its own error, as if it were alone."""
    errors = (None, 0x12, 0x20, 0x12, 0)
    events = [call("DELEGATE_CALL", 0, 10, 20), runtime("Method::execute", 5, 30)]
    blocks = [(execute(position, error=error), events) for position, error in enumerate(errors)]
    together = spans_in(assemble(stages_with().run(batch_of(*blocks)), 10**6))
    alone = [span for block in blocks for span in spans_in(assemble(stages_with().run(batch_of(block)), 10**6))]
    assert together == alone
    assert [said(span).get(at.ERROR_CODE) for span in together if not span.parent_span_id] == [None, 0x12, 0x20, 0x12, None]
