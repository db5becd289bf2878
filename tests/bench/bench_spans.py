"""
What a span costs: templates against the OpenTelemetry SDK, on the same batch, in one run, as a ratio.

* templates   all that the pipeline does from columns to OTLP bytes: method, clock, tree, resolution, assembly
* messages    the scene, already resolved, as protobuf messages, serialised (the oracle of the tests)
* SDK         `start_span` and `end` for spans with the same names, times and attributes, then the encoder of its exporters
The SDK is handed what the bridge found: resolving costs it nothing.
"""

from collections.abc import Sequence

from loads import prepare
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from rounds import USUAL, Effort, Figure, ratio, spread, take_turns

from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.reference import build
from otel_bridge.spans.scene import Scene

LIMIT_BYTES = 1 << 20


class Collected(SpanExporter):
    """Keeps ended spans for the encoder."""

    def __init__(self) -> None:
        """Start with none."""
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep spans."""
        self.spans += spans
        return SpanExportResult.SUCCESS


def by_sdk(scene: Scene) -> bytes:
    """The same spans through the SDK, without parents: they would only make it slower."""
    collected = Collected()
    provider = TracerProvider(resource=Resource(dict(scene.resources[0].attributes)))
    provider.add_span_processor(SimpleSpanProcessor(collected))
    tracer = provider.get_tracer("otel_bridge")
    starts, ends = scene.timeline.start.tolist(), scene.timeline.end.tolist()
    for row, template in enumerate(scene.template.tolist()):
        face = scene.templates[template].face
        tracer.start_span(face.name, attributes=dict(face.attributes), start_time=starts[row]).end(ends[row])
    return encode_spans(collected.spans).SerializeToString()


def main(effort: Effort = USUAL) -> list[Figure]:
    """Three captures: two of XNNPACK, one of a mapped backend."""
    figures = []
    print("  ns per span, median (min..max)")
    for model, capture in (("xnnpack", "run100.etdp"), ("xnn_transformer", "run10.etdp"), ("toy_backend_int", "run10.etdp")):
        batch, stages = prepare(model, capture)
        scene = stages.run(batch)
        subjects = {
            "templates": lambda batch=batch, stages=stages: assemble(stages.run(batch), LIMIT_BYTES),
            "messages": lambda scene=scene: build(scene).SerializeToString(),
            "SDK": lambda scene=scene: by_sdk(scene),
        }
        took = take_turns(subjects, len(batch), effort.rounds(15))
        shown = "   ".join(f"{name} {spread(values)}" for name, values in took.items())
        faster = ratio(took["SDK"], took["templates"])
        print(f"  {model:16} {len(batch):5} spans   {shown}   templates {faster:.0f}x faster than the SDK")
        figures += [Figure(f"{model}/{name}", "ns/span", values) for name, values in took.items()]
    return figures
