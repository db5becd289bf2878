"""What a run may bring to a tracer: threads, a million identifiers, an endless block, clocks that misbehave, odd text."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, names_of, rows_of
from support.tracing import Ticks, sent

from otel_bridge.client import BridgeClient, EventTracer, NoEventBlock

U64 = 2**64


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


def test_a_thread_inherits_nothing(bridge: FaultyBridge) -> None:
    """A thread that gets the number of one that has ended gets neither its block nor its method; `close` ends that block."""
    numbers: list[int] = []

    def record(tracer: EventTracer) -> None:
        def leave_open() -> None:
            numbers.append(threading.get_ident())
            tracer.set_method("first")
            tracer.create_event_block("Execute")
            tracer.log_profiling_delegate("left", None, 1, 2)

        def begin() -> None:
            numbers.append(threading.get_ident())
            with pytest.raises(NoEventBlock):
                tracer.log_profiling_delegate("lost", None, 1, 2)
            with tracer.event_block("Execute"):
                tracer.log_profiling_delegate("own", None, 1, 2)

        for _ in range(20):  # which number a thread gets is the system's choice
            for work in (leave_open, begin):
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(work).result()

    request = sent(bridge, record)
    assert len(set(numbers)) < len(numbers)
    found = sorted((block.method, name) for block, name in zip(request.blocks, names_of(request), strict=True))
    assert found == [(b"", "own")] * 20 + [(b"first", "left")] * 20


def test_threads_that_come_and_go(bridge: FaultyBridge) -> None:
    """An app that gives each inference a thread, and ends no block, loses none and holds few: later blocks end them."""
    with BridgeClient(bridge.address, settings=QUICK) as client:
        tracer = EventTracer(client)

        def infer() -> None:
            tracer.create_event_block("Execute")
            tracer.log_profiling_delegate("x", None, 1, 2)

        for _ in range(200):
            thread = threading.Thread(target=infer)
            thread.start()
            thread.join()
        assert client.stats.recorded > 150
        tracer.close()
        assert client.stats.recorded == 200


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
