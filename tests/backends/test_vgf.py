"""Arm VGF: nested phases by the runtime's clock, and one that carries metadata."""

import base64
import json

import pytest
from support.delegate_runs import logged, run_delegate
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.spans import resolve_dump

from otel_bridge.v1 import mapping_pb2 as pb

BLOB = bytes(range(7))


def statistics(**more: object) -> bytes:
    """Metadata, as VGFNeuralStatistics.cpp writes them."""
    there = {"available": True, "is_text": False, "vulkan_result": 0, "size": len(BLOB), "encoding": "base64", "reason": ""}
    blob = there | {"data": base64.b64encode(BLOB).decode()}
    absent = there | {"available": False, "size": 0, "data": "", "reason": "not bound"}
    segment = {"segment_id": 0, "debug_database": blob, "statistics_info": blob, "statistics_memory": absent}
    said = {"schema": "executorch.vgf.neural_statistics", "schema_version": 1, "available": True, "reason": ""}
    return json.dumps(said | {"segments": [segment, segment]} | more).encode()


def test_phases_nest_as_they_ran() -> None:
    """They are measured, and stand for no operator."""
    events = [
        logged("VGF_COPY_INPUTS", 200, 300),
        logged("VGF_QUEUE_SUBMIT_AND_WAIT_FENCE", 400, 7_900),
        logged("VGF_DISPATCH_AND_WAIT", 300, 8_000),
        logged("VGF_EXECUTE", 150, 9_000),
    ]
    run = run_delegate("VgfBackend", events)
    ids = {name: span.span_id for name, span in run.events.items()}
    assert {name: span.parent_span_id for name, span in run.events.items()} == {
        "VGF_COPY_INPUTS": ids["VGF_EXECUTE"],
        "VGF_QUEUE_SUBMIT_AND_WAIT_FENCE": ids["VGF_DISPATCH_AND_WAIT"],
        "VGF_DISPATCH_AND_WAIT": ids["VGF_EXECUTE"],
        "VGF_EXECUTE": run.call.span_id,
    }
    assert all(run.said(name, "resolution", "time") == {"resolution.status": "phase"} for name in run.events)
    assert run.times("VGF_QUEUE_SUBMIT_AND_WAIT_FENCE") == (400, 7_900)


def test_neural_statistics_are_measured_and_left_where_they_are() -> None:
    """Version, segments and bytes are kept; no blob goes out."""
    run = run_delegate("VgfBackend", [logged("VGF_NEURAL_STATISTICS", 300, 400, statistics())])
    assert run.said("VGF_NEURAL_STATISTICS", "resolution", "delegate.metadata") == {
        "resolution.status": "phase",
        "delegate.metadata.schema_version": 1,
        "delegate.metadata.available": True,
        "delegate.metadata.segments": 2,
        "delegate.metadata.blobs": 4,
        "delegate.metadata.blob_bytes": 4 * len(BLOB),
    }


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (b'{"preferredComputeUnit":"NE"}', "not of the schema"),
        (statistics(schema_version=2), "of another version than 1"),
        (statistics(schema_version=True), "of another version than 1"),
        (statistics(segments={}), "without a list of segments"),
        (statistics()[:-1], "not JSON"),
        (
            statistics(segments=[{"debug_database": {"available": True, "size": 8, "encoding": "base64", "data": "AAEC"}}, 5]),
            "1 blobs are no base64 of their size",
        ),
    ],
)
def test_other_metadata_say_what_is_wrong(metadata: bytes, error: str) -> None:
    """The span stays."""
    run = run_delegate("VgfBackend", [logged("VGF_NEURAL_STATISTICS", 300, 400, metadata)])
    assert error in str(run.events["VGF_NEURAL_STATISTICS"].attributes["executorch.delegate.metadata_error"])


def test_initialisation_has_no_instruction() -> None:
    """It lies in the trace of the load."""
    events = [
        ProfileEvent(chain=-1, instruction=0, id_str="VGF_INIT_TOTAL", metadata=b"", start=20, end=80),
        ProfileEvent(name="Method::init", chain=-1, instruction=0, start=10, end=90),
    ]
    call = pb.Instruction(id=0, delegate="VgfBackend", handles=[1])
    mapping = pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=[call])])
    spans = resolve_dump(write_etdump([RunData("Default", events)]), pb.MappingFile(mapping=mapping)).spans
    (phase,) = [span for span in spans if span.name == "VGF_INIT_TOTAL"]
    (root,) = [span for span in spans if span.name.startswith("load")]
    assert phase.attributes["executorch.resolution.status"] == "phase"
    assert phase.parent_span_id == root.span_id
