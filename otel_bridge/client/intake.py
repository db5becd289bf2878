"""
The queue between the app's threads and the client's.

Invariants
* `offer` never waits for anything but this queue's own lock, which is held for a few additions, and never raises.
* It is bounded in bytes. What does not fit is dropped and counted, under the reason for which the queue is not emptied.
* In a child process that was forked it takes nothing and touches no lock: the parent sends what the parent recorded.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable

from otel_bridge.client.counters import Counters, Reason
from otel_bridge.client.recording import Recording
from otel_bridge.client.settings import ClientSettings


class Intake:
    """
    What was recorded and is in no request yet.

    wake   called when there is something to do: the first recording, or enough for a request
    """

    def __init__(self, settings: ClientSettings, counters: Counters, wake: Callable[[], None]) -> None:
        self.full_reason = Reason.QUEUE_FULL
        """Under which what does not fit is dropped; whoever empties the queue says why it cannot."""

        self._settings = settings
        self._counters = counters
        self._wake = wake
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._waiting: deque[Recording] = deque()
        self._bytes = self._events = 0
        self._since = 0.0
        self._is_closed = False

    @property
    def is_here(self) -> bool:
        """Whether this is the process that the queue was made in."""
        return os.getpid() == self._pid

    @property
    def events(self) -> int:
        """Events that wait."""
        return self._events

    def offer(self, recording: Recording) -> bool:
        """Take a recording; False: it was dropped."""
        if not self.is_here:
            return False
        self._counters.record(recording.events)
        with self._lock:
            reason = Reason.CLOSED if self._is_closed else ""
            if not reason and self._bytes + recording.nbytes > self._settings.queue_bytes:
                reason = self.full_reason
            if not reason:
                is_first = not self._waiting
                if is_first:
                    self._since = time.monotonic()
                self._waiting.append(recording)
                self._bytes += recording.nbytes
                self._events += recording.events
                wakes = is_first or self._is_batch()
        if reason:
            self._counters.drop(recording.events, reason)
            return False
        if wakes:
            self._wake()
        return True

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._is_closed = True

    def due_in_s(self) -> float | None:
        """How long until what waits should become requests; None: nothing waits."""
        with self._lock:
            if not self._waiting:
                return None
            if self._is_batch():
                return 0.0
            return max(0.0, self._since + self._settings.batch_age_s - time.monotonic())

    def take(self) -> list[Recording]:
        """As much as a request should hold, in order, but at least one recording."""
        with self._lock:
            taken: list[Recording] = []
            events = nbytes = 0
            while self._waiting and events < self._settings.batch_events and nbytes < self._settings.batch_bytes:
                taken.append(self._waiting.popleft())
                events += taken[-1].events
                nbytes += taken[-1].nbytes
            self._events -= events
            self._bytes -= nbytes
        return taken

    def _is_batch(self) -> bool:
        return self._events >= self._settings.batch_events or self._bytes >= self._settings.batch_bytes
