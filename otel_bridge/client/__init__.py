"""The Python client of a bridge: what an app, a test bench or an export script uses."""

from otel_bridge.client.connection import Connection

__all__ = ["Connection"]
