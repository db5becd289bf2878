"""
Requests that wait for the bridge's answer: the protocol, and the one in memory.

Invariants
* A request stays until it is removed: it was answered, or given up, or others took its place.
* The oldest is sent first. One client's thread alone uses an outbox.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from otel_bridge.client.sealing import Sealed


class OutboxFault(Exception):
    """The outbox cannot keep a request; `reason` is the `Reason` under which events are dropped while it lasts."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutboxDamaged(Exception):
    """What the outbox keeps its requests in is no longer whole."""


Identity = tuple[bytes, int]
"""Stream id and sequence number: what a request is known by, wherever it is kept."""


class Outbox(Protocol):
    """
    A place for requests.

    nbytes   that the bodies take
    events   in all of them
    """

    nbytes: int
    events: int

    def identities(self) -> set[Identity]:
        """Of all requests here."""
        ...

    def put(self, requests: Sequence[Sealed]) -> list[int]:
        """Keep requests, all or none of them; their numbers. Raises OutboxFault, OutboxDamaged."""
        ...

    def first(self) -> tuple[int, Sealed] | None:
        """The oldest with its number; None: there is none. One that is damaged is given up on the way."""
        ...

    def remove(self, number: int, instead: Sequence[Sealed] = ()) -> list[int]:
        """Let go of a request, and keep others instead of it; their numbers. Raises OutboxFault, OutboxDamaged."""
        ...

    def last_sequence(self, stream_id: bytes) -> int:
        """The largest sequence number of a stream here; -1: there is none."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


class MemoryOutbox:
    """Requests in memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Sealed] = OrderedDict()
        self._next = 0
        self.nbytes = self.events = 0

    def identities(self) -> set[Identity]:
        """See `Outbox`."""
        return {(each.stream_id, each.sequence) for each in self._kept.values()}

    def put(self, requests: Sequence[Sealed]) -> list[int]:
        """See `Outbox`."""
        numbers = list(range(self._next, self._next + len(requests)))
        self._next += len(requests)
        for number, request in zip(numbers, requests, strict=True):
            self._kept[number] = request
            self.nbytes += len(request.body)
            self.events += request.events
        return numbers

    def first(self) -> tuple[int, Sealed] | None:
        """See `Outbox`."""
        return next(iter(self._kept.items()), None)

    def remove(self, number: int, instead: Sequence[Sealed] = ()) -> list[int]:
        """See `Outbox`."""
        gone = self._kept.pop(number)
        self.nbytes -= len(gone.body)
        self.events -= gone.events
        return self.put(instead)

    def last_sequence(self, stream_id: bytes) -> int:
        """See `Outbox`."""
        return max((each.sequence for each in self._kept.values() if each.stream_id == stream_id), default=-1)

    def close(self) -> None:
        """See `Outbox`."""
