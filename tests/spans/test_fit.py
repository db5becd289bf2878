"""Traces are within their limits, and what is split or rolled up adds up to what it was made of."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.mappings import mapping_of
from support.scenes import E, batch_of, batches, call, delegated, execute, runtime, scope, spans_in, stages_with

from otel_bridge.model.events import EventBatch, TraceContext, concatenate, divide
from otel_bridge.spans import attributes as at
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.fit import Taken, fit
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.reference import build
from otel_bridge.spans.rollup import OTHER, Limits
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE
from otel_bridge.v1 import mapping_pb2

FILE = mapping_pb2.MappingFile(mapping=mapping_of({"conv #1": [1, 2], 1: [3], 2: []}), build_id="build")
ROOMY = 10**9
APP = TraceContext(b"t" * 16, b"s" * 8, 1, "a=b")


def said(span: Span) -> dict[str, int]:
    """The numbers that a span says."""
    return {each.key: each.value.int_value for each in span.attributes if each.value.HasField("int_value")}


def fitted(scene: Scene, spans: int, size: int = ROOMY) -> list[Span]:
    """The spans within limits, by the fast path; the obvious way says the same."""
    fitting = fit(scene, limits=Limits(spans, size))
    payloads = assemble(fitting, 10**6)
    assert sum(payload.events for payload in payloads) == len(scene.batch)
    found = spans_in(payloads)
    obvious = build(fitting)
    slow = [span for resource in obvious.resource_spans for part in resource.scope_spans for span in part.spans]
    assert sorted(map(_bytes, found)) == sorted(map(_bytes, slow))
    return found


def _bytes(span: Span) -> bytes:
    return span.SerializeToString(deterministic=True)


def loop(times: int, start: int = 0) -> list[E]:
    """A call that runs again and again, with one short and one long event in it."""
    events = []
    for begin in range(start, start + 100 * times, 100):
        events += [scope("native_call_add.out", 3, begin + 1, begin + 31), scope("Something", 3, begin + 40, begin + 45)]
        events.append(call("OPERATOR_CALL", 3, begin, begin + 50))
    return events


def inference(times: int, position: int = 0, context: TraceContext | None = None) -> EventBatch:
    """An inference whose one call runs that often: three events each, and the root."""
    events = [*loop(times), runtime("Method::execute", 0, 100 * times)]
    return batch_of((execute(position, context=context), events))


def test_runs_of_one_instruction_are_one_span() -> None:
    """It says how many and their exact time, contains what lies in it, and the root declares the roll-up."""
    spans = fitted(stages_with().run(inference(10)), 10)
    by_name = {span.name: span for span in spans}
    assert len(spans) == len(by_name) == 4
    root, operator = by_name["execute net"], by_name["add.out"]
    assert said(root)[at.ROLLUP_EVENTS] == 31
    assert (said(operator)[at.ROLLUP_COUNT], said(operator)[at.ROLLUP_DURATION_NS]) == (10, 500)
    assert operator.end_time_unix_nano - operator.start_time_unix_nano == 950
    kernel = by_name["native_call_add.out"]
    assert (kernel.parent_span_id, operator.parent_span_id) == (operator.span_id, root.span_id)
    assert (said(kernel)[at.ROLLUP_COUNT], said(kernel)[at.ROLLUP_DURATION_NS]) == (10, 300)


def test_what_only_a_later_run_has_lies_in_the_span_of_all_runs() -> None:
    """A parent's span bears the id of the first run."""
    runs = [call("JF_CALL", 3, 0, 10), scope("Something", 3, 21, 22), call("JF_CALL", 3, 20, 30)]
    spans = fitted(stages_with().run(batch_of((execute(), [*runs, runtime("Method::execute", 0, 40)]))), 3)
    by_name = {span.name: span for span in spans}
    assert by_name["Something"].parent_span_id == by_name["JF_CALL"].span_id
    assert said(by_name["JF_CALL"])[at.ROLLUP_COUNT] == 2


def test_within_the_limits_nothing_changes() -> None:
    """Not one byte, and nothing is declared."""
    scene = stages_with().run(inference(10))
    assert assemble(fit(scene, limits=Limits(31, ROOMY)), 10**6) == assemble(scene, 10**6)


def test_the_longest_stay() -> None:
    """What has no room, even rolled up, is one span for each parent; its time is that of what lay there."""
    events = [call("OPERATOR_CALL", n, 10 * n, 10 * n + n + 1) for n in range(9)]
    spans = fitted(stages_with().run(batch_of((execute(), [*events, runtime("Method::execute", 0, 100)]))), 5)
    (other,) = [span for span in spans if span.name == OTHER]
    assert sorted(said(span)[at.INSTRUCTION_ID] for span in spans if at.INSTRUCTION_ID in said(span)) == [6, 7, 8]
    assert said(other) == {at.ROLLUP_COUNT: 6, at.ROLLUP_DURATION_NS: 1 + 2 + 3 + 4 + 5 + 6}


def test_an_inference_is_also_rolled_up_by_its_bytes() -> None:
    """Few spans that say much are too much as well."""
    spans = fitted(stages_with().run(inference(10)), ROOMY, 2_000)
    assert len(spans) < 31
    assert sum(span.ByteSize() for span in spans) <= 2_000


def test_metadata_that_differ_are_left_out_and_counted() -> None:
    """Those that all events have stay."""
    events = [delegated(n, 0, n, n + 1, metadata=b'{"same":1}') for n in (1, 1, 1)]
    events += [delegated(2, 0, n, n + 1, metadata=b'{"n":%d}' % n) for n in (4, 5, 6)]
    batch = batch_of((execute(), [*events, call("DELEGATE_CALL", 0, 0, 9), runtime("Method::execute", 0, 9)]))
    spans = [span for span in fitted(stages_with(FILE).run(batch), 5) if at.ROLLUP_COUNT in said(span)]
    left_out = [said(span).get(at.ROLLUP_METADATA_LEFT_OUT, 0) for span in spans]
    keys = [{each.key for each in span.attributes if each.key.startswith(at.METADATA_PREFIX)} for span in spans]
    assert sorted(zip(left_out, map(sorted, keys), strict=True)) == [(0, [at.METADATA_PREFIX + "same"]), (3, [])]


def is_part(scene: Scene) -> bool:
    """Whether some inference came in parts."""
    return any(block.part is not None for block in scene.batch.blocks)


@settings(deadline=None)
@given(batches(), st.integers(2, 12), st.sampled_from([ROOMY, 3000]))
def test_counts_are_conserved_and_no_span_is_an_orphan(batch: EventBatch, limit: int, size: int) -> None:
    """For any events: each counts once, children lie in their parents, and traces have the size asked for, but for parts."""
    scene = stages_with(FILE).run(batch)
    before, spans = spans_in(assemble(scene, 10**6)), fitted(scene, limit, size)
    made = int((scene.has_root_span & (scene.tree.root == NOWHERE)).sum())
    shown = int((~scene.counters.silent).sum())
    assert sum(said(span).get(at.ROLLUP_COUNT, 1) for span in spans) == shown + made
    ids = {span.span_id for span in spans}
    if len({span.span_id for span in before}) == len(before):  # a sender may number its parts wrongly
        assert len(ids) == len(spans)
    parents = {span.parent_span_id for span in before} - {span.span_id for span in before}
    assert {span.parent_span_id for span in spans} - ids <= parents | {b""}
    if not is_part(scene):
        assert max(Counter(span.trace_id for span in spans).values(), default=0) <= limit
    if sticking_out(before) == 0:
        assert sticking_out(spans) == 0


def sticking_out(spans: list[Span]) -> int:
    """How many spans do not lie in their parent."""
    by_id = {span.span_id: span for span in spans}
    return sum(not contains(by_id[span.parent_span_id], span) for span in spans if span.parent_span_id in by_id)


def contains(outer: Span, inner: Span) -> bool:
    """Whether a span lies in another."""
    return outer.start_time_unix_nano <= inner.start_time_unix_nano and inner.end_time_unix_nano <= outer.end_time_unix_nano


@settings(deadline=None)
@given(batches(), st.integers(2, 12))
def test_time_is_conserved(batch: EventBatch, limit: int) -> None:
    """For any whole inference: the true times directly under the root add up to the same, however it is rolled up."""
    scene = stages_with(FILE).run(batch)
    fitting = fit(scene, limits=Limits(limit, ROOMY))
    shown = ~scene.counters.silent
    for block in range(len(batch.blocks)):
        top = shown & (scene.tree.block == block) & (scene.tree.parent == NOWHERE)
        own = scene.timeline.length[top & (np.arange(len(batch)) != scene.tree.root[block])]
        rows = np.flatnonzero(~fitting.counters.silent & (scene.tree.block == block))
        at_root = [row for row in rows if scene.tree.root[block] != row and fitting.tree.parent_place[row] in tops(scene, top)]
        times = [time_of(fitting, row) for row in at_root]
        if sum(own[own != UNKNOWN_NS].tolist()) < 2**63 and scene.batch.blocks[block].part is None:
            assert sum(times) == sum(own[own != UNKNOWN_NS].tolist())


def tops(scene: Scene, top: np.ndarray) -> set[int]:
    """Places under which these rows lie."""
    return set(scene.tree.parent_place[top].tolist())


def time_of(scene: Scene, row: int) -> int:
    """The true time that a row's span says."""
    number = int(scene.counters.said[row])
    told = dict(scene.counters.attributes[number]) if number >= 0 else {}
    rolled = told.get(at.ROLLUP_DURATION_NS)
    return rolled if isinstance(rolled, int) else max(int(scene.timeline.length[row]), 0)


def app_batch(inferences: int, times: int = 1) -> EventBatch:
    """A request with inferences of one app's span."""
    whole = concatenate([inference(times, n, APP) for n in range(inferences)])
    return replace(whole, streams=whole.streams[:1], blocks=tuple(replace(block, stream=0) for block in whole.blocks))


def test_inferences_beyond_the_limit_leave_the_apps_trace() -> None:
    """They are whole, in traces of their own, and linked to the app's span; those before are in its trace."""
    spans = fitted(stages_with().run(app_batch(5)), 9)
    sizes = Counter(span.trace_id for span in spans)
    assert (sizes[APP.trace_id], sorted(sizes.values())) == (8, [4, 4, 4, 8])
    roots = [span for span in spans if span.trace_id != APP.trace_id and not span.parent_span_id]
    assert [(link.trace_id, link.span_id, link.trace_state) for root in roots for link in root.links] == [
        (APP.trace_id, APP.span_id, "a=b")
    ] * 3
    assert {span.trace_state for span in spans if span.trace_id != APP.trace_id} == {""}


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 3), st.integers(4, 30))
def test_a_request_is_split_alike_in_one_pass_and_in_several(inferences: int, times: int, limit: int) -> None:
    """What earlier passes of the same request took is remembered; another request, or the same again, is apart from it."""
    batch, stages, limits = app_batch(inferences, times), stages_with(), Limits(limit, ROOMY)
    taken: Taken = {}
    pieces = [fit(stages.run(piece), taken, limits) for piece in divide(batch, 5)]
    twin = replace(batch, streams=(replace(batch.streams[0]),))
    twins = fit(stages.run(concatenate([batch, twin])), None, limits)
    once = sorted(map(_bytes, spans_in(assemble(fit(stages.run(batch), None, limits), 10**6))))
    assert sorted(_bytes(span) for piece in pieces for span in spans_in(assemble(piece, 10**6))) == once
    assert sorted(map(_bytes, spans_in(assemble(twins, 10**6)))) == sorted(once * 2)


def test_an_inference_of_any_size_fits() -> None:
    """Also with the limits that hold: 20,000 different instructions, each with an event in it."""
    events = []
    for n in range(20_000):
        events += [scope("native_call_add.out", n, 10 * n, 10 * n + 5), call("OPERATOR_CALL", n, 10 * n, 10 * n + 7)]
    batch = batch_of((execute(), [*events, runtime("Method::execute", 0, 200_000)]))
    spans = spans_in(assemble(fit(stages_with().run(batch)), 10**7))
    assert 4_900 <= len(spans) <= 5_000
    assert sum(said(span).get(at.ROLLUP_COUNT, 1) for span in spans) == 40_001
