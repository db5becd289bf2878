"""
Where sealed requests are kept: the buffer on disk if there is one, else memory; and what happens when the disk fails.

Invariants
* A request that the disk does not take is held in memory, and sent from there. While one is held no other is made, so memory
  stays bounded by one batch: what is recorded meanwhile waits in the queue, and overflows there, counted.
* A buffer that another process has is asked for again from time to time; until then memory does its work.
* A damaged buffer is set aside once, and its known events are counted.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from otel_bridge.client.counters import Counters, Reason
from otel_bridge.client.disk import DiskOutbox, set_aside
from otel_bridge.client.outbox import Identity, MemoryOutbox, Outbox, OutboxDamaged, OutboxFault
from otel_bridge.client.sealing import Sealed
from otel_bridge.client.settings import ClientSettings

_log = logging.getLogger(__name__)

_REOPEN_S = 10.0

Place = tuple[Outbox, int]
"""Where a request is: in which outbox, under which number."""


class Store:
    """The requests of a client. Used by its thread alone, but for `events`."""

    def __init__(self, settings: ClientSettings, counters: Counters, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._counters = counters
        self._now = now
        self._memory = MemoryOutbox()
        self._disk: DiskOutbox | None = None
        self._open_at = now()
        self._fault = self._closed_by = ""
        self._lent: tuple[Place, Sealed] | None = None

    @property
    def events(self) -> int:
        """Events of all requests here."""
        return self._memory.events + (self._disk.events if self._disk is not None else 0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no request; one that only reports drops has no events."""
        return not self.identities()

    @property
    def full_reason(self) -> str | None:
        """Why no request should be made now; None: there is room."""
        if self._settings.buffer is not None and self._disk is not None and self._memory.events:
            return self._fault or Reason.DISK_FULL
        nbytes = self._memory.nbytes + (self._disk.nbytes if self._disk is not None else 0)
        return Reason.BUFFER_FULL if nbytes >= self._settings.buffer_bytes else None

    def identities(self) -> set[Identity]:
        """Of all requests here."""
        return self._memory.identities() | (self._disk.identities() if self._disk is not None else set())

    def tend(self) -> None:
        """Open the buffer if that is due, and move what is held in memory there if it can be."""
        if self._settings.buffer is None:
            return
        if self._disk is None and self._now() >= self._open_at:
            self._open(self._settings.buffer)
        if self._disk is not None:
            while (found := self._memory.first()) is not None:
                numbers = self._put(self._disk, [found[1]])
                if not numbers:
                    return
                self._memory.remove(found[0])
                if self._lent is not None and self._lent[0] == (self._memory, found[0]):  # it may be under way
                    self._lent = (self._disk, numbers[0]), found[1]

    def put(self, requests: Sequence[Sealed]) -> None:
        """Keep requests."""
        if requests and (self._disk is None or not self._put(self._disk, requests)):
            self._memory.put(requests)

    def first(self) -> Sealed | None:
        """The request to send next; None: there is none."""
        if self._disk is not None:
            try:
                found = self._disk.first()
            except (OutboxFault, OutboxDamaged) as error:
                self._fail(error)
            else:
                if found is not None:
                    self._lent = (self._disk, found[0]), found[1]
                    return found[1]
        held = self._memory.first()
        self._lent = ((self._memory, held[0]), held[1]) if held is not None else None
        return held[1] if held is not None else None

    def remove(self, instead: Sequence[Sealed] = ()) -> None:
        """Let go of the request that `first` gave last, and keep others instead."""
        if self._lent is None:
            return
        (outbox, number), self._lent = self._lent[0], None
        try:
            outbox.remove(number, instead)
        except (OutboxFault, OutboxDamaged) as error:
            self._fail(error)
            self._memory.put(instead)

    def last_sequence(self, stream_id: bytes) -> int:
        """The largest sequence number of a stream here; -1: there is none."""
        places: list[Outbox] = [self._memory, *([self._disk] if self._disk is not None else [])]
        return max(each.last_sequence(stream_id) for each in places)

    def close(self) -> None:
        """Move what can be moved to the disk, and let go of it; what is in memory then is lost, and counted."""
        self.tend()
        if self._disk is not None:
            self._disk.close()
        lost, self._memory = self._memory, MemoryOutbox()
        self._counters.drop(lost.events, Reason.CLOSED)

    def _put(self, disk: DiskOutbox, requests: Sequence[Sealed]) -> list[int]:
        """The numbers of the requests in the buffer; []: it does not take them."""
        try:
            numbers = disk.put(requests)
        except (OutboxFault, OutboxDamaged) as error:
            self._fail(error)
            return []
        self._fault = ""
        return numbers

    def _open(self, path: Path) -> None:
        self._open_at = self._now() + _REOPEN_S
        try:
            try:
                self._disk = DiskOutbox(path, self._give_up)
            except OutboxDamaged as error:
                self._set_aside(path, error)
                self._disk = DiskOutbox(path, self._give_up)
        except (OutboxFault, OutboxDamaged) as error:
            if str(error) != self._closed_by:  # it is asked for again and again, and said once
                _log.warning("%s; until then memory keeps what is to be sent", error)
            self._closed_by = str(error)
        else:
            self._closed_by = ""
            self._counters.inherit(self._disk.events)

    def _fail(self, error: OutboxFault | OutboxDamaged) -> None:
        """After a fault of the disk: remember why; a damaged file is set aside at once."""
        if isinstance(error, OutboxFault):
            if not self._fault:
                _log.warning("%s; memory keeps what is to be sent", error)
            self._fault = error.reason
        elif self._disk is not None:
            disk, self._disk = self._disk, None
            lost = disk.events
            if self._lent is not None and self._lent[0][0] is disk:  # it may be under way: memory has it, and keeps it
                sealed = self._lent[1]
                (number,) = self._memory.put([sealed])
                self._lent = (self._memory, number), sealed
                lost -= sealed.events
            self._counters.drop(lost, Reason.BUFFER_CORRUPT)
            disk.close()
            self._open_at = self._now()
            try:
                self._set_aside(disk.path, error)
            except OutboxFault as fault:
                _log.warning("%s", fault)
                self._open_at += _REOPEN_S

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = set_aside(path)
        self._counters.set_aside()
        _log.warning("%s; it is kept as %s, and a new one is begun", error, aside)

    def _give_up(self, events: int, told: dict[str, int]) -> None:
        self._counters.drop(events, Reason.BUFFER_CORRUPT)
        self._counters.give_back(told)
