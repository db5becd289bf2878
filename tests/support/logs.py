"""The bridge's own set-up of logging, in a test's process."""

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

from otel_bridge.telemetry import logs


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Put logging back as it was."""
    root, bridge = logging.getLogger(), logging.getLogger("otel_bridge")
    before = root.handlers[:], root.level, bridge.level
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for handler in set(root.handlers) - set(before[0]):
            handler.close()
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        bridge.setLevel(before[2])


@contextlib.contextmanager
def logged(**settings: Any) -> Iterator[io.StringIO]:
    """What `logs.configure` writes with these settings; whole once the block is left."""
    stream = io.StringIO()
    with unchanged():
        logs.configure(stream=stream, **settings)
        yield stream
