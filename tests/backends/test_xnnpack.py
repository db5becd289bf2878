"""XNNPACK: operators by name and ordinal, laid end to end, no map."""

from support.delegate_runs import CALL_START, logged, run_delegate

CONV, ADD = "Convolution (NHWC, F32) IGEMM", "Add (ND, F32)"


def test_operators_are_named_without_their_ordinals_and_laid_out() -> None:
    """Times are XNNPACK's, end to end from the start of the call; handles stand on the call only."""
    events = [logged(f"{CONV} #1", 100, 4_100), logged(f"{CONV} #2", 4_100, 6_100), logged(f"{ADD} #1", 6_100, 6_100)]
    run = run_delegate("XnnpackBackend", events)
    assert [span.name for span in run.events.values()] == [CONV, CONV, ADD]
    assert {span.parent_span_id for span in run.events.values()} == {run.call.span_id}
    assert run.call.attributes["executorch.debug_handles"] == (1, 2, 3)
    for identifier in run.events:
        assert run.said(identifier, "resolution", "time.quality", "debug_handles") == {
            "resolution.status": "delegate",
            "time.quality": "laid_out",
        }
    assert run.times(f"{CONV} #1") == (CALL_START, 4_100)
    assert run.times(f"{CONV} #2") == (4_100, 6_100)


def test_an_operator_of_less_than_a_microsecond_is_shown_and_marked() -> None:
    """XNNPACK says 0; Jaeger wants a length."""
    run = run_delegate("XnnpackBackend", [logged(f"{ADD} #1", 100, 100)])
    assert run.times(f"{ADD} #1") == (100, 101)
    assert run.said(f"{ADD} #1", "time.duration_ns") == {"time.duration_ns": 0}
