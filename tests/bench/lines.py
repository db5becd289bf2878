"""
The lines of bench_service.py: which program, with which configuration, at which sizes; and what is to be shown.

Each bridge and each peer is a process of its own; lines over gRPC and over HTTP share one.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import peers
from loads import synthetic_mapping
from programs import Program, bridge
from rounds import Effort
from sink import Sink
from subjects import Bridge, Floor, Peer, StockSdk, Subject
from support.processes import free_port, free_ports

TURN_SPANS = {16: 8_000, 64: 16_000, 256: 40_000, 1024: 100_000, 8192: 200_000}
"""Spans a request -> spans of a turn: enough for a tenth of a second of the cheapest program."""
SIZES = tuple(TURN_SPANS)
OVER_HTTP = "http/protobuf"


@dataclass
class Room:
    """What the programs of one run share. Programs end with `stack`."""

    folder: Path
    sink: Sink
    stack: ExitStack
    payloads: dict[int, list[bytes]] = field(default_factory=dict)
    payloads_with_metadata: dict[int, list[bytes]] = field(default_factory=dict)
    _bridges: dict[str, tuple[Program, str]] = field(default_factory=dict)

    def bridge(self, name: str, **settings: str) -> tuple[Program, str]:
        """The bridge of that name, and where its HTTP door is; started if it is not there."""
        if name not in self._bridges:
            ports = tuple(free_ports(2))
            sink = self.sink.http_address if settings.get("EXPORT__PROTOCOL") == OVER_HTTP else self.sink.address
            program = self.stack.enter_context(bridge(self.folder / name, sink, ports, **settings))
            self._bridges[name] = program, f"127.0.0.1:{ports[1]}"
        return self._bridges[name]

    @cache  # noqa: B019 - there is one room a run
    def plain(self) -> Bridge:
        """A bridge with its spool in memory, over gRPC."""
        return Bridge("bridge", self.bridge("memory", **_MEMORY)[0])

    @cache  # noqa: B019 - as above
    def with_metadata(self) -> Bridge:
        """The same bridge; each delegate event has 8 bytes of its own, read by a declared layout."""
        return _with_metadata("memory")(self)

    @cache  # noqa: B019 - as above
    def floor(self, *, out_over_http: bool = False) -> tuple[Program, str]:
        """What moves the same bytes and does nothing else, and where its HTTP door is."""
        http_port, name = free_port(), "floor-http" if out_over_http else "floor"
        sink = f"http://{self.sink.http_address}" if out_over_http else self.sink.address
        program = peers.floor(self.folder / f"peer-{name}", sink, free_port(), http_port)
        return self.stack.enter_context(program), f"127.0.0.1:{http_port}"

    def peer(self, make: Callable[..., Program], name: str, *more: object) -> Program:
        """A peer's program."""
        return self.stack.enter_context(make(self.folder / f"peer-{name}", self.sink.address, free_port(), *more))

    __hash__ = object.__hash__


@dataclass(frozen=True)
class Line:
    """
    A name, how its subject is made, and at which sizes it is measured: usually, and with `full`.

    needs   where the program lies once it is there; None: nothing has to be got
    """

    name: str
    make: Callable[[Room], Subject]
    usual: Sequence[int] = SIZES
    full: Sequence[int] = SIZES
    needs: Callable[[], Path] | None = None

    def sizes(self, effort: Effort) -> Sequence[int]:
        """Spans a request."""
        return self.usual[:1] if effort.tiny else self.full if effort.full else self.usual


def _ours(
    name: str, *, over_http: bool = False, streams: bool = False, varied: bool = False, **settings: str
) -> Callable[[Room], Subject]:
    """A bridge with its spool in memory, unless `settings` say otherwise; lines with one name share it."""

    def make(room: Room) -> Subject:
        program, http = room.bridge(name, **_MEMORY | settings)
        return Bridge(f"bridge, {name}", program, http if over_http else None, streams=streams, varied=varied)

    return make


def _with_metadata(name: str, *, over_http: bool = False, **settings: str) -> Callable[[Room], Bridge]:
    def make(room: Room) -> Bridge:
        program, http = room.bridge(name, **_MEMORY | settings)
        files = [synthetic_mapping(metadata=True)]
        return Bridge("bridge, metadata", program, http if over_http else None, files=files, metadata_bytes=8)

    return make


def _direct(room: Room) -> Subject:
    return Peer("Collector", room.peer(peers.collector_direct, "direct"), room.payloads)


def _on_disk(room: Room) -> Subject:
    return Peer("Collector, disk", room.peer(peers.collector_on_disk, "disk"), room.payloads)


def _looking_up(room: Room) -> Subject:
    program = room.peer(peers.collector_with_lookup, "lookup", range(50))
    return Peer("Collector, OTTL", program, room.payloads, changed=True)


def _metadata_passed(room: Room) -> Subject:
    return Peer("Collector, spans with metadata", room.peer(peers.collector_direct, "metadata"), room.payloads_with_metadata)


def _rotel(room: Room) -> Subject:
    return Peer("rotel", room.peer(peers.rotel_agent, "rotel", free_port()), room.payloads)


def _stock_sdk(room: Room) -> Subject:
    payload = room.payloads[1024][0]
    return StockSdk(room.peer(peers.stock_sdk, "sdk", payload), payload)


def _floor(*, over_http: bool = False, streams: bool = False, out_over_http: bool = False) -> Callable[[Room], Subject]:
    def make(room: Room) -> Subject:
        program, http = room.floor(out_over_http=out_over_http)
        return Floor(program, room.payloads, http if over_http else None, streams=streams)

    return make


_MEMORY, _DISK, _OUT = {"SPOOL__DURABILITY": "memory"}, {"SPOOL__DURABILITY": "full"}, {"EXPORT__PROTOCOL": OVER_HTTP}

MEMORY, MEMORY_STREAM = "bridge, memory, gRPC", "bridge, memory, gRPC streams"
MEMORY_HTTP, MEMORY_BOTH = "bridge, memory, HTTP/1.1", "bridge, memory, HTTP/1.1 in and out"
DISK, DISK_STREAM = "bridge, disk and fsync, gRPC", "bridge, disk and fsync, gRPC streams"
DISK_HTTP, DISK_BOTH = "bridge, disk and fsync, HTTP/1.1", "bridge, disk and fsync, HTTP/1.1 in and out"
VARIED = "bridge, memory, gRPC, varied"
GZIP, GZIP_BOTH = "bridge, memory, gRPC, gzip out", "bridge, memory, HTTP/1.1 in and out, gzip out"
METADATA, METADATA_BOTH = "bridge, memory, gRPC, metadata", "bridge, memory, HTTP/1.1 in and out, metadata"
DIRECT, QUEUED = "Collector, no queue", "Collector, queue on disk, fsync"
LOOKUP, PASSED = "Collector, OTTL look-up of 50", "Collector, spans with metadata"
ROTEL, SDK = "rotel", "SDK: start, end, batch, OTLP gRPC"
FLOOR, FLOOR_STREAM = "floor: the same bytes by grpc.aio", "floor: the same by streams"
FLOOR_HTTP, FLOOR_BOTH = "floor: the same by uvicorn, HTTP/1.1", "floor: the same by HTTP/1.1 in and out"
FLOORS = {
    FLOOR: (MEMORY, METADATA, GZIP, DISK),
    FLOOR_STREAM: (MEMORY_STREAM, DISK_STREAM),
    FLOOR_HTTP: (MEMORY_HTTP, DISK_HTTP),
    FLOOR_BOTH: (MEMORY_BOTH, METADATA_BOTH, GZIP_BOTH, DISK_BOTH),
}
"""What is left where nothing is done -> of which lines of ours: a floor knows no disk, no gzip and no metadata."""

LINES = (
    Line(MEMORY, _ours("memory")),
    Line(FLOOR, _floor()),
    Line(DIRECT, _direct, needs=peers.collector_program),
    Line(MEMORY_STREAM, _ours("memory", streams=True)),
    Line(FLOOR_STREAM, _floor(streams=True)),
    Line(MEMORY_HTTP, _ours("memory", over_http=True)),
    Line(FLOOR_HTTP, _floor(over_http=True)),
    Line(MEMORY_BOTH, _ours("http", over_http=True, **_OUT)),
    Line(FLOOR_BOTH, _floor(over_http=True, out_over_http=True)),
    Line(VARIED, _ours("memory", varied=True), (64, 1024)),
    Line(DISK, _ours("disk", **_DISK)),
    Line(DISK_STREAM, _ours("disk", streams=True, **_DISK), (64, 256, 1024)),
    Line(QUEUED, _on_disk, (64, 256, 1024), needs=peers.collector_program),
    Line(DISK_HTTP, _ours("disk", over_http=True, **_DISK), (16, 64, 256, 1024)),
    Line(DISK_BOTH, _ours("disk-http", over_http=True, **_DISK, **_OUT), (64, 256, 1024)),
    Line(LOOKUP, _looking_up, (1024,), needs=peers.collector_program),
    Line(METADATA, lambda room: room.with_metadata(), (1024,), (1024,)),
    Line(METADATA_BOTH, _with_metadata("http", over_http=True, **_OUT), (1024,), (1024,)),
    Line(PASSED, _metadata_passed, (1024,), (1024,), peers.collector_program),
    Line(GZIP, _ours("gzip", EXPORT__COMPRESSION="gzip"), (256, 1024)),
    Line(GZIP_BOTH, _ours("gzip-http", over_http=True, EXPORT__COMPRESSION="gzip", **_OUT), (256, 1024)),
    Line(ROTEL, _rotel, (256, 1024), needs=peers.rotel_program),
    Line(SDK, _stock_sdk, (1024,), (1024,)),
)


@dataclass(frozen=True)
class Goal:
    """`slow` shall cost at least `least` times as much a span as the best of `fast`, at `size` a request."""

    what: str
    slow: str
    fast: Sequence[str]
    size: int
    least: float


_CALLS_OR_STREAMS = (MEMORY, MEMORY_STREAM)
_ANY = (*_CALLS_OR_STREAMS, MEMORY_HTTP, MEMORY_BOTH)
_ANY_DISK = (DISK, DISK_STREAM, DISK_HTTP, DISK_BOTH)
_HTTP = (MEMORY_HTTP, MEMORY_BOTH)
GOALS = (
    Goal("8,192 a request: Collector, no queue / ours, memory", DIRECT, _ANY, 8192, 4),
    Goal("1,024 a request: Collector, no queue / ours, memory", DIRECT, _ANY, 1024, 4),
    Goal("256 a request: Collector, no queue / ours, memory, gRPC", DIRECT, _CALLS_OR_STREAMS, 256, 3),
    Goal("64 a request: Collector, no queue / ours, memory, gRPC", DIRECT, _CALLS_OR_STREAMS, 64, 2),
    Goal("1,024 a request: Collector, disk queue / ours, disk", QUEUED, _ANY_DISK, 1024, 10),
    Goal("256 a request: Collector, disk queue / ours, disk", QUEUED, _ANY_DISK, 256, 8),
    Goal("64 a request: Collector, disk queue / ours, disk", QUEUED, _ANY_DISK, 64, 5),
    Goal("1,024 a request: Collector, OTTL look-up / ours, memory", LOOKUP, _ANY, 1024, 6),
    Goal("1,024 a request: rotel / ours, gzip out of both", ROTEL, (GZIP, GZIP_BOTH), 1024, 4),
    Goal("256 a request: rotel / ours, gzip out of both", ROTEL, (GZIP, GZIP_BOTH), 256, 3),
    Goal("1,024 a request: stock SDK and exporter / ours, memory", SDK, _ANY, 1024, 50),
    Goal("1,024 a request, 8 B of metadata an event: Collector, no queue / ours", PASSED, (METADATA, METADATA_BOTH), 1024, 2),
    Goal("16 a request: Collector, no queue, gRPC / ours, HTTP/1.1", DIRECT, _HTTP, 16, 3),
    Goal("64 a request: Collector, no queue, gRPC / ours, HTTP/1.1", DIRECT, _HTTP, 64, 3),
)
"""What was asked for, in the order of the table in docs/performance.md. Where no door was named, each of ours counts."""
