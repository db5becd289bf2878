"""What Jaeger shows of a run of two methods, two backends and two clocks: the picture holds, and nothing warns."""

import json
from collections.abc import Iterator

import grpc
import pytest
from support.doors import Bridge, running_bridge
from support.jaeger import Jaeger, StoredSpan
from support.scenes import E, batch_of, call, delegated, execute, runtime
from support.spans import TICK_ZERO_NS

from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1 import mapping_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.codec import request_of

APP, BUILD = "two-clocks", "two-clocks-1"
GPU_ZERO = 2**32 - 1_000
"""Ticks of the GPU's counter of 32 bits when the host's shows 0: it wraps within the first call."""
KERNEL = json.dumps({"operator": {"name": "aten.mul.Tensor", "delegate_node_id": 0, "args": []}, "kernel_name": "mul"})
METHODS = ("encode", "decode")


@pytest.fixture(scope="module")
def bridge(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with running_bridge(jaeger, tmp_path_factory.mktemp("bridge")) as running:
        yield running


def mapping() -> pb.MappingFile:
    """Each method runs a call of XNNPACK, one of Vulkan, and one of a backend that nobody knows."""
    calls = [
        pb.Instruction(id=0, delegate="XnnpackBackend", handles=[1]),
        pb.Instruction(id=1, delegate="VulkanBackend", handles=[2]),
        pb.Instruction(id=2, delegate="OtherBackend", handles=[3], entries=[pb.MapEntry(text="conv", handles=[3])]),
    ]
    methods = [pb.Method(name=name, instructions=calls) for name in sorted(METHODS)]
    return pb.MappingFile(build_id=BUILD, mapping=pb.Mapping(format=1, methods=methods))


def gpu(at: int) -> int:
    """The GPU's counter at a tick of the host's: half as fast."""
    return (GPU_ZERO + at // 2) % 2**32


@pytest.fixture(scope="module")
def traces(bridge: Bridge, jaeger: Jaeger) -> dict[str, list[StoredSpan]]:
    """The run in Jaeger."""
    stream = Stream(
        stream_id=bytes(range(1, 17)),
        model=ModelRef("net", "1", BUILD),
        resource=(("service.name", APP),),
        clocks=(
            Clock(anchor=Anchor(0, TICK_ZERO_NS)),
            Clock(2, 1, 32, Anchor(GPU_ZERO, TICK_ZERO_NS + 40), name="gpu"),
        ),
    )

    def inference(begin: int) -> list[E]:
        def at(ticks: int) -> int:
            return begin + ticks

        return [
            delegated("Convolution (NHWC, F32) #1", 0, at(110), at(180)),
            call("DELEGATE_CALL", 0, at(100), at(200)),
            delegated("ETVK_COMPUTE", 1, at(310), at(4_400)),
            delegated(KERNEL, 1, gpu(at(400)), gpu(at(2_400)), clock=1),
            delegated(KERNEL, 1, gpu(at(2_600)), gpu(at(4_000)), clock=1),
            call("DELEGATE_CALL", 1, at(300), at(4_500)),
            delegated("conv", 2, 7, 90_000),
            call("DELEGATE_CALL", 2, at(4_600), at(4_700)),
            runtime("Method::execute", at(0), at(5_000)),
        ]

    blocks = [(execute(n, method=METHODS[n % 2]), inference(10_000 * n)) for n in range(4)]
    with grpc.insecure_channel(bridge.grpc) as channel:
        MappingServiceStub(channel).PutMapping(pb.PutMappingRequest(file=mapping()), timeout=10)
        ProfilingServiceStub(channel).ExportEvents(request_of(batch_of(*blocks, stream=stream)), timeout=10)
    bridge.settle()
    hour_ns = 3_600_000_000_000
    return jaeger.search(APP, start_ns=TICK_ZERO_NS - hour_ns, end_ns=TICK_ZERO_NS + hour_ns)


def test_nothing_warns(traces: dict[str, list[StoredSpan]], jaeger: Jaeger) -> None:
    """Jaeger has a trace for each inference, whole, and finds nothing wrong with any span."""
    assert sorted(len(spans) for spans in traces.values()) == [9] * 4
    for trace_id, spans in traces.items():
        assert jaeger.warnings(trace_id) == {}
        ids = {span.span_id for span in spans}
        (root,) = [span for span in spans if span.parent_span_id not in ids]
        assert root.name in {f"execute net.{method}" for method in METHODS}


def test_both_clocks_show_in_one_picture(traces: dict[str, list[StoredSpan]]) -> None:
    """Shaders by a GPU's counter that wraps lie in their call, in order, as long as they were: 2,000 and 1,400 ns."""
    for spans in traces.values():
        by_id = {span.span_id: span for span in spans}
        shaders = sorted((span for span in spans if span.name == "mul"), key=lambda span: span.start_ns)
        assert [span.end_ns - span.start_ns for span in shaders] == [2_000, 1_400]
        assert shaders[0].end_ns <= shaders[1].start_ns
        for shader in shaders:
            parent = by_id[shader.parent_span_id]
            assert parent.start_ns <= shader.start_ns
            assert shader.end_ns <= parent.end_ns
            assert shader.attributes["executorch.time.quality"] == "foreign_clock"
    statuses = {str(span.attributes.get("executorch.resolution.status")) for spans in traces.values() for span in spans}
    assert statuses == {"None", "exact", "delegate", "phase"}
