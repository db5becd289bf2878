"""
The bridge's own instruments, all of them.

Invariants
* What is not in `INSTRUMENTS` cannot be recorded, and every recording names exactly the labels that stand here.
* Shapes and names are those of the OpenTelemetry Collector's internal telemetry (otelcol_receiver_accepted_spans, ...),
  so that its dashboards and alert rules carry over: docs/decisions/0016. In Prometheus form dots become underscores,
  counters end in `_total` and units are spelt out: `otel_bridge_receiver_accepted_events_total`.
* The ledger is kept in events, and what it says of the whole bridge stands under no room (`emitted_events`, ...); spans are
  counted apart, under `exporter`.

Units are UCUM codes; `{...}` counts things.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How values of an instrument add up, and who asks whom."""

    COUNTER = "counter"
    """Told of increments."""
    HISTOGRAM = "histogram"
    """Told of single values."""
    OBSERVED_GAUGE = "observed gauge"
    """Asked for the present value when somebody looks."""
    OBSERVED_COUNTER = "observed counter"
    """Asked for a total that only grows when somebody looks."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument: its dotted name, kind, unit, the sentence that /metrics shows, its labels, a histogram's bounds."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


C, H, G, T = Kind.COUNTER, Kind.HISTOGRAM, Kind.OBSERVED_GAUGE, Kind.OBSERVED_COUNTER

SEND_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

INSTRUMENTS: tuple[Instrument, ...] = (
    # Receiver: the doors.
    Instrument("otel_bridge.receiver.accepted_events", C, "{event}", "Events that were acknowledged."),
    Instrument("otel_bridge.receiver.refused_events", C, "{event}", "Events that were refused, by reason.", ("reason",)),
    Instrument(
        "otel_bridge.receiver.requests",
        C,
        "{request}",
        "Requests to either service, by how they ended.",
        ("outcome", "transport"),
    ),
    Instrument(
        "otel_bridge.receiver.duplicate_requests", C, "{request}", "Requests sent again, and answered as the first attempt was."
    ),
    Instrument("otel_bridge.receiver.sequence_reused", C, "{request}", "Requests with the stream and sequence of another one."),
    Instrument("otel_bridge.receiver.inside_requests", G, "{request}", "Requests that are being read, checked or kept."),
    Instrument("otel_bridge.receiver.inside_bytes", G, "By", "Bytes of them."),
    Instrument("otel_bridge.receiver.waiting_requests", G, "{request}", "Requests that wait to be read."),
    Instrument("otel_bridge.receiver.open_connections", G, "{connection}", "Open connections of the HTTP door."),
    Instrument("otel_bridge.receiver.closed_connections", C, "{connection}", "Connections over HTTP that were too many."),
    Instrument(
        "otel_bridge.auth.refused_requests", C, "{request}", "Requests turned away, by reason.", ("reason", "transport")
    ),
    Instrument("otel_bridge.sender.dropped_events", C, "{event}", "Events that senders say they dropped.", ("reason",)),
    # Spool: what waits.
    Instrument("otel_bridge.spool.size", G, "{event}", "Events in the spool, by who has not got them.", ("destination",)),
    Instrument("otel_bridge.spool.size_bytes", G, "By", "Bytes that the spool holds."),
    Instrument("otel_bridge.spool.capacity_bytes", G, "By", "Bytes that the spool may hold."),
    Instrument(
        "otel_bridge.spool.recovered_events",
        C,
        "{event}",
        "Events of an earlier process that the spool held at the start.",
        ("destination",),
    ),
    Instrument("otel_bridge.parked_events", G, "{event}", "Events that wait for their mapping.", ("destination",)),
    Instrument("otel_bridge.parked_bytes", G, "By", "Bytes of events that wait for their mapping.", ("destination",)),
    Instrument(
        "otel_bridge.parking.incoming_events", C, "{event}", "Events that began to wait for their mapping.", ("destination",)
    ),
    Instrument("otel_bridge.parking.outgoing_events", C, "{event}", "Events that go on, by why.", ("destination", "reason")),
    # Pipeline: where each acknowledged event ends.
    Instrument("otel_bridge.emitted_events", C, "{event}", "Events whose spans the back end took.", ("destination",)),
    Instrument(
        "otel_bridge.dropped_events", C, "{event}", "Acknowledged events given up, by reason.", ("destination", "reason")
    ),
    Instrument(
        "otel_bridge.unaccounted_events",
        G,
        "{event}",
        "Accepted events that neither ended nor wait. Must be 0.",
        ("destination",),
    ),
    # Resolution and metadata.
    Instrument(
        "otel_bridge.resolution.events",
        C,
        "{event}",
        "Delegate events, by how they resolved.",
        ("delegate", "destination", "status"),
    ),
    Instrument(
        "otel_bridge.metadata.failures",
        C,
        "{string}",
        "Distinct byte strings of metadata that were not wholly decoded.",
        ("decoder", "reason"),
    ),
    Instrument("otel_bridge.clock.unconverted_events", C, "{event}", "Events not converted.", ("converter", "reason")),
    Instrument(
        "otel_bridge.spans.cut_texts",
        C,
        "{text}",
        "Texts of spans and resources that were cut to 2,048 bytes or less.",
        ("destination",),
    ),
    # Exporter: spans.
    Instrument("otel_bridge.exporter.sent_spans", C, "{span}", "Spans that the back end took.", ("destination",)),
    Instrument(
        "otel_bridge.exporter.send_failed_spans",
        C,
        "{span}",
        "Spans given up or refused, by reason.",
        ("destination", "reason"),
    ),
    Instrument(
        "otel_bridge.exporter.failed_requests",
        C,
        "{request}",
        "Attempts to send that failed, by reason.",
        ("destination", "reason"),
    ),
    Instrument(
        "otel_bridge.exporter.send_duration", H, "s", "Time of one attempt to send.", ("destination",), bounds=SEND_BOUNDS_S
    ),
    Instrument(
        "otel_bridge.exporter.halved_requests",
        C,
        "{request}",
        "Refused requests sent in two halves.",
        ("destination", "reason"),
    ),
    Instrument(
        "otel_bridge.exporter.circuit", G, "1", "1 for the state that the way to the back end is in.", ("destination", "state")
    ),
    Instrument(
        "otel_bridge.dead_letters.kept_spans", C, "{span}", "Refused spans that were kept on disk.", ("destination", "reason")
    ),
    Instrument(
        "otel_bridge.dead_letters.lost_spans", C, "{span}", "Refused spans not kept, or no longer.", ("destination", "reason")
    ),
    Instrument("otel_bridge.dead_letters.size_bytes", G, "By", "Bytes of the dead letters on disk.", ("destination",)),
    # Process.
    Instrument("otel_bridge.ready", G, "1", "1 while requests are welcome."),
    Instrument("otel_bridge.process.uptime", T, "s", "Time since the bridge started."),
    Instrument("otel_bridge.process.cpu_seconds", T, "s", "Processor time in user and system mode."),
    Instrument("otel_bridge.process.memory_rss", G, "By", "Physical memory in use."),
)


class Undeclared(LookupError):
    """A recording that the tables of this module do not foresee, by name, kind or labels: a defect of the caller."""
