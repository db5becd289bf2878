"""
The line of records that wait: the older end in memory, what does not fit there on disk alone.

Invariants
* Numbers ascend: memory ends at `cursor`, and everything above it, to `on_disk.last`, is on disk alone.
* Once something is on disk alone, all that comes later is too, until that has been loaded: order is kept.

    memory ( .. cursor]   on disk alone (cursor .. on_disk.last]
"""

from collections import deque
from collections.abc import Iterable

from otel_bridge.spool.held import Held
from otel_bridge.spool.protocol import Record


class Line:
    """Records of at most about `memory_bytes` in memory, behind what was `found` on disk."""

    def __init__(self, memory_bytes: int, found: Held) -> None:
        self._memory: deque[tuple[Record, int]] = deque()
        self._room_bytes = memory_bytes
        self._memory_events = 0
        self.on_disk = found
        self.cursor = 0

    @property
    def events(self) -> int:
        """Events of all of it."""
        return self._memory_events + self.on_disk.events

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to take or to load."""
        return not self._memory and not self.on_disk.records

    def must_load(self, max_events: int) -> bool:
        """Whether some of the next `max_events` events are on disk alone."""
        return self.on_disk.records > 0 and self._memory_events < max_events

    def put(self, record: Record, size: int, memory_bytes: int) -> bool:
        """Put a new record at the end, of so many bytes on disk and in memory; whether it is in memory."""
        if self.on_disk.records or memory_bytes > self._room_bytes:
            self.put_on_disk(Held(1, len(record.batch), size, record.number))
            return False
        self._remember(record, memory_bytes)
        self.cursor = record.number
        return True

    def put_on_disk(self, held: Held) -> None:
        """Records are at the end of the line, and on disk alone."""
        now = self.on_disk
        self.on_disk = Held(
            now.records + held.records, now.events + held.events, now.size + held.size, max(now.last, held.last)
        )

    def load(self, records: Iterable[Record], read: Held) -> Held:
        """
        Records were read from disk; `read` sums up the rows, those that cannot be used among them.

        What should have been on disk, and was not, where that was all: nothing, unless the file is damaged.
        """
        for record in records:
            self._remember(record, record.batch.nbytes)
        self.cursor = read.last
        now = self.on_disk
        if self.cursor < now.last:  # there is more, whatever a damaged count says
            records_left = max(now.records - read.records, 1)
            self.on_disk = Held(records_left, now.events - read.events, now.size - read.size, now.last)
            return Held()
        self.on_disk = Held(0, now.events - read.events, now.size - read.size)
        missing, self.on_disk = self.on_disk, Held()
        return missing

    def take(self, max_events: int) -> list[Record]:
        """The oldest records in memory: as many whole ones as hold `max_events` events, and at least one."""
        taken: list[Record] = []
        events = 0
        while self._memory and (not taken or events + len(self._memory[0][0].batch) <= max_events):
            record, memory_bytes = self._memory.popleft()
            taken.append(record)
            events += len(record.batch)
            self._room_bytes += memory_bytes
        self._memory_events -= events
        return taken

    def _remember(self, record: Record, memory_bytes: int) -> None:
        self._memory.append((record, memory_bytes))
        self._memory_events += len(record.batch)
        self._room_bytes -= memory_bytes
