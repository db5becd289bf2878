"""Halving what is refused: neighbours of a bad span arrive, and each span ends once."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_payloads import a_payload, a_request

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.halves import count_spans
from otel_bridge.export.isolate import BOUNDS, Isolate, Refused
from otel_bridge.export.protocol import EXHAUSTED, INVALID, TOO_LARGE, Sent

Judge = Callable[[bytes], Exception | None]


class BackEnd:
    """A back end that raises what `judge` finds wrong with a payload, and remembers what it took."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.taken: list[bytes] = []
        self.attempts = 0
        self.closed = False

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
        """Take it, or not."""
        self.attempts += 1
        if error := self.judge(payload):
            raise error
        self.taken.append(payload)
        return Sent()

    async def close(self) -> None:
        """Remember it."""
        self.closed = True


class Shelf:
    """Where refused parts are kept."""

    def __init__(self) -> None:
        self.kept: list[Refused] = []

    async def keep(self, refused: Refused) -> None:
        """Remember a part."""
        self.kept.append(refused)


def at_most(limit_bytes: int) -> Judge:
    return lambda payload: ExportRejected("too large", reason=TOO_LARGE) if len(payload) > limit_bytes else None


def without(*numbers: int) -> Judge:
    """A back end that refuses the spans with these numbers, and whatever comes with them."""
    bad = {f"span {number}" for number in numbers}
    return lambda payload: ExportRejected("bad id", reason=INVALID) if bad & {name for _, _, name in flat([payload])} else None


def flat(payloads: list[bytes]) -> list[tuple[bytes, bytes, str]]:
    """(resource, scope, name) of every span, in order."""
    return [
        (
            resource.resource.SerializeToString() + resource.schema_url.encode(),
            scope.scope.SerializeToString() + scope.schema_url.encode(),
            span.name,
        )
        for payload in payloads
        for resource in ExportTraceServiceRequest.FromString(payload).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@settings(deadline=None)  # threads take their time on a busy machine
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4), limit=st.integers(150, 2_000))
def test_nothing_is_lost_or_moved(sizes: list[int], limit: int) -> None:
    """Whatever the size limit, every span is taken once under its resource and scope, or kept and counted as rejected."""
    payload, back_end, shelf = a_payload(*sizes), BackEnd(at_most(limit)), Shelf()
    try:
        sent = asyncio.run(Isolate(back_end, keep=shelf.keep).send(payload))
    except ExportRejected:
        assert back_end.taken == []
        assert [each.payload for each in shelf.kept] == [payload]
        return
    kept = [each.payload for each in shelf.kept]
    assert sorted(flat(back_end.taken) + flat(kept)) == sorted(flat([payload]))
    assert sent.rejected_spans == len(flat(kept)) == sum(each.spans for each in shelf.kept)
    if limit > 2 * len(a_payload(1)):  # room for any one span
        assert sent == Sent()


@settings(deadline=None)  # see above
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4), data=st.data())
def test_only_what_is_refused_is_lost(sizes: list[int], data: st.DataObject) -> None:
    """Of up to three spans that the back end does not take, in any places, each is kept alone, and all others arrive."""
    total = sum(sizes)
    bad = data.draw(st.sets(st.integers(1, total), min_size=1, max_size=3))
    back_end, shelf = BackEnd(without(*bad)), Shelf()
    isolate = Isolate(back_end, keep=shelf.keep)
    if len(bad) == total:
        with pytest.raises(ExportRejected):
            asyncio.run(isolate.send(a_payload(*sizes)))
        return
    sent = asyncio.run(isolate.send(a_payload(*sizes)))
    assert sent == Sent(len(bad), "bad id", ((INVALID, len(bad)),))
    assert sorted(name for each in shelf.kept for _, _, name in flat([each.payload])) == sorted(f"span {n}" for n in bad)
    assert len(flat(back_end.taken)) == total - len(bad)


def test_one_bad_span_is_found_cheaply() -> None:
    """Among 4,096 spans one costs 25 requests, the whole one included, and is alone in the end."""
    back_end, shelf, halvings = BackEnd(without(1_234)), Shelf(), list[str]()
    sent = asyncio.run(Isolate(back_end, keep=shelf.keep, halved=halvings.append).send(a_payload(4_096)))
    assert sent.rejected_spans == 1
    assert (back_end.attempts, halvings) == (25, [INVALID] * 12)
    assert [(each.spans, each.reason, each.message) for each in shelf.kept] == [(1, INVALID, "bad id")]


@pytest.mark.parametrize("reason", BOUNDS)
def test_attempts_are_bounded(reason: str) -> None:
    """A back end that takes one span of 5,000 and refuses all else is asked a bounded number of times; all spans end once."""
    first = a_payload(1, attribute_bytes=100)

    def judge(payload: bytes) -> Exception | None:
        return None if len(payload) <= len(first) and "span 1" in str(flat([payload])) else ExportRejected("no", reason=reason)

    back_end, shelf = BackEnd(judge), Shelf()
    asyncio.run(_quietly(Isolate(back_end, keep=shelf.keep), a_payload(5_000, attribute_bytes=100)))
    assert back_end.attempts <= BOUNDS[reason].attempts
    assert sum(each.spans for each in shelf.kept) + len(flat(back_end.taken)) == 5_000


async def _quietly(isolate: Isolate, payload: bytes) -> Sent | None:
    try:
        return await isolate.send(payload)
    except ExportRejected:
        return None


def test_exhausted_parts_are_not_halved_for_ever() -> None:
    """Where RESOURCE_EXHAUSTED does not speak of size, parts below any back end's limit stay whole."""
    back_end = BackEnd(lambda _: ExportRejected("quota", reason=EXHAUSTED))
    with pytest.raises(ExportRejected, match="quota"):
        asyncio.run(Isolate(back_end).send(a_payload(200, attribute_bytes=1_000)))
    assert back_end.attempts == 7  # 212 kB, two halves, four quarters of 53 kB


def test_a_back_end_that_refuses_all_is_not_asked_for_each_part() -> None:
    """After a request of which nothing was taken the next cost little, until a part is taken; then bad spans are found."""
    back_end = BackEnd(lambda _: ExportRejected("no tenant", reason=INVALID))
    isolate, attempts = Isolate(back_end), list[int]()

    async def scene() -> Sent | None:
        sent = None
        for judge in (back_end.judge, back_end.judge, back_end.judge, without(3), without(3, 60)):
            back_end.judge, before = judge, back_end.attempts
            sent = await _quietly(isolate, a_payload(64))
            attempts.append(back_end.attempts - before)
        return sent

    sent = asyncio.run(scene())
    assert attempts == [63, 7, 7, 13, 23]
    assert sent is not None
    assert sent.rejected_spans == 2


def test_a_limit_on_size_is_believed() -> None:
    """However many requests had only spans over the limit, the next one is halved until it fits."""
    back_end = BackEnd(at_most(500))
    isolate = Isolate(back_end)
    asyncio.run(_quietly(isolate, a_payload(4, attribute_bytes=1_000)))
    assert back_end.taken == []
    assert asyncio.run(isolate.send(a_payload(64))) == Sent()


@pytest.mark.parametrize(
    "payload", [b"", b"\xff" * 100, a_request(1).SerializeToString()], ids=["empty", "rubbish", "one span"]
)
def test_what_cannot_be_halved_is_rejected(payload: bytes) -> None:
    """A payload without two spans is rejected as it is, and kept as it is."""
    shelf = Shelf()
    with pytest.raises(ExportRejected, match="too large"):
        asyncio.run(Isolate(BackEnd(at_most(-1)), keep=shelf.keep).send(payload))
    assert [each.payload for each in shelf.kept] == [payload]


@pytest.mark.parametrize("error", [ExportRejected("bad key"), BackEndUnavailable("stuck")], ids=["rejected", "unavailable"])
def test_other_failures_are_of_no_span(error: Exception) -> None:
    """What no half would change is raised as it came after one attempt; the payload is kept whole."""
    back_end, shelf = BackEnd(lambda _: error), Shelf()
    isolate = Isolate(back_end, keep=shelf.keep)
    with pytest.raises(type(error)) as caught:
        asyncio.run(isolate.send(a_payload(4)))
    assert caught.value is error
    assert (back_end.attempts, [each.spans for each in shelf.kept]) == (1, [4])
    asyncio.run(isolate.close())
    assert back_end.closed


def test_a_part_that_is_given_up_does_not_cost_the_others() -> None:
    """Where retries of one half end, the half is kept and counted, and what the back end has is not called lost."""

    def judge(payload: bytes) -> Exception | None:
        if count_spans(payload) > 2:
            return ExportRejected("too large", reason=TOO_LARGE)
        return BackEndUnavailable("away") if flat([payload])[0][2] == "span 1" else None

    back_end, shelf = BackEnd(judge), Shelf()
    sent = asyncio.run(Isolate(back_end, keep=shelf.keep).send(a_payload(4)))
    assert sent == Sent(2, "away", ((BackEndUnavailable.reason, 2),))
    assert [name for _, _, name in flat(back_end.taken)] == ["span 3", "span 4"]
    assert [(each.spans, each.reason) for each in shelf.kept] == [(2, BackEndUnavailable.reason)]


def test_partial_success_is_told_apart() -> None:
    """Spans that were refused within a part that was taken count as partial success; those of refused parts by their reason."""

    class Partial(BackEnd):
        async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
            await super().send(payload)
            return Sent(1, "one is odd")

    sent = asyncio.run(Isolate(Partial(without(1))).send(a_payload(4)))
    assert (sent.rejected_spans, sorted(sent.by_reason())) == (3, [(INVALID, 1), ("partial_success", 2)])
