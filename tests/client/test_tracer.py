"""The tracer: ExecuTorch's run-time API, event by event."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from support.faulty_bridge import FaultyBridge
from support.inferences import infer, rows_of
from support.tracing import Ticks, sent

from otel_bridge.client import (
    BridgeClient,
    EventTracer,
    MisusedTracer,
    NoEventBlock,
    WrongEntry,
    WrongIdentifier,
    WrongValue,
)
from otel_bridge.model.stream import Clock

RUNTIME, CALL, SCOPE, DELEGATE = 1, 2, 3, 4
U64 = 2**64


def test_an_inference_as_a_device_would_send_it(bridge: FaultyBridge) -> None:
    """Kinds follow from chain and name, rows stand in the order of their ends, and what the block is about stands in it."""

    def record(tracer: EventTracer) -> None:
        tracer.set_method("forward")
        with tracer.event_block("Execute", run_index=7, attributes={"device.thermal.state": "hot", "thread.count": 4}):
            whole = tracer.start_profiling("Method::execute")
            with tracer.instruction(3):
                call = tracer.start_profiling("DELEGATE_CALL")
                inner = tracer.start_profiling_delegate("conv#1")
                tracer.log_profiling_delegate(None, 0, 30, 40, b"\x01")
                tracer.end_profiling_delegate(inner, bytearray(b"meta"))
                tracer.end_profiling(call)
                kernel = tracer.start_profiling("native_call_add", 0, 9)
                tracer.end_profiling(kernel)
            tracer.end_profiling(whole)
            tracer.set_error(0x12)

    counter = Ticks(10, 11, 12, 50, 51, 52, 53, 60)
    request = sent(bridge, record, model="net@1.2", build_id="abc", runtime_version="1.5.1", ticks=counter)
    assert list(rows_of(request)) == [
        (DELEGATE, 0, 3, 30, 10, b"\x01"),
        (DELEGATE, "conv#1", 3, 12, 38, b"meta"),
        (CALL, "DELEGATE_CALL", 3, 11, 40, b""),
        (SCOPE, "native_call_add", 9, 52, 1, b""),
        (RUNTIME, "Method::execute", -1, 10, 50, b""),
    ]
    (block,) = request.blocks
    assert (block.kind, block.name, block.method, block.error, block.run_index) == (2, b"Execute", b"forward", 0x12, 7)
    assert [(each.key, each.value.text or each.value.integer) for each in block.attributes] == [
        (b"device.thermal.state", b"hot"),
        (b"thread.count", 4),
    ]
    stream = request.stream
    assert (stream.model.name, stream.model.version, stream.model.build_id) == (b"net", b"1.2", b"abc")
    assert (stream.runtime_version, stream.clocks[0].anchor_ticks) == (b"1.5.1", 60)
    assert len(stream.stream_id) == 16


def test_blocks_end_where_the_next_begins(bridge: FaultyBridge) -> None:
    """As in ExecuTorch; each has a position of its own, and names that it does not know are blocks of another kind."""

    def record(tracer: EventTracer) -> None:
        for name in ("Default", "Execute", "warm-up"):
            tracer.create_event_block(name)
            tracer.log_profiling_delegate("x", None, 1, 2)

    request = sent(bridge, record)
    assert [(block.name, block.kind, block.position, block.event_count) for block in request.blocks] == [
        (b"Default", 1, 0, 1),
        (b"Execute", 2, 1, 1),
        (b"warm-up", 3, 2, 1),
    ]


def test_the_end_of_a_delegates_event_says_where_it_was(bridge: FaultyBridge) -> None:
    """As ExecuTorch has it: of the instruction that is current at the end; an event of the runtime keeps that of its start."""

    def record(tracer: EventTracer) -> None:
        tracer.create_event_block("Execute")
        tracer.set_chain_debug_handle(0, 5)
        delegate, scope = tracer.start_profiling_delegate("d"), tracer.start_profiling("native_call_x")
        tracer.set_chain_debug_handle(0, 9)
        tracer.end_profiling_delegate(delegate)
        tracer.end_profiling(scope)
        tracer.set_chain_debug_handle(-1, 0)
        tracer.log_profiling_delegate("init", None, 1, 2)

    assert [(name, instruction) for _, name, instruction, *_ in rows_of(sent(bridge, record))] == [
        ("d", 9),
        ("native_call_x", 5),
        ("init", -1),
    ]


WRONG_IDENTIFIERS = [
    (None, None),
    ("a", 1),
    ("", None),
    (b"a", None),
    (1, None),
    (None, -1),
    (None, 2**31),
    (None, -(2**31) - 1),
    (None, True),
]


@pytest.mark.parametrize(("name", "number"), WRONG_IDENTIFIERS, ids=str)
def test_exactly_one_identifier_that_can_be(bridge: FaultyBridge, name: object, number: object) -> None:
    """Both, neither, or one that the runtime's types cannot hold is refused by name, for a live event as for a logged one."""
    with BridgeClient(bridge.address) as client:
        tracer = EventTracer(client)
        tracer.create_event_block("Execute")
        with pytest.raises(WrongIdentifier, match="exactly one of them"):
            tracer.start_profiling_delegate(name, number)
        with pytest.raises(WrongIdentifier):
            tracer.log_profiling_delegate(name, number, 1, 2)
        tracer.close()
        assert client.stats.recorded == 0


def test_misuse_has_a_name(bridge: FaultyBridge) -> None:
    """Each thing that ExecuTorch aborts the process for, and each value that its types cannot hold, is a `ValueError`."""
    with BridgeClient(bridge.address) as client:
        tracer = EventTracer(client)

        def refuses(error: type[MisusedTracer], call: Callable[[], object]) -> None:
            with pytest.raises(error) as caught:
                call()
            assert isinstance(caught.value, ValueError)

        refuses(NoEventBlock, lambda: tracer.start_profiling("x"))
        refuses(NoEventBlock, lambda: tracer.start_profiling_delegate("x"))
        refuses(NoEventBlock, lambda: tracer.log_profiling_delegate("x", None, 1, 2))
        refuses(NoEventBlock, lambda: tracer.set_chain_debug_handle(0, 1))
        refuses(NoEventBlock, lambda: tracer.set_error(1))
        refuses(WrongValue, lambda: tracer.create_event_block(""))
        refuses(WrongValue, lambda: tracer.create_event_block("Execute", run_index=-1))
        tracer.create_event_block("Execute")
        refuses(WrongIdentifier, lambda: tracer.start_profiling(""))
        refuses(WrongValue, lambda: tracer.start_profiling("x", 256, 0))
        refuses(WrongValue, lambda: tracer.set_chain_debug_handle(0, -1))
        refuses(WrongValue, lambda: tracer.set_error(2**32))
        refuses(WrongValue, lambda: tracer.log_profiling_delegate("x", None, 1.5, 2))
        refuses(WrongValue, lambda: tracer.log_profiling_delegate("x", None, 1, 2, "text"))
        refuses(WrongValue, lambda: tracer.log_profiling_delegate("x", None, 1, 2, clock=1))
        runtime, delegate = tracer.start_profiling("x"), tracer.start_profiling_delegate("x")
        refuses(WrongEntry, lambda: tracer.end_profiling(delegate))
        refuses(WrongEntry, lambda: tracer.end_profiling_delegate(runtime))
        tracer.end_profiling_delegate(delegate)
        refuses(WrongEntry, lambda: tracer.end_profiling_delegate(delegate))


def test_the_apps_span_is_the_parent(bridge: FaultyBridge) -> None:
    """The OpenTelemetry span that is current when a block begins stands in it as W3C has it; without one there is none."""
    state = trace.TraceState([("vendor", "x")])
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1), trace_state=state)

    def record(tracer: EventTracer) -> None:
        with trace.use_span(trace.NonRecordingSpan(context)):
            infer(tracer)
        infer(tracer)

    inside, outside = sent(bridge, record).blocks
    assert inside.traceparent == b"00-00000000000000000000000000000abc-0000000000000def-01"
    assert inside.tracestate == b"vendor=x"
    assert (outside.traceparent, outside.tracestate) == (b"", b"")


def test_a_delegate_with_a_clock_of_its_own(bridge: FaultyBridge) -> None:
    """Its events are counted in its ticks, and the request says what a tick is."""

    def record(tracer: EventTracer) -> None:
        with tracer.event_block("Execute"):
            tracer.log_profiling_delegate("npu", None, 100, 200, clock=1)
            tracer.log_profiling_delegate("cpu", None, 7, 8)

    request = sent(bridge, record, more_clocks=(Clock(125, 3, 32, name="npu"),))
    assert [(each.numerator, each.denominator, each.counter_bits, each.name) for each in request.stream.clocks] == [
        (1, 1, 64, b"host"),
        (125, 3, 32, b"npu"),
    ]
    assert list(request.events.clock) == [1, 0]


identifiers = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(lambda name: (name, None)),
    st.integers(-(2**31), 2**31 - 1).filter(lambda number: number != -1).map(lambda number: (None, number)),
)
ticks = st.integers(0, U64 - 1)
logged = st.tuples(identifiers, ticks, ticks, st.binary(max_size=6), st.integers(-1, 40))


@given(blocks=st.lists(st.lists(logged, max_size=8), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_logged_is_what_arrives(bridge: FaultyBridge, blocks: list[list[tuple]]) -> None:
    """Any identifiers, ticks and metadata, in any instructions, arrive as they were logged, block by block."""

    def record(tracer: EventTracer) -> None:
        for block in blocks:
            tracer.create_event_block("Execute")
            for (name, number), start, end, metadata, instruction in block:
                tracer.set_chain_debug_handle(0 if instruction >= 0 else -1, max(instruction, 0))
                tracer.log_profiling_delegate(name, number, start, end, metadata)

    request = sent(bridge, record)
    assert [block.event_count for block in request.blocks] == [len(block) for block in blocks]
    assert list(rows_of(request)) == [
        (DELEGATE, number if name is None else name, instruction, start, (end - start) % U64, metadata)
        for block in blocks
        for (name, number), start, end, metadata, instruction in block
    ]
