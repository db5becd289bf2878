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
            program = self.stack.enter_context(bridge(self.folder / name, self.sink.address, ports, **settings))
            self._bridges[name] = program, f"127.0.0.1:{ports[1]}"
        return self._bridges[name]

    @cache  # noqa: B019 - there is one room a run
    def plain(self) -> Bridge:
        """A bridge with its spool in memory, over gRPC."""
        return Bridge("bridge", self.bridge("memory", SPOOL__DURABILITY="memory")[0])

    @cache  # noqa: B019 - as above
    def with_metadata(self) -> Bridge:
        """The same bridge; each delegate event has 8 bytes of its own, read by a declared layout."""
        program, _ = self.bridge("memory", SPOOL__DURABILITY="memory")
        return Bridge("bridge, metadata", program, files=[synthetic_mapping(metadata=True)], metadata_bytes=8)

    @cache  # noqa: B019 - as above
    def floor(self) -> tuple[Program, str]:
        """What moves the same bytes and does nothing else, and where its HTTP door is."""
        http_port = free_port()
        return self.peer(peers.floor, "floor", http_port), f"127.0.0.1:{http_port}"

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
    def make(room: Room) -> Subject:
        program, http = room.bridge(name, **settings)
        return Bridge(f"bridge, {name}", program, http if over_http else None, streams=streams, varied=varied)

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


def _floor(*, over_http: bool = False, streams: bool = False) -> Callable[[Room], Subject]:
    def make(room: Room) -> Subject:
        program, http = room.floor()
        return Floor(program, room.payloads, http if over_http else None, streams=streams)

    return make


MEMORY, MEMORY_HTTP = "bridge, memory, gRPC", "bridge, memory, HTTP/1.1"
MEMORY_STREAM = "bridge, memory, gRPC streams"
DISK, DISK_HTTP = "bridge, disk and fsync, gRPC", "bridge, disk and fsync, HTTP/1.1"
DISK_STREAM, VARIED = "bridge, disk and fsync, gRPC streams", "bridge, memory, gRPC, varied"
GZIP, METADATA = "bridge, memory, gRPC, gzip out", "bridge, memory, gRPC, metadata"
DIRECT, QUEUED = "Collector, no queue", "Collector, queue on disk, fsync"
LOOKUP, PASSED = "Collector, OTTL look-up of 50", "Collector, spans with metadata"
ROTEL, SDK = "rotel", "SDK: start, end, batch, OTLP gRPC"
FLOOR, FLOOR_STREAM = "floor: the same bytes by grpc.aio", "floor: the same by streams"
FLOOR_HTTP = "floor: the same by uvicorn, HTTP/1.1"
FLOORS = {MEMORY: FLOOR, MEMORY_STREAM: FLOOR_STREAM, MEMORY_HTTP: FLOOR_HTTP, METADATA: FLOOR, GZIP: FLOOR}
FLOORS |= {DISK: FLOOR, DISK_STREAM: FLOOR_STREAM}
"""Lines of ours -> what is left of them where nothing is done: a floor knows no disk, no gzip and no metadata."""

LINES = (
    Line(MEMORY, _ours("memory", SPOOL__DURABILITY="memory")),
    Line(FLOOR, _floor()),
    Line(DIRECT, _direct, needs=peers.collector_program),
    Line(MEMORY_HTTP, _ours("memory", SPOOL__DURABILITY="memory", over_http=True)),
    Line(MEMORY_STREAM, _ours("memory", SPOOL__DURABILITY="memory", streams=True), (16, 64, 256)),
    Line(FLOOR_STREAM, _floor(streams=True), (16, 64, 256)),
    Line(FLOOR_HTTP, _floor(over_http=True), (16, 64, 256)),
    Line(VARIED, _ours("memory", SPOOL__DURABILITY="memory", varied=True), (64, 1024)),
    Line(DISK, _ours("disk", SPOOL__DURABILITY="full")),
    Line(DISK_STREAM, _ours("disk", SPOOL__DURABILITY="full", streams=True), (64, 256)),
    Line(QUEUED, _on_disk, (64, 256, 1024), needs=peers.collector_program),
    Line(DISK_HTTP, _ours("disk", SPOOL__DURABILITY="full", over_http=True), (16, 64, 256)),
    Line(LOOKUP, _looking_up, (1024,), needs=peers.collector_program),
    Line(METADATA, lambda room: room.with_metadata(), (1024,), (1024,)),
    Line(PASSED, _metadata_passed, (1024,), (1024,), peers.collector_program),
    Line(GZIP, _ours("gzip", SPOOL__DURABILITY="memory", EXPORT__COMPRESSION="gzip"), (256, 1024)),
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


GOALS = (
    Goal("8,192 a request: Collector, no queue / ours, memory", DIRECT, (MEMORY,), 8192, 4),
    Goal("1,024 a request: Collector, no queue / ours, memory", DIRECT, (MEMORY,), 1024, 4),
    Goal("256 a request: Collector, no queue / ours, memory, gRPC", DIRECT, (MEMORY, MEMORY_STREAM), 256, 3),
    Goal("64 a request: Collector, no queue / ours, memory, gRPC", DIRECT, (MEMORY, MEMORY_STREAM), 64, 2),
    Goal("1,024 a request: Collector, disk queue / ours, disk", QUEUED, (DISK,), 1024, 10),
    Goal("256 a request: Collector, disk queue / ours, disk", QUEUED, (DISK, DISK_STREAM), 256, 8),
    Goal("64 a request: Collector, disk queue / ours, disk", QUEUED, (DISK, DISK_STREAM), 64, 5),
    Goal("1,024 a request: Collector, OTTL look-up / ours, memory", LOOKUP, (MEMORY,), 1024, 6),
    Goal("1,024 a request: rotel / ours, gzip out of both", ROTEL, (GZIP,), 1024, 4),
    Goal("256 a request: rotel / ours, gzip out of both", ROTEL, (GZIP,), 256, 3),
    Goal("stock SDK and exporter / ours at 1,024 a request, memory", SDK, (MEMORY,), 1024, 50),
    Goal("1,024 a request, 8 B of metadata an event: Collector, no queue / ours", PASSED, (METADATA,), 1024, 2),
    Goal("16 a request: Collector, no queue, gRPC / ours, HTTP/1.1", DIRECT, (MEMORY_HTTP,), 16, 3),
    Goal("64 a request: Collector, no queue, gRPC / ours, HTTP/1.1", DIRECT, (MEMORY_HTTP,), 64, 3),
)
"""What issue and design promise, in the order of the table in docs/performance.md."""
