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
from support.spools import outlet_of, spool_of

from otel_bridge.errors import Draining, MalformedRequest, SpoolFull
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.model.events import EventBatch
from otel_bridge.spans.assemble import assemble
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.intake import Disconnected, Intake
from otel_bridge.wire.repeats import Repeats

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

    def duplicate(self) -> None:
        """Keep it."""
        self.told.append(("duplicate", 1))

    def sequence_reused(self) -> None:
        """Keep it."""
        self.told.append(("sequence reused", 1))


def an_intake(spool: MemorySpool, watch: Watch | None = None, *, duplicates: int = 0) -> Intake:
    """An intake whose clock goes on by an hour with each request; it remembers so many."""
    hours = itertools.count()
    watch = watch or Watch()
    repeats = Repeats(duplicates, 3600, spool, watch)
    now_ns = lambda: NOON_NS + next(hours) * HOUR_NS  # noqa: E731 - a clock
    return Intake(spool, ANYTHING, MemoryRegistry().build_of, watch, repeats, now_ns=now_ns)


async def all_of(spool: MemorySpool) -> list[EventBatch]:
    """What the spool holds."""
    return [record.batch for record in await outlet_of(spool).read(10**9)]


def spans_of(batch: EventBatch) -> list[bytes]:
    """The serialised requests that the spans of a batch make."""
    return [payload.data for payload in assemble(STAGES.run(batch), 1 << 20)]


def test_a_request_is_emitted_once(run: Callable[..., Any]) -> None:
    """The same body sent again has the answer of the first attempt, counts as a duplicate, and is kept and counted no more."""

    async def main() -> None:
        spool, watch = spool_of(1 << 20), Watch()
        intake = an_intake(spool, watch, duplicates=9)
        request = a_request(*EVENTS, delegated("", 0, 0, 0))
        request.stream.dropped.add(reason=b"ring_full", events=7)
        answers = [await intake.export_events(request.SerializeToString(), None) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        answer = pb.ExportEventsResponse.FromString(answers[0])
        assert (answer.accepted, answer.rejected[0].reason) == (2, "unnamed")
        assert watch.told == [("accepted", 2), ("refused unnamed", 1), ("dropped ring_full", 7), *[("duplicate", 1)] * 2]
        assert len(await all_of(spool)) == 1

    run(main())


def test_what_is_forgotten_has_equal_ids(run: Callable[..., Any]) -> None:
    """The same body sent after it was forgotten is taken, with the ids of the first attempt: the spans, if it has an anchor."""

    async def main() -> None:
        spool = spool_of(1 << 20)
        intake = an_intake(spool)
        body = a_request(*EVENTS).SerializeToString()
        for _ in range(2):
            await intake.export_events(body, None)
        first, second = await all_of(spool)
        assert spans_of(first) == spans_of(second)

    run(main())


def test_uploads_are_remembered_too(run: Callable[..., Any], fixtures: Path) -> None:
    """An ETDump that is uploaded again is a duplicate; the same file said to have ended at another time is another run."""

    async def main() -> None:
        spool, watch = spool_of(1 << 20), Watch()
        intake = an_intake(spool, watch, duplicates=9)
        request = pb.UploadETDumpRequest(etdump=(fixtures / "xnnpack" / "run.etdp").read_bytes())
        request.stream.stream_id = bytes(range(16))
        first = await intake.upload_etdump(request.SerializeToString(), None)
        assert await intake.upload_etdump(request.SerializeToString(), None) == first
        request.ended_at_unix_ns = NOON_NS
        await intake.upload_etdump(request.SerializeToString(), None)
        assert [batch.streams[0].ended_ns for batch in await all_of(spool)] == [NOON_NS, NOON_NS]
        assert [what for what, _ in watch.told] == ["accepted", "duplicate", "accepted"]

    run(main())


def test_nobody_else_answers_for_a_tenant(run: Callable[..., Any]) -> None:
    """The same body of another tenant is another request, and no reuse of a number."""

    async def main() -> None:
        spool, watch = spool_of(1 << 20), Watch()
        intake = an_intake(spool, watch, duplicates=9)
        body = a_request(*EVENTS).SerializeToString()
        for tenant in ("a", "b", "a"):
            await intake.export_events(body, None, tenant)
        assert [batch.streams[0].tenant for batch in await all_of(spool)] == ["a", "b"]
        assert [what for what, _ in watch.told] == ["accepted", "accepted", "duplicate"]

    run(main())


def test_what_nobody_waits_for_is_not_kept(run: Callable[..., Any]) -> None:
    """A request that is given up before it is parsed, or before it is kept, leaves nothing; sent again it is a first."""

    async def main() -> None:
        spool, watch = spool_of(1 << 20), Watch()
        intake = an_intake(spool, watch, duplicates=9)
        for given_up in ([True], [False, True]):
            with pytest.raises(Disconnected):
                await intake.export_events(a_request(*EVENTS).SerializeToString(), None, "", iter(given_up).__next__)
        with pytest.raises(Disconnected):
            await intake.export_events(b"\xff", None, "", lambda: True)
        assert (outlet_of(spool).events, watch.told) == (0, [])
        answer = await intake.export_events(a_request(*EVENTS).SerializeToString(), None)
        assert pb.ExportEventsResponse.FromString(answer).accepted == 2

    run(main())


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
        assert pb.ExportEventsResponse.FromString(answer).accepted == 2
        assert batch.streams[0].correction_ns == correction_ns

    run(main())


def test_only_what_is_kept_is_acknowledged(run: Callable[..., Any]) -> None:
    """Of a request that finds no room, or a closed spool, only the refusal is counted, each time: it will come again."""

    async def main() -> None:
        spool, watch = spool_of(1), Watch()
        intake = an_intake(spool, watch)  # which remembers nothing
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
        assert outlet_of(spool).events == 2

    run(main())


def test_nothing_is_answered_for_nothing(run: Callable[..., Any]) -> None:
    """A request without events is taken, also by a full spool: there is nothing to keep."""

    async def main() -> None:
        spool = spool_of(1)
        intake = an_intake(spool)
        for _ in range(3):
            answer = await intake.export_events(pb.ExportEventsRequest(stream=pb.Stream()).SerializeToString(), None)
            assert pb.ExportEventsResponse.FromString(answer) == pb.ExportEventsResponse()
        assert outlet_of(spool).events == 0

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
