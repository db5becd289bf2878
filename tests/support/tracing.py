"""Recording through an `EventTracer` into a bridge of the test, and what arrives."""

from collections.abc import Callable
from dataclasses import replace

from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK

from otel_bridge.client import (
    BridgeClient,
    ClientSettings,
    EventTracer,
)
from otel_bridge.v1 import profiling_pb2 as pb

Record = Callable[[EventTracer], object]


def sent(
    bridge: FaultyBridge, record: Record, *, client_settings: ClientSettings = QUICK, **tracer: object
) -> pb.ExportEventsRequest:
    """The request in which what `record` does arrives; a request is not made before it is over."""
    patient = replace(client_settings, batch_age_s=60.0)
    with BridgeClient(bridge.address, settings=patient) as client:
        tracing = EventTracer(client, **tracer)
        record(tracing)
        tracing.close()
        assert client.flush(90)
        assert client.stats.dropped == {}
    return bridge.taken[-1]


class Ticks:
    """A tick counter that tests move."""

    def __init__(self, *ticks: int) -> None:
        self.ticks = list(ticks)

    def __call__(self) -> int:
        """The next tick; the last one again and again."""
        return self.ticks.pop(0) if len(self.ticks) > 1 else self.ticks[0]
