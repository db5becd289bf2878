"""
What is fed with load, turn by turn: the bridge with compact events, its peers with the spans that the bridge made of them.

Invariants
* A subject is given as many spans a request, by as many requests at once, over as many connections as any other.
* A turn is over when the sink has all its spans, so what is paid late is paid within it.
* What the sink took last is looked at after each turn: of the bridge, its spans are those that the same requests give when
  they are resolved here; of a peer, they are those that it was given.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import grpc
import numpy as np
from loads import RULES, synthetic_mapping, varied_patterns
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from programs import Program
from sink import spans_of

from otel_bridge.client.connection import Connection
from otel_bridge.errors import BridgeUnavailable
from otel_bridge.export.tls import TlsFiles
from otel_bridge.load.doors import Door, GrpcDoor, HttpDoor
from otel_bridge.load.events import Program as Model
from otel_bridge.load.events import patterns, program_of
from otel_bridge.load.fleet import DEVICE, Body, Fleet
from otel_bridge.load.stream import EventStream, StreamDoor
from otel_bridge.load.traffic import Outcome, drive
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Receipt, admit_events
from otel_bridge.wire.frame import Frame

IN_FLIGHT, CONNECTIONS, DEVICES = 8, 4, 16
_OTLP = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_REMEMBERED_EVENTS, _LEAST_REMEMBERED = 65_536, 64
"""Of the first and of the last that are sent: more than is on its way at a time, which after an outage arrives in any order."""


class Subject:
    """A program with its load. `send` gives it requests of a size, and returns once they are answered."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.program = program

    def send(self, events: int, requests: int) -> Outcome:
        """Send so many requests of so many events or spans."""
        raise NotImplementedError

    def check(self, arrived: bytes) -> None:
        """End the benchmark where a request to the sink is not what it should be."""
        raise NotImplementedError


class Bridge(Subject):
    """
    Compact events, over gRPC or HTTP/1.1.

    files           mappings that are uploaded; devices run their models in turn, or only the first `running` of them
    metadata_bytes  of every delegate event
    streams         requests of a connection share a stream
    varied          no two requests have the same order of identifiers or the same durations
    """

    def __init__(
        self,
        name: str,
        program: Program,
        http: str | None = None,
        *,
        files: Sequence[mapping_pb2.MappingFile] = (),
        running: int | None = None,
        devices: int = DEVICES,
        metadata_bytes: int = 0,
        streams: bool = False,
        varied: bool = False,
    ) -> None:
        super().__init__(name, program)
        self._connections = [Connection(program.address, alone=True) for _ in range(CONNECTIONS)]
        self._doors = _doors(self._connections, http, streams=streams)
        files = files or [synthetic_mapping()]
        door = GrpcDoor(self._connections[0])
        builds = [door.put_mapping(file) for file in files]
        used = list(zip(files, builds, strict=True))[:running]
        self._models = [program_of(file.mapping, build, None) for file, build in used]
        self._devices, self._metadata_bytes, self._varied = devices, metadata_bytes, varied
        self._fleets: dict[int, Fleet] = {}
        self._random = np.random.default_rng(7)
        self._first: list[bytes] = []
        self._sent: deque[bytes] = deque()
        registry = MemoryRegistry()
        for file, build in used:
            registry.put("", mapping_pb2.MappingFile(mapping=file.mapping, build_id=build))
        self._stages = Stages(CompiledMappings(registry, 1 << 26), Decoders(), 1 << 26)

    def send(self, events: int, requests: int, rate: float | None = None) -> Outcome:
        """Send so many requests of so many events."""
        fleet = self._varied_fleet(events, requests) if self._varied else self._fleet(events)
        self._first, self._sent = [], deque(maxlen=max(_REMEMBERED_EVENTS // events, _LEAST_REMEMBERED))

        def body() -> Body:
            made = fleet.body()
            (self._sent if len(self._first) == self._sent.maxlen else self._first).append(made.data)
            return made

        return _done(drive(body, self._doors, requests, events, rate=rate))

    def check(self, arrived: bytes) -> None:
        """Spans of the requests that were sent first and last are what they give here, byte for byte."""
        seen = {
            each.value.string_value
            for resource in ExportTraceServiceRequest.FromString(arrived).resource_spans
            for each in resource.resource.attributes
            if each.key == DEVICE
        }
        expected: dict[tuple[bytes, bytes], bytes] = {}
        for body in (*self._first, *self._sent):
            frame = Frame.FromString(body)
            if frame.stream is not None and frame.stream.resource[-1].value.text.decode() in seen:
                batch = admit_events(frame, body, Receipt(time.time_ns()), RULES, lambda *_: None).batch
                for payload in assemble(self._stages.run(batch), 1 << 24):
                    expected |= spans_of(payload.data)
        found = spans_of(arrived)
        known = found.keys() & expected.keys()
        if not known or any(found[key] != expected[key] for key in known):
            raise SystemExit(
                f"{self.name}: the sink took {len(found)} spans last, and of {len(known)} known ids not all are equal"
            )

    def _fleet(self, events: int) -> Fleet:
        if events not in self._fleets:
            models: list[tuple[Model, Sequence]] = [(model, patterns(model, events)) for model in self._models]
            self._fleets[events] = Fleet(models, devices=self._devices, metadata_bytes=self._metadata_bytes)
        return self._fleets[events]

    def _varied_fleet(self, events: int, requests: int) -> Fleet:
        """A fleet all of whose patterns are new, so many that none comes twice."""
        models = [(model, varied_patterns(patterns(model, events), requests, self._random)) for model in self._models]
        return Fleet(models, devices=self._devices, metadata_bytes=self._metadata_bytes)


class Floor(Subject):
    """
    What the bridge is sent, by the same ways, to a program that sends `payloads` for it without looking (floor_app.py).

    http, streams   as of `Bridge`
    """

    def __init__(
        self,
        program: Program,
        payloads: Mapping[int, Sequence[bytes]],
        http: str | None = None,
        *,
        streams: bool = False,
    ) -> None:
        super().__init__("floor", program)
        self._connections = [Connection(program.address, alone=True) for _ in range(CONNECTIONS)]
        self._doors = _doors(self._connections, http, streams=streams)
        file = synthetic_mapping()
        self._model = program_of(file.mapping, file.build_id, None)
        self._payloads = payloads
        self._given: dict[tuple[bytes, bytes], bytes] = {}

    def send(self, events: int, requests: int) -> Outcome:
        """Send so many requests of so many events."""
        payload = self._payloads[events][0]
        self._given = spans_of(payload)
        self._connections[0].channel.unary_unary("/floor/Use")(payload)
        fleet = Fleet([(self._model, patterns(self._model, events))], devices=DEVICES)
        return _done(drive(fleet.body, self._doors, requests, events))

    def check(self, arrived: bytes) -> None:
        """Every span is one that was given."""
        if spans_of(arrived) != self._given:
            raise SystemExit("floor: the sink took spans that it was not given")


class Peer(Subject):
    """
    Finished spans, over OTLP gRPC.

    payloads   spans a request -> requests that take turns
    changed    the peer adds to a span, so spans are compared by their ids
    """

    def __init__(self, name: str, program: Program, payloads: Mapping[int, Sequence[bytes]], *, changed: bool = False) -> None:
        super().__init__(name, program)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        channels = [grpc.insecure_channel(program.address, options) for _ in range(CONNECTIONS)]
        self._doors: list[Door] = [_OtlpDoor(channels[number % CONNECTIONS]) for number in range(IN_FLIGHT)]
        self._payloads = payloads
        self._changed = changed
        self._events = 0

    def send(self, events: int, requests: int) -> Outcome:
        """Send so many requests of so many spans."""
        self._events = events
        return _done(drive(_in_turn(self._payloads[events], events), self._doors, requests, events))

    def check(self, arrived: bytes) -> None:
        """Every span is one that was given."""
        found = spans_of(arrived)
        given: dict[tuple[bytes, bytes], bytes] = {}
        for payload in self._payloads[self._events]:
            given |= spans_of(payload)
        same = found.keys() <= given.keys() and (self._changed or all(given[key] == span for key, span in found.items()))
        if not found or not same:
            raise SystemExit(f"{self.name}: the sink took spans that it was not given")


class StockSdk(Subject):
    """An app of its own that makes spans by the SDK (sdk_app.py), told by a line how many."""

    def __init__(self, program: Program, payload: bytes) -> None:
        super().__init__("SDK", program)
        self._given = {_without_ids(span) for span in spans_of(payload).values()}

    def send(self, events: int, requests: int) -> Outcome:
        """Let it make so many times so many spans."""
        assert self.program.process.stdin is not None
        self.program.process.stdin.write(b"%d\n" % (events * requests))
        self.program.process.stdin.flush()
        return Outcome(events * requests)

    def check(self, arrived: bytes) -> None:
        """Every span is one that was given, but for its ids, parent and flags."""
        if not {_without_ids(span) for span in spans_of(arrived).values()} <= self._given:
            raise SystemExit("SDK: the sink took spans that it was not given")


def _without_ids(data: bytes) -> bytes:
    span = Span.FromString(data)
    for name in ("trace_id", "span_id", "parent_span_id", "flags", "status"):
        span.ClearField(name)
    return span.SerializeToString(deterministic=True)


class _OtlpDoor:
    """Export calls. What is refused for a while is sent again."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._export = channel.unary_unary(_OTLP)

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """One attempt; the answer says nothing."""
        try:
            self._export(body, timeout=60)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            raise BridgeUnavailable(error.details(), retry_after_s=0.05) from error
        return pb.ExportEventsResponse()


def _in_turn(payloads: Sequence[bytes], events: int) -> Callable[[], Body]:
    turn, lock = itertools.cycle(Body(payload, events) for payload in payloads), threading.Lock()

    def body() -> Body:
        with lock:
            return next(turn)

    return body


def _doors(connections: Sequence[Connection], http: str | None, *, streams: bool) -> list[Door]:
    """Ways for `IN_FLIGHT` requests at once: over HTTP, where that is given, else over streams or by calls of gRPC."""
    if http is not None:
        return [HttpDoor(http, TlsFiles(), None) for _ in range(IN_FLIGHT)]
    turns = list(itertools.islice(itertools.cycle(connections), IN_FLIGHT))
    if not streams:
        return [GrpcDoor(connection) for connection in turns]
    shared = {id(connection): EventStream(connection) for connection in connections}
    return [StreamDoor(connection, shared[id(connection)]) for connection in turns]


def _done(outcome: Outcome) -> Outcome:
    if outcome.fault is not None:
        raise SystemExit(str(outcome.fault))
    return outcome
