"""
A bridge of its own, a handful of devices, and what a back end would get: for a first look.

The captures are real ones of ExecuTorch 1.5.1, with mappings built from their ETRecords by `otel-bridge mapping build`; the
devices are made up. Everything goes the way it goes in production: mappings by `PutMapping`, events by `ExportEvents`.
"""

import asyncio
import hashlib
import time
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import cast

import grpc

from otel_bridge.app.bridge import Bridge
from otel_bridge.config.load import load
from otel_bridge.etdump.read import read
from otel_bridge.export.protocol import Sent
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc, profiling_pb2_grpc
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.intake import SENT_KEY

_CAPTURES = files("otel_bridge.app") / "captures"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that runs one model: the capture it plays, and what it says of itself."""

    capture: str
    app: str
    hardware: str


DEVICES = (
    Device("toy_backend_int", "camera", "Phone A"),
    Device("two_backends", "camera", "Phone B"),
    Device("multi_method", "keyboard", "Phone B"),
    Device("xnn_mobile", "gallery", "Tablet C"),
)


_OPEN = {
    "server.tls_certificate": "",
    "server.tls_key": "",
    "server.tls_client_ca": "",
    "auth.enabled": False,
    "auth.tokens_file": "",
    "auth.certificates": {},
}
"""Doors on loopback for this process alone, also where variables close those of the machine's bridge."""


class Kept:
    """An `Exporter` that keeps what it is given."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
        """Keep a payload."""
        self.payloads.append(payload)
        return Sent()

    async def close(self) -> None:
        """Nothing to let go of."""


def play(data_dir: Path, otlp_endpoint: str | None) -> tuple[int, list[bytes]]:
    """
    Run the demonstration: how many events the devices sent, and the payloads that came out.

    With `otlp_endpoint` the spans go there, and no payloads are returned. Raises `ConfigError`, `grpc.RpcError`.
    """
    settings = load(
        None,
        {
            "server.grpc_address": "127.0.0.1:0",
            "server.http_address": "127.0.0.1:0",
            "server.data_dir": str(data_dir),
            "export.endpoint": otlp_endpoint,
            **_OPEN,
        },
    )
    kept = Kept()
    bridge = Bridge(settings, exporter=None if otlp_endpoint else kept)
    return asyncio.run(_run(bridge)), kept.payloads


async def _run(bridge: Bridge) -> int:
    await bridge.start()
    try:
        async with grpc.aio.insecure_channel(bridge.grpc_address) as channel:
            return await _drive(channel)
    finally:
        await bridge.stop()


async def _drive(channel: grpc.aio.Channel) -> int:
    # The generated stubs serve both kinds of channel; only their type for the asynchronous one has another name.
    mappings = cast("mapping_pb2_grpc.MappingServiceAsyncStub", mapping_pb2_grpc.MappingServiceStub(channel))
    profiling = cast("profiling_pb2_grpc.ProfilingServiceAsyncStub", profiling_pb2_grpc.ProfilingServiceStub(channel))
    for capture in sorted({device.capture for device in DEVICES}):
        file = read_source((_CAPTURES / f"{capture}.json").read_bytes())
        await mappings.PutMapping(mapping_pb2.PutMappingRequest(file=file))
    events = 0
    for device in DEVICES:
        batch = _events_of(device)
        answer = await profiling.ExportEvents(request_of(batch), metadata=((SENT_KEY, str(time.time_ns())),))
        events += answer.accepted
    return events


def _events_of(device: Device) -> EventBatch:
    """The capture as this device would stream it: its last event ends now, by its own clock."""
    stream = Stream(
        stream_id=hashlib.blake2b(f"{device} {time.time_ns()}".encode(), digest_size=16).digest(),
        model=ModelRef(device.capture, "1"),
        resource=(("service.name", device.app), ("device.model.identifier", device.hardware)),
        runtime_version="1.5.1",
    )
    batch = read((_CAPTURES / f"{device.capture}.etdp").read_bytes(), stream).batch
    last_tick = int((batch.start + batch.duration)[batch.kind != 4].max())  # noqa: PLR2004 - DELEGATE, whose clock may differ
    clock = Clock(anchor=Anchor(last_tick, time.time_ns()))
    return replace(batch, streams=(replace(stream, clocks=(clock,)),))
