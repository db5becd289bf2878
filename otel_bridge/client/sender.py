"""
The client's thread: from the queue to requests, and from requests to the bridge.

Invariants
* One thread does everything that may wait: encoding, the disk, the network. One request is under way at a time, the oldest.
* It survives whatever an answer, a recording or a disk brings: a step that fails is logged and costs what it was about.
* A request ends once: accepted, given up, or divided; else it is sent again, with the waits of `RetryPolicy`.
* It stops when it is told to; what is on disk by then stays there.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import grpc

from otel_bridge.client.connection import TOO_LARGE, Connection, Export
from otel_bridge.client.counters import Counters, Reason
from otel_bridge.client.fitting import Limits
from otel_bridge.client.intake import Intake
from otel_bridge.client.outbox import Identity
from otel_bridge.client.sealing import Sealed, divide_sealed, seal, seal_report
from otel_bridge.client.settings import ClientSettings
from otel_bridge.client.store import Store
from otel_bridge.client.stream import EventStream
from otel_bridge.errors import BridgeRefused, BridgeUnavailable
from otel_bridge.export.retry import RetryPolicy

_log = logging.getLogger(__name__)

_LONGEST_TOLD_S = 600.0  # a bridge that asks for years is asked again
_FLOOR_BYTES = 1_024
_GROWTH = 1 + 1 / 64
_IDLE_S = 10.0


@dataclass(slots=True)
class _Attempt:
    sealed: Sealed
    answer: Export


@dataclass(slots=True)
class _Flush:
    """Somebody waits until what was recorded before has ended."""

    done: "Future[bool]" = field(default_factory=Future)
    waits_for: set[Identity] | None = None


class Sender:
    """Everything behind the queue `intake`."""

    def __init__(self, connection: Connection, settings: ClientSettings, counters: Counters) -> None:
        self.intake = Intake(settings, counters, self.wake)
        self._connection = connection
        self._settings = settings
        self._counters = counters
        self._store = Store(settings, counters)
        self._limits = Limits(settings.request_bytes, settings.batch_events)
        self._policy = RetryPolicy(settings.retry_initial_s, settings.retry_max_s)
        self._wake = threading.Event()
        self._streams = WeakValueDictionary[bytes, EventStream]()
        self._last_stream: EventStream | None = None
        self._sealing_events = 0
        self._flushes: list[_Flush] = []
        self._flush_lock = threading.Lock()
        self._is_over = False
        self._attempt: _Attempt | None = None
        self._failures = 0
        self._not_before = 0.0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="otel-bridge-client", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Events that have not ended."""
        return self.intake.events + self._sealing_events + self._store.events

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def flush(self) -> "Future[bool]":
        """Done, and true, once all that was recorded before has ended; false: the sender stopped before."""
        flush = _Flush()
        flush.done.set_running_or_notify_cancel()  # from now on nobody can cancel it: others may wait for the same
        with self._flush_lock:
            if self._is_over:
                flush.done.set_result(False)
            else:
                self._flushes.append(flush)
        self._wake.set()
        return flush.done

    def stop(self, timeout_s: float) -> None:
        """End the thread; what is under way is cancelled, and stays where it is kept."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(self._idle_s())
            self._wake.clear()
            try:
                self._step()
            except Exception:  # noqa: BLE001 - without this thread all that follows would be lost
                _log.exception("a step of the client failed")
                self._not_before = time.monotonic() + self._policy.initial_s
        try:
            self._finish()
        except Exception:  # noqa: BLE001 - the process ends, and must not by us
            _log.exception("the client could not be closed")

    def _idle_s(self) -> float:
        """How long nothing is to be done, if nobody wakes the thread."""
        waits = [_IDLE_S]
        due = self.intake.due_in_s()
        if due is not None and self._store.full_reason is None:
            waits.append(due)
        if self._attempt is None and not self._store.is_empty:
            waits.append(max(0.0, self._not_before - time.monotonic()))
        return min(waits)

    def _step(self) -> None:
        self._store.tend()
        if self._attempt is not None and self._attempt.answer.done():
            attempt, self._attempt = self._attempt, None
            self._settle(attempt)
        flushes = [flush for flush in self._flushes if flush.waits_for is None]
        if self._make_requests(is_urgent=bool(flushes)):
            for flush in flushes:
                flush.waits_for = self._store.identities()
        if self._attempt is None and time.monotonic() >= self._not_before:
            self._begin()
        self._end_flushes()

    def _make_requests(self, *, is_urgent: bool) -> bool:
        """Requests of what is due, or of all that is there; whether nothing is left that should be in one."""
        while True:
            full = self._store.full_reason
            self.intake.full_reason = full or Reason.QUEUE_FULL
            due = self.intake.due_in_s()
            if due is None or (due > 0 and not is_urgent):
                break
            if full:
                return False
            self._make_request()
        if is_urgent and self._last_stream is not None and self._counters.has_untold and not full:
            self._store.put([seal_report(self._last_stream, self._counters.take_untold())])
        return True

    def _make_request(self) -> None:
        recordings = self.intake.take()
        told = self._counters.take_untold()
        self._sealing_events = sum(each.events for each in recordings)
        sealed: list[Sealed] = []
        try:
            for each in recordings:
                self._last_stream = self._streams[each.stream.stream_id] = each.stream
            sealed = seal(recordings, self._limits, told, self._counters.drop)
            self._store.put(sealed)
        except Exception:
            self._counters.drop(self._sealing_events, Reason.UNREADABLE)
            raise
        finally:
            self._sealing_events = 0
            if not sealed:
                self._counters.give_back(told)

    def _begin(self) -> None:
        found = self._store.first()
        if found is None:
            return
        answer = self._connection.begin_export(found.body, timeout_s=self._settings.timeout_s)
        self._attempt = _Attempt(found, answer)
        answer.add_done_callback(lambda _answer: self._wake.set())

    def _settle(self, attempt: _Attempt) -> None:
        """What an answer means for its request."""
        try:
            answer = attempt.answer.result()
        except grpc.RpcError as error:
            failure = self._connection.failure(error)
            if isinstance(failure, BridgeUnavailable):
                self._wait(failure)
            else:
                self._give_up(attempt, failure)
            return
        except grpc.FutureCancelledError:  # by `stop`
            return
        self._store.remove()
        self._counters.accept(answer.accepted, {each.reason: each.events for each in answer.rejected})
        if answer.first_rejection:
            _log.warning("the bridge did not take all: %s", answer.first_rejection)
        if self._failures:
            _log.info("the bridge answers again")
        self._failures = 0
        grown = self._limits.max_bytes * _GROWTH  # a limit that was learnt may have been of a moment
        self._limits = replace(self._limits, max_bytes=min(self._settings.request_bytes, int(grown) + 1))

    def _wait(self, failure: BridgeUnavailable) -> None:
        if not self._failures:
            _log.warning("%s; requests are kept and sent again", failure)
        wait = min(self._policy.wait_s(self._failures, failure.retry_after_s), _LONGEST_TOLD_S)
        self._not_before = time.monotonic() + wait
        self._failures += 1

    def _give_up(self, attempt: _Attempt, failure: BridgeRefused) -> None:
        """A request that the bridge will not take as it is: in smaller ones if it is too large, else not at all."""
        sealed, smaller = attempt.sealed, None
        is_too_large = failure.reason == TOO_LARGE
        if is_too_large and len(sealed.body) > _FLOOR_BYTES:
            limit = max(_FLOOR_BYTES, len(sealed.body) // 2)
            self._limits = replace(self._limits, max_bytes=min(self._limits.max_bytes, limit))
            smaller = divide_sealed(
                sealed, replace(self._limits, max_bytes=limit), self._sequences(sealed), self._counters.drop
            )
        self._store.remove(smaller or ())
        if smaller is None:
            _log.warning("%s; %d events are given up", failure, sealed.events)
            self._counters.drop(sealed.events, Reason.TOO_LARGE if is_too_large else Reason.REFUSED)
        if not smaller:
            self._counters.give_back(sealed.told)
            return
        for flush in self._flushes:
            if flush.waits_for is not None and (sealed.stream_id, sealed.sequence) in flush.waits_for:
                flush.waits_for |= {(each.stream_id, each.sequence) for each in smaller}

    def _sequences(self, sealed: Sealed) -> Callable[[int], int]:
        """Who gives out sequence numbers of the request's stream; one of an earlier process has only those in the buffer."""
        stream = self._streams.get(sealed.stream_id)
        return stream.take_sequences if stream is not None else lambda _: self._store.last_sequence(sealed.stream_id) + 1

    def _end_flushes(self) -> None:
        if not self._flushes:
            return
        present = self._store.identities()
        for flush in list(self._flushes):
            if flush.waits_for is not None and not flush.waits_for & present:
                self._flushes.remove(flush)
                flush.done.set_result(True)

    def _finish(self) -> None:
        """The end of the thread."""
        self.intake.close()
        if self._attempt is not None:
            self._attempt.answer.cancel()  # type: ignore[no-untyped-call]  # grpc-stubs leaves it so
        try:
            while self.intake.due_in_s() is not None:
                self._make_request()
        finally:
            self._store.close()
            self._connection.close()
            with self._flush_lock:
                self._is_over = True
            for flush in self._flushes:
                flush.done.set_result(False)
