"""Each event that leaves the spool ends once."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.pipelines import BackEnd, Books, Stuck, drain, everything, inference
from support.scenes import STREAM, batch_of, batches, delegated, execute, runtime, spans_in, stages_with
from support.spools import NOTHING, outlet_of

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.protocol import Sent
from otel_bridge.model.events import EventBatch
from otel_bridge.pipeline.loop import Pipeline
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans import attributes as at
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.sealing import Payload
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Record

Run = Callable[[Any], Any]


def test_events_that_the_back_end_takes_are_emitted(run: Run) -> None:
    """Every event once, and every span is at the back end."""
    back_end = BackEnd()
    books = run(drain([inference(n) for n in range(5)], back_end, stages_with()))
    assert (books.emitted_events, books.emitted_spans, dict(books.drops)) == (20, 20, {})
    assert len(spans_in([Payload(data, 0, 0) for data in back_end.taken])) == 20


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(ExportRejected("no"), "export_rejected"), (BackEndUnavailable("gone"), "back_end_unavailable")],
)
def test_what_the_back_end_refuses_is_dropped_with_its_reason(run: Run, answer: Exception, reason: str) -> None:
    """A refused request costs its own events; the next request goes on."""
    books = run(drain([inference(0), inference(1)], BackEnd(answer), stages_with(), limit=150))
    assert books.emitted_events + books.drops[reason] == 8
    assert 0 < books.drops[reason] < 8


def test_a_request_holds_the_spans_of_one_tenant(run: Run) -> None:
    """Where the back end is told of tenants, each request is of one, and all spans say so; else tenants share requests."""
    batches = [replace(inference(n), streams=(replace(STREAM, tenant=f"t{n % 3}"),)) for n in range(9)]
    back_end, shared = BackEnd(), BackEnd()
    books = run(drain(batches, back_end, stages_with(), by_tenant=True))
    assert sorted(back_end.tenants) == ["t0", "t1", "t2"]
    for tenant, data in zip(back_end.tenants, back_end.taken, strict=True):
        resources = ExportTraceServiceRequest.FromString(data).resource_spans
        said = {each.value.string_value for one in resources for each in one.resource.attributes if each.key == at.TENANT}
        assert said == {tenant}
    assert books.emitted_events == run(drain(batches, shared, stages_with())).emitted_events == 36
    assert shared.tenants == [""]


def test_an_exporter_that_breaks_its_promise_does_not_stop_the_pipeline(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises costs the events of that request; the next request goes on."""
    books = run(drain([inference(0), inference(1)], BackEnd(OverflowError("a zone of years")), stages_with(), limit=150))
    assert books.emitted_events + books.drops["internal"] == 8
    assert 0 < books.drops["internal"] < 8
    assert "the exporter failed" in caplog.text


def test_what_comes_while_a_haul_is_resolved_is_the_next_haul(run: Run) -> None:
    """All of it: had another worker taken the first record at once, that would have been a pass of its own."""
    begun, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    class Held(Stages):
        """Stages that hold up the first pass."""

        def run(self, batch: EventBatch) -> Scene:
            """Note the size, and wait."""
            sizes.append(len(batch))
            begun.set()
            go_on.wait()
            return super().run(batch)

    stages = stages_with(kind=Held)

    async def feed() -> None:
        spool = MemorySpool(10**9, NOTHING)
        pipeline = Pipeline(outlet_of(spool), stages, BackEnd(), Books(), sift=everything, limit_bytes=10**6)
        async with asyncio.TaskGroup() as group:
            group.create_task(pipeline.run())
            await spool.append(inference(0))
            await asyncio.to_thread(begun.wait)
            for number in range(1, 6):
                await spool.append(inference(number))
                await asyncio.sleep(0)
            go_on.set()
            spool.close()

    run(feed())
    assert sizes == [4, 20]


def test_a_haul_is_resolved_while_others_are_sent(run: Run) -> None:
    """Two that a back end takes its time over do not hold up a third."""
    stages = stages_with()

    async def feed() -> int:
        spool, back_end = MemorySpool(10**9, NOTHING), Stuck()
        pipeline = Pipeline(outlet_of(spool), stages, back_end, Books(), sift=everything, limit_bytes=10**6)
        running = asyncio.create_task(pipeline.run())
        for number in range(3):
            back_end.reached.clear()
            await spool.append(inference(number))
            await back_end.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return len(back_end.taken)

    assert run(feed()) == 3


def test_a_tenant_that_is_sent_slowly_holds_up_nobody(run: Run) -> None:
    """Where each request is of one tenant, other hauls are resolved while the first of several tenants in one is sent."""
    stages = stages_with()

    async def feed() -> int:
        spool, back_end = MemorySpool(10**9, NOTHING), Stuck()
        outlet = outlet_of(spool)
        pipeline = Pipeline(outlet, stages, back_end, Books(), sift=everything, limit_bytes=10**6, by_tenant=True)
        for number in range(2):
            await spool.append(replace(inference(number), streams=(replace(STREAM, tenant=f"t{number}"),)))
        running = asyncio.create_task(pipeline.run())
        await back_end.reached.wait()
        back_end.reached.clear()
        await spool.append(inference(2))
        await back_end.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return len(back_end.taken)

    assert run(feed()) == 2


def test_cut_texts_are_told(run: Run) -> None:
    """Once for each span."""
    name = "x" * 3_000
    events = [delegated(name, 0, 1, 2), delegated(name, 0, 2, 3), runtime("Method::execute", 0, 99)]
    assert run(drain([batch_of((execute(), events))], BackEnd(), stages_with())).cut_texts == 2


def test_partial_success_is_counted(run: Run) -> None:
    """Spans that the back end did not take are not called emitted."""
    books = run(drain([inference(0)], BackEnd(Sent(rejected_spans=3, message="no room")), stages_with()))
    assert (books.emitted_events, dict(books.drops)) == (1, {"partial_success": 3})


def test_a_batch_that_cannot_be_processed_costs_itself(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Its neighbours in the same pass are emitted, and the pipeline goes on."""

    class Touchy(Stages):
        """Stages with a defect that one batch meets."""

        def run(self, batch: EventBatch) -> Scene:
            """Fail on any batch that holds block 1."""
            if any(block.position == 1 for block in batch.blocks):
                raise ZeroDivisionError
            return super().run(batch)

    books = run(drain([inference(n) for n in range(3)], BackEnd(), stages_with(kind=Touchy)))
    assert (books.emitted_events, dict(books.drops)) == (8, {"internal": 4})
    assert "cannot be processed" in caplog.text


def test_a_fault_before_the_stages_costs_its_haul(run: Run) -> None:
    """Its events are dropped and counted, and the next ones go on: a durable spool would else give the same ones for ever."""
    stages = stages_with()

    async def go() -> Books:
        books, spool = Books(), MemorySpool(10**9, NOTHING)

        async def sift(records: Sequence[Record]) -> list[Record]:
            if records[0].number == 0:
                await spool.append(inference(1))
                spool.close()
                raise RuntimeError("a fault")
            return list(records)

        await spool.append(inference(0))
        await Pipeline(outlet_of(spool), stages, BackEnd(), books, sift=sift, limit_bytes=10**6).run(workers=1)
        assert outlet_of(spool).events == 0
        return books

    books = run(go())
    assert (dict(books.drops), books.emitted_events) == ({"internal": 4}, 4)


def test_what_is_on_its_way_when_time_is_up_is_dropped_once(run: Run) -> None:
    """A stop that is cut short counts what it leaves."""
    stages = stages_with()

    async def go() -> tuple[Books, int]:
        books, spool, back_end = Books(), MemorySpool(10**9, NOTHING), Stuck()
        for n in range(3):
            await spool.append(inference(n))
        spool.close()
        running = asyncio.create_task(
            Pipeline(outlet_of(spool), stages, back_end, books, sift=everything, limit_bytes=10**6).run(workers=1)
        )
        await back_end.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return books, outlet_of(spool).events

    books, left = run(go())
    assert books.drops["shutdown"] + left == 12
    assert books.emitted_events == 0


@settings(deadline=None, max_examples=30)
@given(st.lists(batches(), max_size=4), st.integers(100, 3000), st.data())
def test_the_books_balance(parts: list[EventBatch], limit: int, data: st.DataObject) -> None:
    """For any batches and any answers: events in = events emitted + events dropped."""
    answer = st.sampled_from([Sent(), Sent(2, "x"), ExportRejected("no"), BackEndUnavailable("later")])
    script = data.draw(st.lists(answer, max_size=6))
    with asyncio.Runner() as runner:
        books = runner.run(drain(parts, BackEnd(*script), stages_with(), limit))
    assert sum(map(len, parts)) == books.emitted_events + books.drops.total()
