"""Calls of a running bridge."""

import pytest

from otel_bridge.cli.remote import patiently
from otel_bridge.errors import BridgeUnavailable


def test_patience_has_an_end() -> None:
    """A bridge that asks for patience gets it five times, a minute at the longest each, whatever it asks for."""
    waits: list[float] = []

    def call() -> None:
        raise BridgeUnavailable("full", retry_after_s=(2.0, 1e9)[len(waits) % 2])

    with pytest.raises(BridgeUnavailable):
        patiently(call, waits.append)
    assert waits == [2.0, 60.0, 2.0, 60.0, 2.0]
