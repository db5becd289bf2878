"""The app's span, by W3C Trace Context level 2 (https://www.w3.org/TR/trace-context-2/)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.requests import admitted

from otel_bridge.model.events import TraceContext
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.blocks import context_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
IDS = (bytes.fromhex(TRACE), bytes.fromhex(SPAN))


@pytest.mark.parametrize(
    ("traceparent", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"00-{TRACE}-{SPAN}-ff", 0xFF),
        (f"01-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", 1),
        (f"cc-{TRACE}-{SPAN}-01-", 1),
    ],
)
def test_a_valid_traceparent(traceparent: str, flags: int) -> None:
    """A parent of version 00, or of a later one whose first four fields read the same, names the app's span; flags stay."""
    assert context_of(traceparent.encode(), b"") == TraceContext(*IDS, flags)


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-extra",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01.",
        f"cc-{TRACE}-{SPAN}-01.what-the-future-will-not-be-like",
        f"cc-{TRACE}-{SPAN}-0",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE}-{SPAN}-0A",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01\x00",
    ],
)
def test_an_invalid_traceparent(traceparent: str) -> None:
    """A parent that the standard calls invalid is as if it were not there, and its state with it."""
    assert context_of(traceparent.encode(), b"vendor=1") is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (b"", ""),
        (b"vendor=1,other=a b", "vendor=1,other=a b"),
        (b"k=" + b"x" * 510, "k=" + "x" * 510),
        (b"k=" + b"x" * 511, ""),
        (b"k=\x1b[31m", ""),
        (b"k=\xff", ""),
        (b"k=\n", ""),
        (b"k=\x7f", ""),
        ("k=é".encode(), ""),
    ],
)
def test_a_tracestate_is_kept_whole_or_not_at_all(state: bytes, kept: str) -> None:
    """A state of at most 512 bytes of printable ASCII is handed on as it is; any other is left out, and the parent stays."""
    assert context_of(f"00-{TRACE}-{SPAN}-01".encode(), state) == TraceContext(*IDS, 1, kept)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_are_a_context_or_none(traceparent: bytes, tracestate: bytes) -> None:
    """No bytes make a context without ids, and none raise."""
    found = context_of(traceparent, tracestate)
    assert found is None or (any(found.trace_id) and any(found.span_id))


def test_each_block_has_its_own_context() -> None:
    """The context of a block reaches that block, and a broken one costs no neighbour its own."""
    parents = [f"00-{TRACE}-{SPAN}-01", "broken", f"00-{TRACE}-{SPAN}-00"]
    blocks = [pb.Block(kind=2, traceparent=parent.encode(), tracestate=b"a=b") for parent in parents]
    found = [block.context for block in admitted(pb.ExportEventsRequest(stream=pb.Stream(), blocks=blocks)).batch.blocks]
    assert found == [TraceContext(*IDS, 1, "a=b"), None, TraceContext(*IDS, 0, "a=b")]
