"""
The bridge, wired.

Invariants
* Parts are built before any of them starts, so a fault in the settings is told before a port is open.
* Start goes against the flow of data and stop along it: whoever takes something finds the next one working.

Start: registry, data directory, decoders, exporter, spool, pipeline, then the doors.
Stop:  1. health says NOT_SERVING, so that balancers turn away;  2. the doors close: nothing new comes in;  3. the spool takes
       no more and the pipeline empties it, for at most `server.drain_s`; what is parked goes too, unless it can wait for the
       next start;  4. spool, exporter, decoders and registry close, which nobody uses any more;  5. own telemetry last: it has
       counted all that.
"""

import asyncio
import logging

from otel_bridge import __version__
from otel_bridge.app.data_dir import Claim
from otel_bridge.app.watch import Recorder
from otel_bridge.clock.converters import Converters
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.keys import allow
from otel_bridge.export.build import build_exporter
from otel_bridge.export.dead_letters import DIRECTORY, DeadLetters
from otel_bridge.export.protocol import Exporter
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.sqlite import open_registry
from otel_bridge.metadata.table import Decoders
from otel_bridge.pipeline.loop import Pipeline
from otel_bridge.pipeline.parking import Parking
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Spool
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool
from otel_bridge.spool.writer import RESERVE_BYTES
from otel_bridge.telemetry.provider import OwnExport, Provider
from otel_bridge.v1 import mapping_pb2
from otel_bridge.wire.admission import Rules
from otel_bridge.wire.entrance import open_entrance
from otel_bridge.wire.guard import GrpcGuard
from otel_bridge.wire.http import http_app
from otel_bridge.wire.intake import Intake
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.server import GrpcDoor, HttpDoor
from otel_bridge.wire.servicers import mapping_handler, profiling_handler

_log = logging.getLogger(__name__)

_TENANT = ""
_COMPILED_BYTES = 256 << 20


class Bridge:
    """
    One bridge. Build it before the event loop runs: it reads files, and waits for decoders to start.

    exporter   instead of the one that the settings describe; for demonstrations and tests

    Raises `ConfigError` where the settings cannot be obeyed.
    """

    def __init__(self, config: BridgeConfig, *, exporter: Exporter | None = None) -> None:
        self._config = config
        self._provider = Provider(version=__version__, export=_own_export(config))
        telemetry = self._provider.telemetry
        recorder = self._recorder = Recorder(telemetry)
        entrance = self._entrance = open_entrance(config.server, config.auth, recorder.denied)
        self.registry = open_registry(config.server.data_dir)
        self._claim = Claim(config.server.data_dir) if config.server.data_dir is not None else None
        converters = Converters(config.clock.converters, watch=recorder.unconverted)
        self._decoders = Decoders(
            config.metadata.parsers,
            time_limit_s=config.metadata.time_limit_s,
            max_bytes=config.metadata.max_bytes,
            cache_bytes=config.metadata.cache_bytes,
            watch=recorder.undecoded,
        )
        letters = _dead_letters(config, recorder)
        keep = letters.keep if letters is not None else None
        self._exporter = exporter or build_exporter(config.export, watch=recorder, keep=keep)
        self._spool = _spool(config, recorder)
        mappings = CompiledMappings(self.registry, _COMPILED_BYTES)
        stages = Stages(mappings, self._decoders, config.mapping.template_cache_bytes, converters)
        policy = config.parking.policy
        self._parking = Parking(self._spool, self.registry, mappings, recorder, policy=policy)
        export = config.export
        self._pipeline = Pipeline(
            self._spool,
            stages,
            self._exporter,
            recorder,
            sift=self._parking.sift,
            limit_bytes=export.max_request_bytes,
            linger_s=export.linger_ms / 1000,
        )
        rules = Rules(
            allow(config.admission.resource_keys),
            allow(config.admission.inference_keys),
            int(config.admission.max_clock_error_s * 1e9),
        )
        intake = Intake(self._spool, rules, lambda name, version: self.registry.build_of(_TENANT, name, version), recorder)
        limit = config.server.max_request_bytes

        served = Mappings(self.registry, self._missing, self._parking.uploaded)

        def count_grpc(outcome: str) -> None:
            recorder.request("grpc", outcome)

        handlers = (
            profiling_handler(intake, count_grpc),
            mapping_handler(served, count_grpc),
        )
        guards = [GrpcGuard(entrance.gate, count_grpc)] if entrance.gate is not None else []
        self._grpc = GrpcDoor(handlers, limit, entrance.tls, guards)
        self._http = HttpDoor(
            http_app(
                intake,
                served,
                max_request_bytes=limit,
                read_timeout_s=config.server.read_timeout_s,
                ready=lambda: self._ready,
                metrics=self._provider.exposition,
                count=lambda outcome: recorder.request("http", outcome),
                gate=entrance.gate,
            ),
            config.server.drain_s,
            entrance.tls,
        )
        telemetry.watch("otel_bridge.dead_letters.size_bytes", lambda: letters.size_bytes if letters is not None else None)
        telemetry.watch("otel_bridge.spool.events", lambda: self._spool.events)
        telemetry.watch("otel_bridge.spool.size_bytes", lambda: self._spool.size_bytes)
        telemetry.watch("otel_bridge.spool.capacity_bytes", lambda: config.spool.max_bytes)
        telemetry.watch("otel_bridge.spool.parked_events", lambda: self._spool.parked_events)
        telemetry.watch("otel_bridge.spool.parked_bytes", lambda: self._spool.parked_bytes)
        self._running: asyncio.Task[None] | None = None
        self._reviewing: asyncio.Task[None] | None = None
        self._ready = self._stopping = False
        self._broken = asyncio.Event()

    @property
    def grpc_address(self) -> str:
        """Where gRPC is listened for, once started."""
        return self._grpc.address

    @property
    def http_address(self) -> str:
        """Where HTTP is listened for, once started."""
        return self._http.address

    def _missing(self) -> list[mapping_pb2.MissingMapping]:
        return [
            mapping_pb2.MissingMapping(
                ref=str(each.awaited),
                devices=len(each.streams),
                first_seen_unix_ns=each.first_seen_ns,
                last_seen_unix_ns=each.last_seen_ns,
                parked_events=self._spool.parked_events_of(each.awaited),
                passed_events=each.passed_events,
            )
            for each in self._parking.missing()
        ]

    async def start(self) -> None:
        """Begin to work. Raises `ConfigError` where an address cannot be listened on; then nothing is left running."""
        self._running = asyncio.create_task(self._pipeline.run())
        self._running.add_done_callback(self._note_end)
        self._reviewing = asyncio.create_task(self._parking.run())
        self._entrance.start()
        try:
            self._http.bind(self._config.server.http_address)
            self._grpc.bind(self._config.server.grpc_address)
            await self._http.start()
            await self._grpc.start()
        except BaseException:
            await self.stop()
            raise
        self._ready = not self._broken.is_set()  # a damaged spool may have ended the pipeline meanwhile

    async def wait_broken(self) -> None:
        """Return when the bridge cannot go on: its pipeline has failed, or has ended although nobody stopped it."""
        await self._broken.wait()

    def _note_end(self, running: asyncio.Task[None]) -> None:
        if running.cancelled() or (self._stopping and running.exception() is None):
            return
        self._ready = False
        _log.critical("the pipeline has ended, nothing leaves any more", exc_info=running.exception())
        self._broken.set()

    async def stop(self) -> None:
        """Stop as the module says; events that do not leave in time stay in the spool, or are counted as dropped."""
        self._ready, self._stopping = False, True
        await self._grpc.turn_away()
        if self._running is not None and not self._running.done():
            await asyncio.sleep(self._config.server.turn_away_s)
        await asyncio.gather(self._grpc.stop(self._config.server.drain_s), self._http.stop())
        await self._entrance.stop()
        if self._reviewing is not None:
            self._reviewing.cancel()
            await asyncio.gather(self._reviewing, return_exceptions=True)
        self._parking.stop()
        if self._running is not None:
            _, late = await asyncio.wait([self._running], timeout=self._config.server.drain_s)
            for task in late:
                task.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._finish_spool()
        await self._exporter.close()
        self._decoders.close()
        self.registry.close()
        if self._claim is not None:
            self._claim.release()
        await asyncio.to_thread(self._provider.shutdown)

    async def _finish_spool(self) -> None:
        left, lost = self._spool.events + self._spool.parked_events, await self._spool.finish()
        if lost:
            _log.error("%d events did not leave within server.drain_s (%g s)", lost, self._config.server.drain_s)
            self._recorder.dropped(lost, "shutdown")
        elif left:
            _log.info("%d events stay in the spool for the next start", left)


def _spool(config: BridgeConfig, watch: Recorder) -> Spool:
    given, directory = config.spool, config.server.data_dir
    if directory is None or given.durability == "memory":
        return MemorySpool(given.max_bytes, _lot_limits(config))
    bounds = Bounds(given.max_bytes, given.memory_bytes, given.max_age_s)
    return SqliteSpool(
        directory, bounds, _lot_limits(config), watch, synchronous="FULL" if given.durability == "full" else "NORMAL"
    )


def _dead_letters(config: BridgeConfig, recorder: Recorder) -> DeadLetters | None:
    directory = config.server.data_dir
    if directory is None or not config.export.dead_letter_bytes:
        return None
    return DeadLetters(directory / DIRECTORY, config.export.dead_letter_bytes, recorder, reserve_bytes=RESERVE_BYTES)


def _lot_limits(config: BridgeConfig) -> LotLimits:
    parking = config.parking
    return LotLimits(
        max_age_s=parking.max_age_s,
        max_bytes=parking.max_bytes,
        max_events=parking.max_events,
        max_bytes_per_build=parking.max_bytes_per_build,
        max_events_per_build=parking.max_events_per_build,
    )


def _own_export(config: BridgeConfig) -> OwnExport | None:
    own = config.telemetry
    return OwnExport(own.own_endpoint) if own.own_metrics else None
