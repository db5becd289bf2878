"""
Load: so many events, by so many senders at once, and what became of them.

Invariants
* Each request is sent until it is accepted; a refusal is waited out as long as the bridge asks for.
* events = accepted + rejected + unsent, whatever happens.
* A request waits from the moment at which it was due, else from its first attempt: behind answers that are late, and while
  it is refused. So a bridge that stalls shows in every request that it held up, not only in those that were under way.
* A run ends early where a retry cannot help, or has not helped for `patience_s`; what ended it stands in `Outcome.fault`.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from otel_bridge.client.connection import UNREACHABLE
from otel_bridge.errors import BridgeRefused, BridgeUnavailable
from otel_bridge.load.doors import Door
from otel_bridge.load.fleet import Body

PATIENCE_S = 60.0
_WAIT_S = 1.0  # where a bridge leaves it to us
_LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Outcome:
    """
    What a run did.

    events, accepted   asked for; in the bridge's spool
    rejected           events of accepted requests that were not taken, by reason
    unsent             events of requests that were given up, or not begun
    requests           accepted
    refusals           attempts that were refused, by reason; `retries` is how many of them were made again
    latency_ns         how long each accepted request waited for its answer
    seconds, cpu_s     of the run, and of the processor that this process took for it
    fault              what ended the run before its time; None: nothing
    """

    events: int
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unsent: int = 0
    requests: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    latency_ns: list[int] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    fault: BridgeRefused | BridgeUnavailable | None = None

    def latency_ms(self, share: float) -> float | None:
        """The latency that this share of the requests did not exceed, 0 to 1; None: there were none."""
        if not self.latency_ns:
            return None
        ordered = sorted(self.latency_ns)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e6


def drive(
    body: Callable[[], Body],
    doors: Sequence[Door],
    requests: int,
    events: int,
    *,
    rate: float | None = None,
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """
    Send `requests` bodies of `events` each, as many at once as there are doors.

    rate         events a second, at most; None: as fast as they are taken
    patience_s   longest time that one request is refused before the run is given up
    """
    run = _Run(body, Outcome(requests * events), requests, events / rate if rate else 0.0, patience_s)
    cpu = time.process_time()
    with ThreadPoolExecutor(len(doors), "load") as pool:
        try:
            for sender in [pool.submit(run.send_all, door) for door in doors]:
                sender.result()
        finally:
            run.stopped.set()
    run.outcome.seconds, run.outcome.cpu_s = time.monotonic() - run.begin, time.process_time() - cpu
    run.outcome.unsent = run.outcome.events - run.outcome.accepted - run.outcome.rejected.total()
    return run.outcome


@dataclass(slots=True)
class _Run:
    body: Callable[[], Body]
    outcome: Outcome
    left: int
    interval_s: float
    patience_s: float
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    begin: float = field(default_factory=time.monotonic)
    begun: int = 0

    def send_all(self, door: Door) -> None:
        """Send until nothing is left, or the run is stopped."""
        try:
            while (due := self._take()) is not None:
                if self.stopped.wait(max(due - time.monotonic(), 0.0)):
                    return
                body = self.body()
                self._send(door, body, due if self.interval_s else time.monotonic())
        except (BridgeRefused, BridgeUnavailable) as error:
            with self.lock:
                self.outcome.fault = self.outcome.fault or error
            self.stopped.set()

    def _take(self) -> float | None:
        """When the next request is due, by the monotonic clock; None: there is none."""
        with self.lock:
            if self.begun == self.left or self.stopped.is_set():
                return None
            self.begun += 1
            return self.begin + (self.begun - 1) * self.interval_s

    def _send(self, door: Door, body: Body, due: float) -> None:
        """Send one body until it is accepted. Raises what ends the run."""
        first = time.monotonic()
        while True:
            try:
                answer = door.send(body.data)
            except BridgeUnavailable as error:
                wait_s = min(error.retry_after_s or _WAIT_S, _LONGEST_WAIT_S)
                self._note_refusal(error, time.monotonic() + wait_s - first)
                if self.stopped.wait(wait_s):
                    return
                with self.lock:
                    self.outcome.retries += 1
                continue
            took_ns = round((time.monotonic() - due) * 1e9)
            with self.lock:
                self.outcome.requests += 1
                self.outcome.accepted += answer.accepted
                self.outcome.rejected.update({each.reason: each.events for each in answer.rejected})
                self.outcome.latency_ns.append(took_ns)
            return

    def _note_refusal(self, error: BridgeUnavailable, waited_s: float) -> None:
        """Count it. Raises it where waiting has not helped, or nobody has answered from the beginning."""
        with self.lock:
            self.outcome.refusals[error.reason] += 1
            answered = self.outcome.requests > 0 or set(self.outcome.refusals) != {UNREACHABLE}
        if waited_s > self.patience_s or not answered:
            raise error
