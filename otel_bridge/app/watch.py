"""What the rooms tell, written into the instruments of `telemetry`: the only place that knows both."""

import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from otel_bridge.errors import SpoolFull
from otel_bridge.export.circuit import State
from otel_bridge.telemetry.recorder import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable


class Recorder:
    """
    A `wire.intake.Watch`, a `spool.protocol.Watch` and a `pipeline.parking.Ledger`; and what `readiness.Sight` sees.

    The ledger, for each destination: accepted + recovered = emitted + dropped + what the spool still holds for it, parked
    events included.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._to: dict[str, DestinationRecorder] = {}
        self._accepted = telemetry.counter("otel_bridge.receiver.accepted_events")
        self._requests: dict[tuple[str, str], Callable[[float], None]] = {}
        self.full_at_s = -inf

    def to(self, destination: str) -> "DestinationRecorder":
        """What is told of one destination."""
        if destination not in self._to:
            self.recovered(destination, 0)  # so that the series are there before the first event
            self.parked(destination, 0)
            self._to[destination] = DestinationRecorder(self._telemetry, destination)
        return self._to[destination]

    @property
    def is_cut_off(self) -> bool:
        """Whether a back end is away."""
        return any(each.is_cut_off for each in self._to.values())

    def accepted(self, events: int) -> None:
        """Events were put into the spool."""
        self._accepted(events)

    def refused(self, events: int, reason: str) -> None:
        """Events were not taken: some of an accepted request, or all of one that is to come again."""
        self._telemetry.add("otel_bridge.receiver.refused_events", events, reason=reason)

    def sender_dropped(self, events: int, reason: str) -> None:
        """The sender had dropped events before it sent."""
        self._telemetry.add("otel_bridge.sender.dropped_events", events, reason=reason)

    def recovered(self, destination: str, events: int) -> None:
        """The spool held events of an earlier process."""
        self._telemetry.add("otel_bridge.spool.recovered_events", events, destination=destination)

    def dropped(self, destination: str, events: int, reason: str) -> None:
        """The spool gave events up."""
        self._telemetry.add("otel_bridge.dropped_events", events, destination=destination, reason=reason)

    def request(self, transport: str, outcome: str) -> None:
        """A request ended: "ok", or the reason of its error."""
        if outcome == SpoolFull.reason:
            self.full_at_s = time.monotonic()
        count = self._requests.get((transport, outcome))
        if count is None:  # as many as there are reasons in errors.py
            count = self._telemetry.counter("otel_bridge.receiver.requests", transport=transport, outcome=outcome)
            self._requests[transport, outcome] = count
        count(1)

    def duplicate(self) -> None:
        """A request that was sent again was answered as its first attempt was."""
        self._telemetry.add("otel_bridge.receiver.duplicate_requests")

    def sequence_reused(self) -> None:
        """A request had the stream and sequence of another, and another body."""
        self._telemetry.add("otel_bridge.receiver.sequence_reused")

    def turned_away(self) -> None:
        """A connection over HTTP was one too many."""
        self._telemetry.add("otel_bridge.receiver.closed_connections")

    def denied(self, transport: str, reason: str) -> None:
        """A request was turned away: its credential is missing, not good, or lacks the scope."""
        self._telemetry.add("otel_bridge.auth.refused_requests", 1, transport=transport, reason=reason)

    def parked(self, destination: str, events: int) -> None:
        """Events began to wait for their mapping."""
        self._telemetry.add("otel_bridge.parking.incoming_events", events, destination=destination)

    def unparked(self, destination: str, events: int, reason: str) -> None:
        """Events go on: their mapping is there, their time is up, or there was no room to wait."""
        self._telemetry.add("otel_bridge.parking.outgoing_events", events, destination=destination, reason=reason)

    def undecoded(self, decoder: str, reason: str) -> None:
        """A byte string of metadata was not, or not wholly, decoded."""
        self._telemetry.add("otel_bridge.metadata.failures", 1, decoder=decoder, reason=reason)

    def unconverted(self, converter: str, reason: str) -> None:
        """A converter of times failed for an event."""
        self._telemetry.add("otel_bridge.clock.unconverted_events", 1, converter=converter, reason=reason)


class DestinationRecorder:
    """A `pipeline.loop.Ledger`, an `export.observed.Watch` and an `export.dead_letters.Watch`, of one destination."""

    def __init__(self, telemetry: Telemetry, destination: str) -> None:
        self._telemetry = telemetry
        self._destination = destination
        self._circuit = State.CLOSED.value
        for state in State:
            is_it = partial(self._is, state.value)
            telemetry.watch("otel_bridge.exporter.circuit", is_it, destination=destination, state=state.value)
        self.emitted(0, 0)  # so that the series are there before the first event
        self.cut(0)

    @property
    def is_cut_off(self) -> bool:
        """Whether the back end is away."""
        return self._circuit != State.CLOSED.value

    def emitted(self, events: int, spans: int) -> None:
        """The back end took the spans of these events."""
        self._add("otel_bridge.emitted_events", events)
        self._add("otel_bridge.exporter.sent_spans", spans)

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:
        """Events were given up, and so many spans with them."""
        self._add("otel_bridge.dropped_events", events, reason=reason)
        if spans:
            self._add("otel_bridge.exporter.send_failed_spans", spans, reason=reason)

    def resolved(self, events: int, status: str, delegate: str) -> None:
        """Delegate events of a backend (or "") got this status."""
        self._add("otel_bridge.resolution.events", events, status=status, delegate=delegate)

    def cut(self, texts: int) -> None:
        """Texts of spans were cut to what back ends take."""
        self._add("otel_bridge.spans.cut_texts", texts)

    def request_sent(self, *, payload_bytes: int, rejected_spans: int, seconds: float) -> None:  # noqa: ARG002 - as the protocol says
        """The back end answered a request."""
        self._telemetry.observe("otel_bridge.exporter.send_duration", seconds, destination=self._destination)

    def request_failed(self, *, reason: str, payload_bytes: int, seconds: float) -> None:  # noqa: ARG002 - as the protocol says
        """The back end did not take a request."""
        self._telemetry.observe("otel_bridge.exporter.send_duration", seconds, destination=self._destination)
        self._add("otel_bridge.exporter.failed_requests", 1, reason=reason)

    def request_halved(self, *, reason: str) -> None:
        """A refused request goes again in two halves."""
        self._add("otel_bridge.exporter.halved_requests", 1, reason=reason)

    def circuit_changed(self, state: str) -> None:
        """The back end answers, or does not, or is being tried."""
        self._circuit = state

    def dead_letter_kept(self, spans: int, reason: str) -> None:
        """A refused request was kept on disk."""
        self._add("otel_bridge.dead_letters.kept_spans", spans, reason=reason)

    def dead_letter_lost(self, spans: int, reason: str) -> None:
        """A refused request is not on disk, or not any more."""
        self._add("otel_bridge.dead_letters.lost_spans", spans, reason=reason)

    def _is(self, state: str) -> int:
        return int(state == self._circuit)

    def _add(self, name: str, value: int, **labels: str) -> None:
        self._telemetry.add(name, value, destination=self._destination, **labels)
