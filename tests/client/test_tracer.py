"""The tracer: ExecuTorch's run-time API, event by event."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, infer, names_of, rows_of

from otel_bridge.client import (
    BridgeClient,
    ClientSettings,
    EventTracer,
    MisusedTracer,
    NoEventBlock,
    WrongEntry,
    WrongIdentifier,
    WrongValue,
)
from otel_bridge.model.stream import Clock
from otel_bridge.v1 import profiling_pb2 as pb

RUNTIME, CALL, SCOPE, DELEGATE = 1, 2, 3, 4
U64 = 2**64
Record = Callable[[EventTracer], object]


def sent(
    bridge: FaultyBridge, record: Record, *, client_settings: ClientSettings = QUICK, **tracer: object
) -> pb.ExportEventsRequest:
    """The request in which what `record` does arrives; a request is not made before it is over."""
    patient = replace(client_settings, batch_age_s=60.0)
    with BridgeClient(bridge.address, settings=patient) as client:
        tracing = EventTracer(client, **tracer)
        record(tracing)
        tracing.close()
        assert client.flush(30)
        assert client.stats.dropped == {}
    return bridge.taken[-1]


class Ticks:
    """A tick counter that tests move."""

    def __init__(self, *ticks: int) -> None:
        self.ticks = list(ticks)

    def __call__(self) -> int:
        """The next tick; the last one again and again."""
        return self.ticks.pop(0) if len(self.ticks) > 1 else self.ticks[0]


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


def test_threads_do_not_mix(bridge: FaultyBridge) -> None:
    """One tracer serves many threads: each block holds its own thread's events, in order, and no event is lost."""
    threads, inferences, events = 4, 25, 40

    def record(tracer: EventTracer) -> None:
        def infer_often(thread: int) -> None:
            tracer.set_method(f"m{thread}")
            for _ in range(inferences):
                tracer.create_event_block("Execute")
                for number in range(events):
                    entry = tracer.start_profiling_delegate(None, thread * 1000 + number)
                    tracer.end_profiling_delegate(entry)
            tracer.end_event_block()

        running = [threading.Thread(target=infer_often, args=(thread,)) for thread in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()

    sent(bridge, record)
    blocks = []
    for request in bridge.taken:
        names = iter(names_of(request))
        blocks += [(block.method.decode(), [next(names) for _ in range(block.event_count)]) for block in request.blocks]
    assert len(blocks) == threads * inferences
    for method, numbers in blocks:
        thread = int(method.removeprefix("m"))
        assert numbers == [thread * 1000 + number for number in range(events)]
    positions = [block.position for request in bridge.taken for block in request.blocks]
    assert sorted(positions) == list(range(threads * inferences))


@pytest.mark.timeout(120)
def test_a_million_identifiers(bridge: FaultyBridge) -> None:
    """10^6 distinct identifiers in one inference arrive whole, in requests of bounded size."""
    count = 10**6

    def record(tracer: EventTracer) -> None:
        with tracer.event_block("Execute"):
            for number in range(count):
                tracer.log_profiling_delegate(f"operator number {number}", None, number, number + 1)

    sent(bridge, record, client_settings=replace(QUICK, queue_bytes=2**30, request_bytes=8 << 20, timeout_s=60.0))
    assert max(request.ByteSize() for request in bridge.taken) <= 8 << 20
    assert [request.blocks[0].part.number for request in bridge.taken] == list(range(len(bridge.taken)))
    expected = iter(range(count))
    for request in bridge.taken:
        assert all(name == f"operator number {next(expected)}" for name in names_of(request))
    assert next(expected, None) is None


def test_an_endless_block_is_bounded(bridge: FaultyBridge) -> None:
    """What a block holds beyond the memory of the queue is dropped and counted; what fits arrives."""
    with BridgeClient(bridge.address, settings=replace(QUICK, queue_bytes=10_000)) as client:
        tracer = EventTracer(client)
        with tracer.event_block("Execute"):
            for _ in range(1_000):
                tracer.log_profiling_delegate("x", None, 1, 2)
        assert client.flush(20)
        stats = client.stats
    assert stats.recorded == 1_000
    assert stats.accepted + stats.dropped["queue_full"] == 1_000
    assert stats.accepted > 30


def test_clocks_that_misbehave(bridge: FaultyBridge) -> None:
    """A clock that stands still, runs back or overflows is recorded as it is, modulo 2^64; nothing raises."""

    def record(tracer: EventTracer) -> None:
        with tracer.event_block("Execute"):
            for start, end in ((5, 5), (9, 3), (-1, 2), (2**64 + 4, 2**70 + 6)):
                tracer.log_profiling_delegate("x", None, start, end)
            tracer.end_profiling_delegate(tracer.start_profiling_delegate("stuck"))

    rows = [(start, duration) for *_, start, duration, _ in rows_of(sent(bridge, record, ticks=Ticks(42)))]
    assert rows == [(5, 0), (9, U64 - 6), (U64 - 1, 3), (4, 2), (42, 0)]


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


def test_text_of_any_kind(bridge: FaultyBridge) -> None:
    """Text that is no UTF-8, as of a file name, and values that OpenTelemetry does not know cost nothing: they are escaped."""
    odd = "caf\udce9"

    def record(tracer: EventTracer) -> None:
        tracer.set_method(odd)
        with tracer.event_block(odd, attributes={odd: odd, "device.power.mode": None, "thread.count": 2**70}):
            tracer.log_profiling_delegate(odd, None, 1, 2)

    request = sent(bridge, record, model=odd)
    escaped = rb"caf\udce9"
    assert names_of(request) == [escaped.decode()]
    (block,) = request.blocks
    assert (block.name, block.method, request.stream.model.name) == (escaped, escaped, escaped)
    assert [each.value.text for each in block.attributes] == [escaped, b"None", str(2**70).encode()]


identifiers = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(lambda name: (name, None)),
    st.integers(-(2**31), 2**31 - 1).filter(lambda number: number != -1).map(lambda number: (None, number)),
)
ticks = st.integers(0, U64 - 1)
logged = st.tuples(identifiers, ticks, ticks, st.binary(max_size=6), st.integers(-1, 40))


@given(blocks=st.lists(st.lists(logged, max_size=8), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
