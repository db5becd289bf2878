"""
What became of the events of a client, in events.

Invariants
* recorded = accepted + rejected + dropped + waiting, at any moment at which no call is under way.
* A drop is reported to the bridge once: what is told in a request that did not get through is told in a later one.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


class Reason:
    """Why events are dropped. The words are labels of the bridge's metrics (docs/python-client.md)."""

    QUEUE_FULL = "queue_full"
    """The bridge takes less than is recorded, and the memory for what waits is used up."""
    BUFFER_FULL = "buffer_full"
    """So it is, and what is kept for the bridge has reached `buffer_bytes`."""
    DISK_FULL = "disk_full"
    """So it is, and the disk of the buffer takes no more."""
    BUFFER_CORRUPT = "buffer_corrupt"
    """A request came back from the buffer's file damaged."""
    REFUSED = "refused"
    """The bridge refused the request for good."""
    TOO_LARGE = "too_large"
    """An event that alone is over the size limit of a request."""
    UNREADABLE = "unreadable"
    """Events, or an ETDump, of which no request can be made."""
    CLOSED = "closed"
    """The client was closed before they were sent, or they were recorded after."""


@dataclass(frozen=True, slots=True)
class ClientStats:
    """
    The account of a client.

    recorded           events given to it, in this process
    accepted           events that the bridge has
    rejected           events that the bridge did not take, by its reasons
    dropped            events that were given up here, by reason (`Reason`)
    waiting            events in memory and in the buffer, those of earlier processes included
    inherited          of the others, events that an earlier process left in the buffer
    buffers_set_aside  buffer files that could not be read and were renamed; how many events they held is not known
    lost_dumps         ETDumps that the runtime did not give out; how many events they held is not known
    """

    recorded: int = 0
    accepted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    inherited: int = 0
    buffers_set_aside: int = 0
    lost_dumps: int = 0


class Counters:
    """The account as it grows; may be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded = self._accepted = self._inherited = self._set_aside = self._lost_dumps = 0
        self._rejected: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()

    def record(self, events: int) -> None:
        """Events were given to the client."""
        with self._lock:
            self._recorded += events

    def accept(self, events: int, rejected: Mapping[str, int]) -> None:
        """The bridge answered."""
        with self._lock:
            self._accepted += events
            self._rejected.update(rejected)

    def drop(self, events: int, reason: str) -> None:
        """Events were given up."""
        if events:
            with self._lock:
                self._dropped[reason] += events
                self._untold[reason] += events

    def inherit(self, events: int) -> None:
        """An earlier process left events in the buffer."""
        with self._lock:
            self._inherited += events

    def set_aside(self) -> None:
        """A buffer file was renamed."""
        with self._lock:
            self._set_aside += 1

    def lose_dump(self) -> None:
        """The runtime did not give out an ETDump."""
        with self._lock:
            self._lost_dumps += 1

    def take_untold(self) -> dict[str, int]:
        """Drops that no request has told; whoever takes them tells them, or gives them back."""
        with self._lock:
            told = dict(self._untold)
            self._untold.clear()
        return told

    def give_back(self, told: Mapping[str, int]) -> None:
        """The request that told these did not get through."""
        with self._lock:
            self._untold.update(told)

    @property
    def has_untold(self) -> bool:
        """Whether there are drops to tell."""
        return bool(self._untold)

    def stats(self, waiting: int) -> ClientStats:
        """The account now."""
        with self._lock:
            return ClientStats(
                recorded=self._recorded,
                accepted=self._accepted,
                rejected=dict(self._rejected),
                dropped=dict(self._dropped),
                waiting=waiting,
                inherited=self._inherited,
                buffers_set_aside=self._set_aside,
                lost_dumps=self._lost_dumps,
            )
