"""What parks events: a spool with its lot, a registry, and the sieve between, without a pipeline."""

from collections import Counter
from dataclasses import replace

from support.mappings import mapping_of
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime
from support.spools import ROOMY, emitted, outlet_of

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.registry import Registry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import ModelRef
from otel_bridge.pipeline.parking import Parking, Policy
from otel_bridge.pipeline.stages import Stages, count_by_status
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Record
from otel_bridge.v1 import mapping_pb2 as pb


class Books:
    """A ledger that remembers."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.waiting = 0
        self.gone: Counter[str] = Counter()

    def parked(self, destination: str, events: int) -> None:  # noqa: ARG002 - as the protocol says
        """Events began to wait."""
        self.waiting += events

    def unparked(self, destination: str, events: int, reason: str) -> None:  # noqa: ARG002 - as the protocol says
        """Events go on."""
        self.gone[reason] += events


class Yard:
    """A spool with its lot, a registry, and what came through, with a clock that the test moves."""

    def __init__(self, limits: LotLimits = ROOMY, policy: Policy = "park", registry: Registry | None = None) -> None:
        """Empty."""
        self.time_s = 0.0
        self.books = Books()
        self.registry: Registry = registry or MemoryRegistry()
        mappings = CompiledMappings(self.registry, 1 << 20)
        self.spool = MemorySpool(10**9, limits, now_s=lambda: self.time_s)
        self.outlet = outlet_of(self.spool)
        self.parking = Parking(
            self.spool, self.registry, mappings, self.books, policy=policy, now_ns=lambda: int(self.time_s * 1e9)
        )
        self.stages = Stages(mappings, Decoders(), 1 << 20)
        self.statuses: Counter[str] = Counter()
        self.positions: list[int] = []

    def now_ns(self) -> int:
        """The same clock, as a wall clock."""
        return int(self.time_s * 1e9)

    async def drain(self) -> None:
        """Take everything that waits in line as far as it goes."""
        while self.outlet.events:
            going = await self.sift()
            for record in going:
                self._resolve(record)
            await self.outlet.done(going, emitted(going))

    async def sift(self) -> list[Record]:
        """Read, and keep back what must wait."""
        return await self.parking.sift(self.outlet, await self.outlet.read(1000))

    def _resolve(self, record: Record) -> None:
        self.positions += [block.position for block in record.batch.blocks]
        for (status, _), events in count_by_status(self.stages.run(record.batch)).items():
            self.statuses[status] += events


def parked_batch(position: int, *, build: str | None = None, alias: str = "", events: int = 1, device: int = 0) -> EventBatch:
    """An inference of a build, or of what an alias will name, with so many delegate events."""
    stream = replace(STREAM, stream_id=bytes([device + 1]) * 16, build=build, model=ModelRef(alias or None, "1"))
    inside = [delegated(1, 0, n, n + 1) for n in range(events)]
    return batch_of(
        (execute(position), [*inside, call("DELEGATE_CALL", 0, 0, 99), runtime("Method::execute", 0, 100)]), stream=stream
    )


def toy_file(build: str, name: str = "") -> pb.MappingFile:
    """A mapping that knows identifier 1."""
    return pb.MappingFile(mapping=mapping_of({1: [1]}), build_id=build, name=name, version="1" if name else "")
