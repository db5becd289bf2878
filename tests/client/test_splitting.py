"""Requests over a limit, the client's own or the bridge's: divided by blocks, and one inference by parts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, dropped_in, infer, names_of, positions_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.requests import admitted
from support.scenes import STREAM, E, batch_of, batches, call, execute, runtime
from support.service import Service, running

from otel_bridge.client import BridgeClient, EventTracer
from otel_bridge.client.fitting import Limits, fit
from otel_bridge.model.events import EventBatch, concatenate
from otel_bridge.wire.codec import stream_message

PATIENT = replace(QUICK, batch_age_s=60.0)


def infer_in_loops(tracer: EventTracer, loops: int) -> int:
    """One inference whose two instructions run many times, each with a delegate event; how many events it has."""
    with tracer.event_block("Execute"):
        whole = tracer.start_profiling("Method::execute")
        for turn in range(loops):
            for instruction in (0, 1):
                with tracer.instruction(instruction):
                    delegate = tracer.start_profiling("DELEGATE_CALL")
                    tracer.log_profiling_delegate(None, turn, tracer.current_ticks(), tracer.current_ticks())
                    tracer.end_profiling(delegate)
        tracer.end_profiling(whole)
    return 4 * loops + 1


def shape(spans: list[Any]) -> Counter[tuple[str, str | None]]:
    """Spans by name and name of the parent: the tree, but for ids and times."""
    names = {(span.trace_id, span.span_id): span.name for span in spans}
    return Counter((span.name, names.get((span.trace_id, span.parent_span_id))) for span in spans)


def test_a_long_inference(tmp_path: Path) -> None:
    """An inference over the limit goes in parts, and gives the tree that it gives whole, whoever set the limit."""
    small = 12_000
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        whole = spans_of_loops(service, "whole")
        by_us = spans_of_loops(service, "by_us", request_bytes=small)
    folder = tmp_path / "strict"
    folder.mkdir()
    with OtlpSink() as sink, running(folder, sink, SERVER__MAX_REQUEST_BYTES=str(small)) as service:
        by_the_bridge = spans_of_loops(service, "by_the_bridge")
    assert shape(by_us) == shape(by_the_bridge) == shape(whole)
    assert len({span.trace_id for span in (*by_us, *by_the_bridge)}) == 2


def spans_of_loops(service: Service, app: str, **more: Any) -> list[Any]:
    """The spans of one long inference; every event is one, and has an id of its own."""
    with BridgeClient(service.grpc, resource={"service.name": app}, settings=replace(PATIENT, **more)) as client:
        recorded = infer_in_loops(EventTracer(client), 900)
        assert client.flush(30)
        assert (client.stats.accepted, client.stats.dropped) == (recorded, {})
    service.settle()
    spans = service.spans(app)
    assert len({span.span_id for span in spans}) == len(spans) == recorded
    return spans


def test_between_blocks(bridge: FaultyBridge) -> None:
    """Several inferences are divided between them, and none is in parts, as long as each fits."""
    with BridgeClient(bridge.address, settings=replace(PATIENT, request_bytes=2_000)) as client:
        tracer = EventTracer(client)
        recorded = sum(infer(tracer) for _ in range(200))
        assert client.flush(30)
        assert client.stats.accepted == recorded
    assert len(bridge.taken) > 4
    assert max(call.events.ByteSize() for call in bridge.received) <= 2_000
    assert [position for _, position in positions_of(bridge.taken)] == list(range(200))
    assert not any(block.HasField("part") for request in bridge.taken for block in request.blocks)
    assert [request.stream.sequence for request in bridge.taken] == list(range(len(bridge.taken)))


def test_a_limit_is_learnt(bridge: FaultyBridge) -> None:
    """What the bridge finds too large is divided, with sequence numbers of its own; later requests are smaller."""
    bridge.go_away()
    bridge.max_request_bytes = 3_000
    bridge.come_back()
    with BridgeClient(bridge.address, settings=replace(PATIENT, gzip=False)) as client:
        tracer = EventTracer(client)
        recorded = sum(infer(tracer) for _ in range(300))
        assert client.flush(30)
        first = len(bridge.received)
        recorded += sum(infer(tracer) for _ in range(300))
        assert client.flush(30)
        assert client.stats.accepted == recorded
        assert client.stats.dropped == {}
    assert len(bridge.taken) > first  # gRPC refuses what is too large before the test's bridge sees it
    assert sorted(position for _, position in positions_of(bridge.taken)) == list(range(600))
    sequences = [request.stream.sequence for request in bridge.taken]
    assert len(set(sequences)) == len(sequences)


def test_an_event_that_is_too_large_alone(bridge: FaultyBridge) -> None:
    """It is given up and told of; the rest of its inference arrives."""
    with BridgeClient(bridge.address, settings=replace(PATIENT, request_bytes=5_000)) as client:
        tracer = EventTracer(client)
        with tracer.event_block("Execute"):
            tracer.log_profiling_delegate("before", None, 1, 2)
            tracer.log_profiling_delegate("large", None, 1, 2, bytes(6_000))
            tracer.log_profiling_delegate("after", None, 1, 2)
        assert client.flush(30)
        assert client.flush(30)  # tells of it
        stats = client.stats
    assert (stats.recorded, stats.accepted, stats.dropped) == (3, 2, {"too_large": 1})
    assert [name for request in bridge.taken for name in names_of(request)] == ["before", "after"]
    assert dropped_in(bridge.taken) == {"too_large": 1}
    parts = [(block.part.first_event, block.part.last) for request in bridge.taken for block in request.blocks]
    assert parts == [(0, False), (2, True)]


def test_an_event_that_is_too_large_for_the_bridge(bridge: FaultyBridge) -> None:
    """The client thinks that it fits, the bridge does not: it is counted once, and what it would have told is told later."""
    with BridgeClient(bridge.address, settings=replace(PATIENT, gzip=False)) as client:
        tracer = EventTracer(client)
        for nbytes in (10, 5_000, 10):
            bridge.answer = Answer.grpc_failure(grpc.StatusCode.RESOURCE_EXHAUSTED) if nbytes > 1_000 else Answer()
            with tracer.event_block("Execute"):
                tracer.log_profiling_delegate("x", None, 1, 2, bytes(nbytes))
            assert client.flush(30)
        stats = client.stats
    assert (stats.recorded, stats.accepted, stats.dropped) == (3, 2, {"too_large": 1})
    assert dropped_in(bridge.taken) == {"too_large": 1}


def pieces_of(batch: EventBatch, limit: int) -> tuple[list[EventBatch], int]:
    """What a bridge reads from the requests of a batch, and how many events were given up."""
    given_up: list[int] = []
    head = stream_message(replace(batch.streams[0], stream_id=STREAM.stream_id))
    requests = fit(batch, head, Limits(limit), given_up.append)
    assert all(request.ByteSize() <= limit for request in requests)
    return [admitted(request).batch for request in requests], sum(given_up)


def events_of(batches_: list[EventBatch]) -> Iterator[tuple[Any, ...]]:
    """Each event with its block's position, by value."""
    for each in batches_:
        for row, block in enumerate(each.block_of.tolist()):
            columns = (each.kind, each.instruction, each.chain, each.start, each.duration, each.clock)
            name, metadata = each.names[each.name[row]], each.payloads[each.metadata[row]]
            yield each.blocks[block].position, name, metadata, *(int(column[row]) for column in columns)


@given(batch=batches(), limit=st.integers(700, 3_000))
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_or_changed(batch: EventBatch, limit: int) -> None:
    """Whatever the limit, the requests hold the events of the batch, in order, but for those that are too large alone."""
    pieces, given_up = pieces_of(batch, limit)
    (whole,), _ = pieces_of(batch, 1 << 30)
    found = list(events_of(pieces))
    if not given_up:
        assert found == list(events_of([whole]))
    assert len(found) + given_up == len(batch)


def test_occurrences_count_over_the_whole_inference() -> None:
    """In every part an event says how often its instruction had been completed before, earlier parts included."""
    events: list[E] = []
    for turn in range(50):
        events += [call("OPERATOR_CALL", 3, turn, turn + 1), call("OPERATOR_CALL", 4, turn, turn + 1)]
    pieces, _ = pieces_of(batch_of((execute(), (*events, runtime("Method::execute", 0, 99)))), 800)
    assert len(pieces) > 3
    whole = concatenate(pieces)
    assert whole.occurrence is not None
    assert whole.occurrence.tolist() == [turn for turn in range(50) for _ in (3, 4)] + [0]
    parts = [piece.blocks[0].part for piece in pieces]
    assert [part.number for part in parts if part] == list(range(len(pieces)))
    assert [part.first_event for part in parts if part] == np.cumsum([0, *map(len, pieces)])[:-1].tolist()
    assert [part.last for part in parts if part] == [False] * (len(pieces) - 1) + [True]
