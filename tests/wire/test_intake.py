"""From bytes to the spool: acknowledged means kept, and an attempt more changes nothing."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.batches import differences
from support.requests import ANYTHING, a_request
from support.scenes import NOON_NS, delegated, runtime, stages_with
from support.spools import spool_of

from otel_bridge.errors import Draining, MalformedRequest, SpoolFull
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.model.events import EventBatch
from otel_bridge.spans.assemble import assemble
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Receipt
from otel_bridge.wire.intake import Intake, Receipts

HOUR_NS = 3600 * 10**9
STAGES = stages_with()
EVENTS = (delegated("x", 0, 1, 2), runtime("Method::execute", 0, 5))


class Watch:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def accepted(self, events: int) -> None:
        """Keep it."""
        self.told.append(("accepted", events))

    def refused(self, events: int, reason: str) -> None:
        """Keep it."""
        self.told.append((f"refused {reason}", events))

    def sender_dropped(self, events: int, reason: str) -> None:
        """Keep it."""
        self.told.append((f"dropped {reason}", events))


def an_intake(spool: MemorySpool, watch: Watch | None = None) -> Intake:
    """An intake whose clock goes on by an hour with each request."""
    hours = itertools.count()
    return Intake(spool, ANYTHING, MemoryRegistry().build_of, watch or Watch(), now_ns=lambda: NOON_NS + next(hours) * HOUR_NS)


async def all_of(spool: MemorySpool) -> list[EventBatch]:
    """What the spool holds."""
    return [record.batch for record in await spool.read(10**9)]


def spans_of(batch: EventBatch) -> list[bytes]:
    """The serialised requests that the spans of a batch make."""
    return [payload.data for payload in assemble(STAGES.run(batch), 1 << 20)]


def test_a_second_attempt_gives_the_same_spans(run: Callable[..., Any]) -> None:
    """The same body sent again, later and by another clock, gives spans that are equal byte for byte; another body does not."""

    async def main() -> None:
        spool = spool_of(1 << 20)
        intake = an_intake(spool)
        request = a_request(*EVENTS)
        request.stream.clocks[0].ClearField("anchor_unix_ns")  # times follow from the receipt
        body = request.SerializeToString()
        await intake.export_events(body, str(NOON_NS - 2 * HOUR_NS))
        await intake.export_events(body, None)
        request.stream.sequence += 1
        await intake.export_events(request.SerializeToString(), None)
        first, second, other = await all_of(spool)
        assert differences(first, second) == []
        assert spans_of(first) == spans_of(second)
        assert (first.streams[0].received_ns, first.streams[0].correction_ns) == (NOON_NS, 2 * HOUR_NS)
        assert (other.streams[0].received_ns, other.streams[0].correction_ns) == (NOON_NS + 2 * HOUR_NS, 0)
        assert spans_of(other) != spans_of(first)

    run(main())


def test_uploads_are_remembered_too(run: Callable[..., Any], fixtures: Path) -> None:
    """An ETDump that is uploaded again ends when the first attempt said it did."""

    async def main() -> None:
        spool = spool_of(1 << 20)
        intake = an_intake(spool)
        body = pb.UploadETDumpRequest(etdump=(fixtures / "xnnpack" / "run.etdp").read_bytes()).SerializeToString()
        for _ in range(2):
            await intake.upload_etdump(body, None)
        first, second = await all_of(spool)
        assert spans_of(first) == spans_of(second)

    run(main())


def test_a_second_attempt_keeps_its_build(run: Callable[..., Any]) -> None:
    """An alias that moved between two attempts still names the first one's build; one that named none may name one later."""
    builds: list[str | None] = [None, "first", "second"]

    async def main() -> None:
        spool = spool_of(1 << 20)
        intake = Intake(spool, ANYTHING, lambda _tenant, _name, _version: builds.pop(0), Watch())
        body = a_request(*EVENTS).SerializeToString()
        for _ in range(3):
            await intake.export_events(body, None)
        assert [batch.streams[0].build for batch in await all_of(spool)] == [None, "first", "first"]
        assert builds == ["second"]

    run(main())


def test_receipts_are_bounded_and_forget_the_oldest() -> None:
    """Of more bodies than are remembered the one not seen for longest is forgotten; asking for one keeps it."""
    receipts = Receipts(max_entries=2)
    first, later = Receipt(1), Receipt(2)
    assert receipts.first(b"a", first).receipt is first
    receipts.first(b"b", first)
    assert receipts.first(b"a", later).receipt is first
    receipts.first(b"c", first)
    assert receipts.first(b"a", later).receipt is first
    assert receipts.first(b"b", later).receipt is later


def test_a_second_attempt_keeps_the_build_of_the_first() -> None:
    """An alias that moves between two attempts, or gets its first mapping, must not give equal ids another content."""
    named: dict[tuple[str, str], str] = {("net", "1"): "b1"}
    first = Receipts().first(b"a", Receipt(1))

    def now(name: str, version: str) -> str | None:
        return named.get((name, version))

    assert first.bind(now)("net", "1") == "b1"
    named["net", "1"] = "b2"
    assert first.bind(now)("net", "1") == "b1"
    assert first.bind(now)("other", "1") is None


@pytest.mark.parametrize(
    ("sent", "correction_ns"),
    [
        (str(NOON_NS - HOUR_NS), HOUR_NS),
        (str(NOON_NS), 0),
        (None, 0),
        ("", 0),
        ("0", 0),
        ("-5", 0),
        ("1.5", 0),
        ("soon", 0),
        (str(2**63), 0),
        ("9" * 5000, 0),
        ("\u0661\u0662", 0),
    ],
)
def test_what_is_no_time_is_no_word(sent: str | None, correction_ns: int, run: Callable[..., Any]) -> None:
    """A time of sending that is no positive int64 of decimal digits is as if it had not been said; the request is taken."""

    async def main() -> None:
        spool = spool_of(1 << 20)
        answer = await an_intake(spool).export_events(a_request(*EVENTS).SerializeToString(), sent)
        (batch,) = await all_of(spool)
        assert (answer.accepted, batch.streams[0].correction_ns) == (2, correction_ns)

    run(main())


def test_only_what_is_kept_is_acknowledged(run: Callable[..., Any]) -> None:
    """Of a request that finds no room, or a closed spool, only the refusal is counted, each time: it will come again."""

    async def main() -> None:
        spool, watch = spool_of(1), Watch()
        intake = an_intake(spool, watch)
        request = a_request(*EVENTS, delegated("", 0, 0, 0))
        request.stream.dropped.add(reason=b"ring_full", events=7)
        await intake.export_events(request.SerializeToString(), None)
        counted = [("accepted", 2), ("refused unnamed", 1), ("dropped ring_full", 7)]
        assert watch.told == counted
        with pytest.raises(SpoolFull, match=r"holds \d+ of 1 bytes .* try again later"):
            await intake.export_events(request.SerializeToString(), None)
        spool.close()
        with pytest.raises(Draining):
            await intake.export_events(request.SerializeToString(), None)
        with pytest.raises(MalformedRequest):
            await intake.export_events(b"\xff", None)
        assert watch.told == [*counted, ("refused spool_full", 2), ("refused draining", 2)]
        assert spool.events == 2

    run(main())


def test_nothing_is_answered_for_nothing(run: Callable[..., Any]) -> None:
    """A request without events is taken, also by a full spool: there is nothing to keep."""

    async def main() -> None:
        spool = spool_of(1)
        intake = an_intake(spool)
        for _ in range(3):
            answer = await intake.export_events(pb.ExportEventsRequest(stream=pb.Stream()).SerializeToString(), None)
            assert (answer.accepted, list(answer.rejected), answer.first_rejection) == (0, [], "")
        assert spool.events == 0

    run(main())


def test_large_and_small_requests_are_the_same(run: Callable[..., Any]) -> None:
    """A body that is parsed off the event loop gives what it gives on it."""

    async def main() -> None:
        spool = spool_of(64 << 20)
        intake = an_intake(spool)
        request = a_request(*EVENTS)
        await intake.export_events(request.SerializeToString(), None)
        request.metadata.append(bytes(2_000_000))
        await intake.export_events(request.SerializeToString(), None)
        small, large = await all_of(spool)
        assert large.payloads == (b"", bytes(2_000_000))
        (first,), (second,) = small.streams, large.streams
        second = replace(second, received_ns=first.received_ns, ended_ns=first.ended_ns, latest_ns=first.latest_ns)
        assert differences(replace(large, payloads=small.payloads, streams=(second,)), small) == []

    run(main())
