"""A pipeline that ends in the middle: a durable spool gives the next one the same records, and these the same spans."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.mappings import mapping_of
from support.parking import Books as Waits
from support.pipelines import BackEnd, Books, Stuck, everything
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime, spans_in, stages_with
from support.spools import DAY_S, NOTHING, ROOMY, Watched, outlet_of

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Clock
from otel_bridge.pipeline.loop import BATCH_EVENTS, Pipeline
from otel_bridge.pipeline.parking import Parking
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.sealing import Payload
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool
from otel_bridge.v1 import mapping_pb2 as pb

Run = Callable[[Any], Any]

MAPPING = pb.MappingFile(mapping=mapping_of({"x": [1]}), build_id="build")


def inference(position: int, calls: int = 3) -> EventBatch:
    """A request of one inference, which only the moment of receipt places in time."""
    inside = [each for n in range(calls) for each in (delegated("x", n, n, n + 1), call("DELEGATE_CALL", n, n, n + 2))]
    stream = replace(STREAM, sequence=position, clocks=(Clock(),))
    return batch_of((execute(), [*inside, runtime("Method::execute", 0, 9 * calls)]), stream=stream)


def opened(folder: Path, watched: Watched | None = None, lot: LotLimits = NOTHING) -> SqliteSpool:
    """The spool in a folder."""
    return SqliteSpool(folder, Bounds(10**8, 10**8, DAY_S), lot, watched or Watched())


def pipeline(spool: SqliteSpool, stages: Stages, back_end: BackEnd, books: Books) -> Pipeline:
    """All of the way behind the spool."""
    return Pipeline(outlet_of(spool), stages, back_end, books, sift=everything, limit_bytes=2000)


def spans(payloads: list[bytes]) -> set[bytes]:
    """The distinct spans that a back end has."""
    return {span.SerializeToString() for span in spans_in([Payload(data, 0, 0) for data in payloads])}


def test_what_is_on_its_way_at_the_end_goes_again_and_is_the_same(run: Run, tmp_path: Path) -> None:
    """No event is dropped; whatever shares a pass with it, a span that was sent before the end is sent again byte for byte."""
    batches = [inference(0, calls=4), inference(1, calls=BATCH_EVENTS), inference(2)]
    events, stages = sum(map(len, batches)), stages_with(MAPPING)
    first, stuck = opened(tmp_path), Stuck()

    async def cut_short() -> Books:
        books = Books()
        for batch in batches:
            await first.append(batch)
        first.close()
        running = asyncio.create_task(pipeline(first, stages, stuck, books).run(workers=1))
        await stuck.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await first.finish() == {}
        return books

    books = run(cut_short())
    assert (books.emitted_events, books.drops) == (0, {})
    watched, back_end = Watched(), BackEnd()
    second = opened(tmp_path, watched)

    async def go_on() -> Books:
        books = Books()
        second.close()
        await pipeline(second, stages, back_end, books).run()
        assert (outlet_of(second).events, await second.finish()) == (0, {})
        return books

    books = run(go_on())
    assert watched.found == events == books.emitted_events
    assert stuck.taken
    assert spans(stuck.taken) <= spans(back_end.taken)
    assert len(spans(back_end.taken)) == len(spans_in([Payload(data, 0, 0) for data in back_end.taken]))


def test_what_is_still_missing_is_listed_after_a_restart(run: Run, tmp_path: Path) -> None:
    """Before any device sends again; and a mapping that came meanwhile releases what waited."""
    registry = MemoryRegistry()
    mappings = CompiledMappings(registry, 1)

    def parking(spool: SqliteSpool) -> Parking:
        return Parking(spool, registry, mappings, Waits(), policy="park")

    first = opened(tmp_path, lot=ROOMY)

    async def wait() -> None:
        await first.append(inference(0))
        assert await parking(first).sift(outlet_of(first), await outlet_of(first).read(100)) == []
        first.close()
        await first.finish()

    run(wait())
    second = opened(tmp_path, lot=ROOMY)
    parked = parking(second)
    assert [(str(each.awaited), second.parked_events_of(each.awaited)) for each in parked.missing()] == [("build", 7)]
    registry.put("", MAPPING)

    async def go_on() -> None:
        await parked.review()
        (record,) = await parked.sift(outlet_of(second), await outlet_of(second).read(100))
        assert record.has_waited
        second.close()
        await second.finish()

    run(go_on())
    assert parked.missing() == []
