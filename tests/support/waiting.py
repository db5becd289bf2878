"""Waiting for what nothing tells of, in a thread: generously, since a busy machine is no fault of what is tested."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, patience_s: float = 30.0) -> None:
    """Return once the condition holds. AssertionError where it does not come to hold."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about within {patience_s:g} s"
        time.sleep(0.005)
