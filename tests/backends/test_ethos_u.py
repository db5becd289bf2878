"""Arm Ethos-U: no delegate events, but stretches of the runtime inside the call."""

from support.delegate_runs import run_delegate, stretch


def test_its_stretches_are_spans_of_the_call() -> None:
    """They have no identifier, so there is nothing to resolve."""
    names = ("+EthosUBackend::execute()handles.input.memcpy()", "+EthosUBackend::execute()NPU", "EthosUBackend::execute()")
    places = ((250, 300), (300, 8_000), (200, 9_000))
    run = run_delegate("EthosUBackend", [stretch(name, *place) for name, place in zip(names, places, strict=True)])
    assert run.events == {}
    assert run.call.name == "delegate EthosUBackend"
    spans = {span.name: span for span in run.spans if span.name in names}
    assert {span.parent_span_id for span in spans.values()} == {run.call.span_id}
    assert all("executorch.resolution.status" not in span.attributes for span in spans.values())
    assert [spans[name].end_ns - spans[name].start_ns for name in names] == [end - start for start, end in places]
