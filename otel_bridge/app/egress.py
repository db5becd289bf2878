"""
From the spool to the destinations: for each its exporter and pipeline; for all the stages, parking, and the tasks.

Invariants
* Destinations share what resolves, and nothing that waits: one that is slow, or away, holds no other up.
* A pipeline that ends although nobody stopped it breaks the bridge; nothing would leave any more.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path

from otel_bridge.app.faults import Faults
from otel_bridge.app.privacy import withheld_by
from otel_bridge.app.storage import open_dead_letters
from otel_bridge.app.watch import DestinationRecorder, Recorder
from otel_bridge.clock.converters import Converters
from otel_bridge.config.bridge import BridgeConfig, section_of
from otel_bridge.export.build import build_exporter
from otel_bridge.export.protocol import Exporter
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.registry import Registry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.destination import DEFAULT
from otel_bridge.pipeline.loop import Pipeline
from otel_bridge.pipeline.parking import Parking
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spool.protocol import Outlet, Spool
from otel_bridge.telemetry.traces import SILENT, Traces

_log = logging.getLogger(__name__)

_COMPILED_BYTES = 96 << 20


class _Way:
    """The way to one destination."""

    def __init__(
        self,
        config: BridgeConfig,
        destination: str,
        recorder: DestinationRecorder,
        exporter: Exporter | None,
        home: Path | None,
    ) -> None:
        self._config = config.exports[destination]
        self._recorder = recorder
        self.letters = open_dead_letters(config, home, destination, recorder)
        keep = self.letters.keep if self.letters is not None else None
        self.exporter = exporter or build_exporter(self._config, section=section_of(destination), watch=recorder, keep=keep)

    def pipeline(self, outlet: Outlet, stages: Stages, parking: Parking, traces: Traces) -> Pipeline:
        """What brings events here."""
        return Pipeline(
            outlet,
            stages,
            self.exporter,
            self._recorder,
            sift=partial(parking.sift, outlet),
            limit_bytes=self._config.max_request_bytes,
            linger_s=self._config.linger_ms / 1000,
            by_tenant=bool(self._config.tenant_header),
            traces=traces,
        )


class Egress:
    """
    The way out.

    faults          remembers where the settings cannot be obeyed; what had any is not to be used
    home            directory of dead letters, where the settings say that they are kept; None: they are not
    exporter        of the default destination, instead of the one that the settings describe
    traces          spans of the bridge's own
    """

    def __init__(
        self,
        config: BridgeConfig,
        recorder: Recorder,
        faults: Faults,
        *,
        home: Path | None,
        exporter: Exporter | None = None,
        traces: Traces = SILENT,
    ) -> None:
        self._config = config
        self._traces = traces
        self._recorder = recorder
        with faults.part():
            self._converters = Converters(config.clock.converters, watch=recorder.unconverted)
        with faults.part():
            self._decoders = Decoders(
                config.metadata.parsers,
                time_limit_s=config.metadata.time_limit_s,
                max_bytes=config.metadata.max_bytes,
                cache_bytes=config.metadata.cache_bytes,
                watch=recorder.undecoded,
            )
        self._ways: dict[str, _Way] = {}
        for name in config.exports:
            with faults.part():
                own = exporter if name == DEFAULT else None
                self._ways[name] = _Way(config, name, recorder.to(name), own, home)
        self.broken = asyncio.Event()
        self._pipelines: dict[str, Pipeline] = {}
        self._running: list[asyncio.Task[None]] = []
        self._reviewing: asyncio.Task[None] | None = None
        self._stopping = False

    def attach(self, spool: Spool, registry: Registry) -> None:
        """Take from this spool once started, and resolve with this registry."""
        mappings = CompiledMappings(registry, _COMPILED_BYTES)
        room = self._config.mapping.template_cache_bytes
        withhold = withheld_by(self._config)
        stages = Stages(mappings, self._decoders, room, self._converters, withhold, whole_faces=False)
        self.parking = Parking(spool, registry, mappings, self._recorder, policy=self._config.parking.policy)
        self._pipelines = {
            name: way.pipeline(spool.outlets[name], stages, self.parking, self._traces) for name, way in self._ways.items()
        }

    @property
    def is_running(self) -> bool:
        """Whether something leaves."""
        return any(not task.done() for task in self._running)

    def size_of_letters(self, destination: str) -> int | None:
        """Bytes of the dead letters of a destination; None where none are kept."""
        letters = self._ways[destination].letters
        return letters.size_bytes if letters is not None else None

    def start(self) -> None:
        """Begin to send."""
        self._running = [asyncio.create_task(pipeline.run(), name=name) for name, pipeline in self._pipelines.items()]
        for task in self._running:
            task.add_done_callback(self._note_end)
        self._reviewing = asyncio.create_task(self.parking.run())

    async def stop(self, drain_s: float) -> None:
        """Close the spool and send what is in it, for at most `drain_s` seconds."""
        self._stopping = True
        if self._reviewing is not None:
            self._reviewing.cancel()
            await asyncio.gather(self._reviewing, return_exceptions=True)
        self.parking.stop()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=drain_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def close(self) -> None:
        """Let go of exporters and decoders, which nobody uses any more."""
        for way in self._ways.values():
            await way.exporter.close()
        self._decoders.close()

    def _note_end(self, running: asyncio.Task[None]) -> None:
        if running.cancelled() or (self._stopping and running.exception() is None):
            return
        _log.critical(
            "the pipeline has ended, nothing leaves for %s any more", running.get_name(), exc_info=running.exception()
        )
        self.broken.set()
