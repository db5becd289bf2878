"""The Python client of a bridge: what an app, a test bench or an export script uses."""

from otel_bridge.client.client import AsyncBridgeClient, BridgeClient
from otel_bridge.client.connection import Connection
from otel_bridge.client.counters import ClientStats, Reason
from otel_bridge.client.drains import NothingToDrain
from otel_bridge.client.entry import (
    EventTracerEntry,
    MisusedTracer,
    NoEventBlock,
    WrongEntry,
    WrongIdentifier,
    WrongValue,
)
from otel_bridge.client.program import NotProfiled, ProfiledProgram, profile_program
from otel_bridge.client.settings import ClientSettings
from otel_bridge.client.tracer import EventTracer
from otel_bridge.export.retry import RetryPolicy

__all__ = [
    "AsyncBridgeClient",
    "BridgeClient",
    "ClientSettings",
    "ClientStats",
    "Connection",
    "EventTracer",
    "EventTracerEntry",
    "MisusedTracer",
    "NoEventBlock",
    "NotProfiled",
    "NothingToDrain",
    "ProfiledProgram",
    "Reason",
    "RetryPolicy",
    "WrongEntry",
    "WrongIdentifier",
    "WrongValue",
    "profile_program",
]
