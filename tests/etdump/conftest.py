"""Every law of the room `etdump` holds for both readers."""

from collections.abc import Callable

import pytest

from otel_bridge.etdump.read import read
from otel_bridge.etdump.reference import read_reference
from otel_bridge.etdump.result import ETDump
from otel_bridge.model.stream import Stream

STREAM = Stream(stream_id=bytes(range(16)))


@pytest.fixture(params=[read, read_reference])
def read_etdump(request: pytest.FixtureRequest) -> Callable[[bytes], ETDump]:
    """A reader, for a fixed stream."""
    reader: Callable[[bytes, Stream], ETDump] = request.param
    return lambda data: reader(data, STREAM)
