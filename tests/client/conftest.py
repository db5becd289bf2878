"""What the tests of the client share."""

from collections.abc import Iterator

import pytest
from support.faulty_bridge import FaultyBridge


@pytest.fixture
def bridge() -> Iterator[FaultyBridge]:
    """A bridge that takes all, until a test tells it otherwise."""
    with FaultyBridge() as running:
        yield running
