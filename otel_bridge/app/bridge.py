"""
The bridge, wired.

Invariants
* Parts are built before any of them starts, so a fault in the settings is told before a port is open, and all faults at once.
* Start goes against the flow of data and stop along it: whoever takes something finds the next one working.

Start: data directory, registry, decoders, exporter, spool, pipeline, then the doors.
Stop:  1. health says NOT_SERVING, and balancers have `server.turn_away_s` to notice;  2. the doors close: nothing new comes in;
       3. the spool takes no more and the pipeline empties it, for at most `server.drain_s`; what is parked goes too, unless it
       can wait for the next start;  4. spool, exporter, decoders and registry close, which nobody uses any more;  5. own
       telemetry last: it has counted all that.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any

from otel_bridge import __version__
from otel_bridge.app.crew import Crew
from otel_bridge.app.data_dir import Claim
from otel_bridge.app.doors import Doors
from otel_bridge.app.egress import Egress
from otel_bridge.app.faults import Faults
from otel_bridge.app.readiness import OK, Readiness
from otel_bridge.app.storage import open_spool, take_over
from otel_bridge.app.watch import Recorder
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.errors import Unavailable
from otel_bridge.export.protocol import Exporter
from otel_bridge.mapping.quota import Quota
from otel_bridge.mapping.sqlite import open_registry
from otel_bridge.pipeline.missing import Missing, joined
from otel_bridge.spool.protocol import Outlet
from otel_bridge.telemetry.provider import OwnExport, Provider
from otel_bridge.telemetry.sums import summed
from otel_bridge.v1 import mapping_pb2
from otel_bridge.wire.entrance import open_entrance
from otel_bridge.wire.health import Condition
from otel_bridge.wire.mappings import Mappings

_log = logging.getLogger(__name__)


class Bridge:
    """
    One bridge. Build it before the event loop runs: it reads files, and waits for decoders to start.

    exporter   of the default destination, instead of the one that the settings describe; for demonstrations and tests
    crew       the other workers, where this is one of several

    Raises `ConfigError` where the settings cannot be obeyed.
    """

    def __init__(self, config: BridgeConfig, *, exporter: Exporter | None = None, crew: Crew | None = None) -> None:
        self._config = config
        crew = self._crew = crew or Crew()
        data_dir, home = config.server.data_dir, crew.home(config.server.data_dir)
        self._provider = Provider(version=__version__, export=_own_export(config))
        recorder = self._recorder = Recorder(self._provider.telemetry)
        faults = Faults()
        with faults.part():
            # Whoever has the directory opens what is in it: a copy of the registry may be about to take the file's place.
            # For a worker the supervisor has it.
            self._claim = Claim(data_dir) if data_dir is not None and crew.is_alone else None
            self.registry = open_registry(data_dir)
            take_over(config, crew.left_in(data_dir), recorder)
        has_directory = faults.are_none  # else what is in it would be told once more
        with faults.part():
            entrance = open_entrance(config, recorder.denied)
        self._egress = Egress(
            config, recorder, faults, home=home if has_directory else None, exporter=exporter, traces=self._provider.traces
        )
        faults.tell()
        self._spool = open_spool(config, recorder, home)  # last: what it holds is this process's to account for from now on
        self._egress.attach(self._spool, self.registry)
        self._readiness = Readiness(
            self.registry,
            self._spool,
            recorder,
            max_bytes=config.spool.max_bytes,
            needs_egress=config.server.ready_needs_egress,
            broken=self._egress.broken.is_set,
            others=None if crew.is_alone else self._conditions,
        )
        self._looking: asyncio.Task[None] | None = None
        self._doors = Doors(
            config,
            entrance,
            self._spool,
            registry=self.registry,
            mappings=Mappings(self.registry, self._all_missing, self._tell_uploaded, self._quota_of),
            recorder=recorder,
            ready=self._readiness.condition,
            metrics=self._metrics,
            traces=self._provider.traces,
            crew=crew,
        )
        self._watch_sizes()

    @property
    def grpc_address(self) -> str:
        """Where gRPC is listened for, once started."""
        return self._doors.grpc.address

    @property
    def http_address(self) -> str:
        """Where HTTP is listened for, once started."""
        return self._doors.http.address

    async def start(self) -> None:
        """Begin to work. Raises `ConfigError` where an address cannot be listened on; then nothing is left running."""
        self._egress.start()
        try:
            await self._doors.start()
        except BaseException:
            await self.stop()
            raise
        self._readiness.stage = OK
        await self._doors.grpc.tell(is_ready=True)
        self._looking = asyncio.create_task(self._readiness.run(self._doors.grpc.tell))

    async def wait_broken(self) -> None:
        """Return when the bridge cannot go on: its pipeline has failed, or has ended although nobody stopped it."""
        await self._egress.broken.wait()

    async def answer(self, question: str, argument: Any) -> Any:
        """What another worker asks (crew.py)."""
        match question:
            case "metrics":
                return self._provider.exposition()
            case "condition":
                return self._readiness.own_condition()
            case "missing":
                return self._missing(argument)
            case "uploaded":
                await self._note_uploaded()
            case "request":
                return await self._doors.repeats.answer_to(argument)
        return None

    async def stop(self) -> None:
        """Stop as the module says; events that do not leave in time stay in the spool, or are counted as dropped."""
        self._readiness.stage = "stopping"
        await self._doors.grpc.turn_away()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._egress.is_running:
            await asyncio.sleep(self._config.server.turn_away_s)
        await self._doors.stop()
        await self._egress.stop(self._config.server.drain_s)
        await self._finish_spool()
        await self._egress.close()
        self.registry.close()
        if self._claim is not None:
            self._claim.release()
        await asyncio.to_thread(self._provider.shutdown)

    async def _finish_spool(self) -> None:
        left = {name: outlet.events + outlet.parked_events for name, outlet in self._spool.outlets.items()}
        lost = await self._spool.finish()
        for name, events in lost.items():
            _log.error("%d events did not leave for %s within server.drain_s (%g s)", events, name, self._config.server.drain_s)
            self._recorder.dropped(name, events, "shutdown")
        for name, events in left.items():
            if events and not lost:
                _log.info("%d events stay in the spool for the next start (%s)", events, name)

    def _quota_of(self, tenant: str) -> Quota:
        quotas = self._config.tenants.of(tenant)
        return Quota(quotas.mappings, quotas.mapping_bytes)

    def _missing(self, tenant: str) -> list[Missing]:
        parked = self._spool.parked_events_of
        return [replace(each, parked_events=parked(each.awaited)) for each in self._egress.parking.missing(tenant)]

    async def _all_missing(self, tenant: str) -> list[mapping_pb2.MissingMapping]:
        lists = [self._missing(tenant), *await self._ask_others("missing", tenant)]
        return [
            mapping_pb2.MissingMapping(
                ref=str(each.awaited),
                devices=len(each.streams),
                first_seen_unix_ns=each.first_seen_ns,
                last_seen_unix_ns=each.last_seen_ns,
                parked_events=each.parked_events,
                passed_events=each.passed_events,
            )
            for each in joined(lists)
        ]

    async def _metrics(self) -> bytes:
        own = self._provider.exposition()
        others = await self._ask_others("metrics")
        return await asyncio.to_thread(summed, [own, *others]) if others else own

    async def _conditions(self) -> list[Condition]:
        return await self._ask_others("condition")

    async def _tell_uploaded(self) -> None:
        """Before the upload is answered: what comes after that resolves, whichever worker it reaches."""
        self._egress.parking.uploaded()
        try:
            await self._crew.ask_others("uploaded")
        except OSError as error:
            _log.warning("an upload was told to other workers, and not acknowledged; they see it within a second: %s", error)

    async def _note_uploaded(self) -> None:
        await asyncio.to_thread(self.registry.refresh)
        self._egress.parking.uploaded()

    async def _ask_others(self, question: str, argument: object = None) -> list[Any]:
        try:
            return await self._crew.ask_others(question, argument)
        except OSError as error:
            raise Unavailable(f"a worker of this bridge does not answer: {error}; try again", reason="worker_away") from error

    def _watch_sizes(self) -> None:
        watch, spool = self._provider.telemetry.watch, self._spool
        turnstile, http = self._doors.turnstile, self._doors.http
        watch("otel_bridge.receiver.inside_requests", lambda: turnstile.requests)
        watch("otel_bridge.receiver.inside_bytes", lambda: turnstile.size_bytes)
        watch("otel_bridge.receiver.waiting_requests", lambda: turnstile.waiting)
        watch("otel_bridge.receiver.open_connections", lambda: http.connections)
        watch("otel_bridge.ready", lambda: int(self._readiness.condition().is_ready))
        watch("otel_bridge.spool.size_bytes", lambda: spool.size_bytes)
        watch("otel_bridge.spool.capacity_bytes", lambda: self._config.spool.max_bytes)
        for outlet in spool.outlets.values():
            self._watch_outlet(outlet)

    def _watch_outlet(self, outlet: Outlet) -> None:
        watch, destination = partial(self._provider.telemetry.watch, destination=outlet.destination), outlet.destination
        watch("otel_bridge.dead_letters.size_bytes", lambda: self._egress.size_of_letters(destination))
        watch("otel_bridge.spool.size", lambda: outlet.events)
        watch("otel_bridge.parked_events", lambda: outlet.parked_events)
        watch("otel_bridge.parked_bytes", lambda: outlet.parked_bytes)
        watch("otel_bridge.unaccounted_events", lambda: outlet.unaccounted_events)


def _own_export(config: BridgeConfig) -> OwnExport | None:
    own = config.telemetry
    if not own.own_metrics and not own.own_traces_ratio:
        return None
    return OwnExport(
        own.own_endpoint,
        over_http=own.own_protocol == "http/protobuf",
        headers=own.own_headers,
        metrics=own.own_metrics,
        traces_ratio=own.own_traces_ratio,
    )
