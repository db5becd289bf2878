"""Own spans: which requests are traced, what hangs on what, and what a sender can do about it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN

from otel_bridge.telemetry.sampling import Share
from otel_bridge.telemetry.traces import MAX_REMEMBERED, SILENT, Traces

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED, UNSAMPLED = (f"00-{TRACE:032x}-{SPAN:016x}-{flags}" for flags in ("01", "00"))


def recorded(ratio: float) -> tuple[Traces, Callable[[], Sequence[ReadableSpan]]]:
    """Traces of a share of all requests, and what they have made."""
    kept = InMemorySpanExporter()
    tracers = TracerProvider(Share(ratio), shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    return Traces(tracers.get_tracer("test")), kept.get_finished_spans


def take(traces: Traces, key: object, traceparent: str | None = None) -> None:
    """A request whose events have this key."""
    with traces.request("request", traceparent, {}):
        traces.remember([key])
        with traces.step("append"):
            pass


def test_a_request_and_its_haul() -> None:
    """A step hangs on its request; a haul is a trace of its own that links to each traced request in it, once."""
    traces, spans = recorded(1)
    for key in ("a", "b", "c"):
        take(traces, key)
    with traces.haul("haul", ["b", "a", "a", "x"], {"events": 3}), traces.step("export"):
        pass
    *requests, export, haul = spans()
    appends, received = requests[::2], requests[1::2]
    assert [each.parent for each in appends] == [each.context for each in received]
    assert len({each.context.trace_id for each in received}) == 3
    assert (haul.parent, export.parent) == (None, haul.context)
    assert [link.context for link in haul.links] == [received[1].context, received[0].context]


def test_what_is_not_traced_makes_nothing() -> None:
    """Where no request of a haul is traced, neither it nor its steps are; steps outside of everything are not either."""
    traces, spans = recorded(0)
    take(traces, "a", SAMPLED)
    with traces.haul("haul", ["a"], {}) as haul, traces.step("export") as export:
        assert haul is export is INVALID_SPAN
    with traces.step("alone"):
        pass
    assert spans() == ()


def test_a_parent_is_followed_and_no_more() -> None:
    """A request's `traceparent` parents its span; it does not decide whether there is one, unless it says no."""
    traces, spans = recorded(1)
    take(traces, "a", SAMPLED)
    take(traces, "b", UNSAMPLED)
    (_, request) = spans()
    assert request.parent is not None
    assert (request.context.trace_id, request.parent.span_id) == (TRACE, SPAN)


def test_a_sender_cannot_ask_for_more() -> None:
    """However many requests say that they are sampled, under whatever trace ids, the share of the settings is traced."""
    random.seed(7)
    traces, spans = recorded(0.1)
    for number in range(2000):
        with traces.request("request", f"00-{number + 1:032x}-{SPAN:016x}-01", {}):
            pass
    assert 140 < len(spans()) < 260  # 200, and four and a half deviations


@pytest.mark.parametrize(
    "traceparent",
    ["", "garbage", f"00-{0:032x}-{SPAN:016x}-01", f"00-{TRACE:032x}-{0:016x}-01", f"ff-{TRACE:032x}-{SPAN:016x}-01", "é" * 99],
)
def test_a_bad_parent_is_none(traceparent: str) -> None:
    """What is not W3C's traceparent is ignored: the request's span begins a trace."""
    traces, spans = recorded(1)
    take(traces, "a", traceparent)
    assert [each.parent for each in spans()][1] is None


def test_requests_at_once_do_not_mix(run: Callable[..., Any]) -> None:
    """Each request's steps are its own, whatever else runs on the loop or in threads meanwhile."""
    traces, spans = recorded(1)

    async def answer(number: int) -> None:
        with traces.request(f"request {number}", None, {}):
            await asyncio.sleep(0)
            with traces.step(f"step {number}"):
                await asyncio.to_thread(lambda: None)

    async def main() -> None:
        await asyncio.gather(*map(answer, range(20)))

    run(main())
    by_name = {each.name: each for each in spans()}
    for number in range(20):
        assert by_name[f"step {number}"].parent == by_name[f"request {number}"].context


def test_memory_is_bounded() -> None:
    """Of requests whose events have not left, the latest are remembered; a haul of older ones is not traced."""
    traces, spans = recorded(1)
    for number in range(MAX_REMEMBERED + 10):
        take(traces, number)
    before = len(spans())
    with traces.haul("haul", range(10), {}):
        pass
    assert len(spans()) == before
    with traces.haul("haul", range(20), {}):
        pass
    assert len(spans()[-1].links) == 10


def test_silence() -> None:
    """Without a tracer everything may be opened, and nothing is made."""
    assert not SILENT.is_on
    with SILENT.request("request", SAMPLED, {}) as span:
        SILENT.remember(["a"])
        span.set_attribute("a", 1)
    with SILENT.haul("haul", ["a"], {}) as haul, SILENT.step("step") as step:
        assert span is haul is step is INVALID_SPAN
