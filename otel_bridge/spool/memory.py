"""The spool in memory: fast, bounded, and gone with the process. Also the model that other spools are tested against."""

import asyncio
from collections import deque
from collections.abc import Sequence

from otel_bridge.errors import Draining, SpoolFull
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.protocol import Record


class MemorySpool:
    """
    A `Spool` of at most `max_bytes`, counted until `done`. One event loop uses it.

    A batch that is larger than `max_bytes` is taken when nothing else is there: the request limit bounds it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Record] = deque()
        self._waiting_events = 0
        self._sizes: dict[int, tuple[int, int]] = {}
        self._next = 0
        self._bytes = 0
        self._events = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def size_bytes(self) -> int:
        """Bytes of all records that are not done."""
        return self._bytes

    @property
    def events(self) -> int:
        """Events of all records that are not done."""
        return self._events

    async def append(self, batch: EventBatch) -> None:
        """Keep a batch; see `Spool.append`."""
        if self._closed:
            raise Draining("the bridge is stopping; send to another instance, or try again when it is back")
        size = batch.nbytes
        if self._bytes and self._bytes + size > self._max_bytes:
            raise SpoolFull(
                f"the spool holds {self._bytes} of {self._max_bytes} bytes and {size} more do not fit (spool.max_bytes); "
                "try again later",
                retry_after_s=1.0,
            )
        record = Record(self._next, batch)
        self._next += 1
        self._sizes[record.number] = (size, len(batch))
        self._bytes += size
        self._events += len(batch)
        self._waiting.append(record)
        self._waiting_events += len(batch)
        self._changed.set()

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """Wait for records; see `Spool.read`."""
        lingered = False
        while not self._closed and (not self._waiting or (self._waiting_events < max_events and linger_s and not lingered)):
            if self._waiting:
                lingered = True
                await asyncio.sleep(linger_s)
            else:
                self._changed.clear()
                await self._changed.wait()
        taken: list[Record] = []
        events = 0
        while self._waiting and (not taken or events + len(self._waiting[0].batch) <= max_events):
            taken.append(self._waiting.popleft())
            events += len(taken[-1].batch)
        self._waiting_events -= events
        return taken

    async def done(self, records: Sequence[Record]) -> None:
        """Forget records; see `Spool.done`."""
        for record in records:
            size, events = self._sizes.pop(record.number)
            self._bytes -= size
            self._events -= events

    def close(self) -> None:
        """Take no more batches; see `Spool.close`."""
        self._closed = True
        self._changed.set()
