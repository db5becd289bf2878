"""
ETDumps resolved without a server: the same admission and the same stages, in one process.

Invariant: the spans of a file are those that a running bridge would make of the same request.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from otel_bridge.clock.converters import Converters
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.admission import Admitted, Receipt, Rules, admit_etdump

_TEMPLATE_BYTES = 64 << 20

EVERYTHING = Rules(lambda _key: True, lambda _key: True, max_clock_error_ns=2**63, earliest_ns=0)
"""Nothing is held back from the person whose own files these are, and no clock but theirs is asked."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One file: what was admitted of it, and the same resolved."""

    admitted: Admitted
    scene: Scene


class Offline:
    """
    Resolves ETDumps with one mapping, or without any (all delegate events are then `no_mapping`).

    parsers        "[BACKEND=]module:function" or a built-in decoder, each; of two for one backend the last
    time_limit_s   how long one call of a decoder may take
    converters     "[BACKEND=]module:function[@UNIT]", each; see clock/converters.py

    Raises `ConfigError`.
    """

    def __init__(
        self,
        mapping: mapping_pb2.MappingFile | None,
        parsers: Sequence[str] = (),
        time_limit_s: float = 1.0,
        converters: Sequence[str] = (),
    ) -> None:
        read_times = Converters(converters)
        registry = MemoryRegistry()
        self.build = registry.put("", mapping).build_id if mapping is not None else None
        self._decoders = Decoders(parsers, time_limit_s=time_limit_s)
        self._stages = Stages(CompiledMappings(registry, 1), self._decoders, _TEMPLATE_BYTES, read_times)

    def replay(self, request: profiling_pb2.UploadETDumpRequest, *, received_ns: int | None = None) -> Replayed:
        """
        The spans of one file; `received_ns` is now where it is not given.

        Raises `MalformedRequest`, `MalformedETDump`.
        """
        if self.build is not None:
            request.stream.model.build_id = self.build.encode()
        receipt = Receipt(time.time_ns() if received_ns is None else received_ns)
        admitted = admit_etdump(request, receipt, EVERYTHING, lambda _name, _version: None)
        return Replayed(admitted, self._stages.run(admitted.batch))

    def close(self) -> None:
        """End the decoders' processes."""
        self._decoders.close()
