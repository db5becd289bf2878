"""
Requests that another worker of this bridge has taken: a table in memory that all of them share says whom to ask.

Invariants
* A request belongs to the worker that comes first: it writes itself down under a lock, which ends with its process.
* The table says whom to ask, and no more; the worker that is named knows what became of the request. So an entry of one that
  died on the way, refused the request, or has forgotten it, misleads nobody: whoever asks takes the request over, unless it
  was taken anew meanwhile.
* A worker that is not there may have kept what it took: until it is back and has read its spool, senders are told to come
  again.
* Of a fixed size: the oldest entry of a row makes room for another.
"""

import fcntl
import mmap
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from otel_bridge.errors import Unavailable
from otel_bridge.wire.repeats import Name

_ID_BYTES = 16
_KEY_BYTES = 8
"""Of these, of the key; the rest is of the digest."""
_WAYS = 16
"""Entries of a row."""
_IDS_BYTES = _WAYS * _ID_BYTES
_TIMES = struct.Struct(f"<{_WAYS}q")
_OWNERS = struct.Struct(f"<{_WAYS}H")
_ROW_BYTES = 512
_SPARE = 3
"""Entries there is room for, by entries that are wanted: a row is full about once in a hundred thousand."""
_RETRY_AFTER_S = 1.0


def table_bytes(requests: int) -> int:
    """Of a table for so many requests."""
    return _ROW_BYTES * -(-requests * _SPARE // _WAYS)


class Taken(NamedTuple):
    """
    What the table says of a request.

    owner       the worker that has it
    at_ns       when that one took it last; monotonic clock
    is_reused   whether it is new under a stream and number that was used for another body
    """

    owner: int
    at_ns: int
    is_reused: bool


class Owners:
    """
    The table, as one worker has it open.

    file   its descriptor: `table_bytes` zeros at first, shared by all workers
    me     the number of this worker
    """

    def __init__(self, file: int, me: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._file = file
        self._table = mmap.mmap(file, 0)
        self._rows = len(self._table) // _ROW_BYTES
        self._me = me
        self._now_ns = now_ns

    def take(self, name: Name, instead_of: Taken | None = None) -> Taken:
        """Who has a request: this worker, if nobody had it before, or who did has not taken it again since `instead_of`."""
        row, own = self._row_of(name), _id_of(name)
        with self._locked(row):
            start = row * _ROW_BYTES
            times_at, owners_at = start + _IDS_BYTES, start + _IDS_BYTES + _TIMES.size
            ids = self._table[start:times_at]
            times = _TIMES.unpack_from(self._table, times_at)
            at = _find(ids, own)
            is_reused = at is None and _find(ids, own[:_KEY_BYTES]) is not None
            if at is None:
                at = min(range(_WAYS), key=times.__getitem__)
            else:
                owner: int = _OWNERS.unpack_from(self._table, owners_at)[at]
                found = Taken(owner, times[at], is_reused=False)
                if owner != self._me and found != instead_of:
                    return found
            now_ns = self._now_ns()
            self._table[start + at * _ID_BYTES : start + (at + 1) * _ID_BYTES] = own
            struct.pack_into("<q", self._table, times_at + 8 * at, now_ns)
            struct.pack_into("<H", self._table, owners_at + 2 * at, self._me)
            return Taken(self._me, now_ns, is_reused)

    def _row_of(self, name: Name) -> int:
        return int.from_bytes(name.key[_KEY_BYTES:], "little") % self._rows

    @contextmanager
    def _locked(self, row: int) -> Iterator[None]:
        where = 1, row * _ROW_BYTES  # as long as the entries are read and written: some microseconds
        fcntl.lockf(self._file, fcntl.LOCK_EX, *where)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, *where)


class Elsewhere:
    """
    What other workers have taken; see `repeats.Elsewhere`.

    ask   what a worker answered to a request, waiting while it is being kept; None: it does not know it. Raises OSError where
          the worker is not there, or does not answer
    """

    def __init__(self, owners: Owners, me: int, ask: Callable[[int, Name], Awaitable[bytes | None]]) -> None:
        self._owners = owners
        self._me = me
        self._ask = ask

    def note(self, name: Name) -> None:
        """This worker has the request."""
        self._owners.take(name)

    async def answer_to(self, name: Name) -> tuple[bytes | None, bool]:
        """See `repeats.Elsewhere`."""
        taken = self._owners.take(name)
        while taken.owner != self._me:
            try:
                answer = await self._ask(taken.owner, name)
            except OSError as error:
                raise Unavailable(
                    "an earlier attempt of this request was taken by a worker that does not answer now; try again",
                    retry_after_s=_RETRY_AFTER_S,
                    reason="worker_away",
                ) from error
            if answer is not None:
                return answer, False
            taken = self._owners.take(name, instead_of=taken)
        return None, taken.is_reused


def _id_of(name: Name) -> bytes:
    """Halves of both; whoever is asked compares all."""
    return name.key[:_KEY_BYTES] + name.digest[: _ID_BYTES - _KEY_BYTES]


def _find(ids: bytes, own: bytes) -> int | None:
    at = ids.find(own)
    while at % _ID_BYTES and at >= 0:
        at = ids.find(own, at + 1)
    return at // _ID_BYTES if at >= 0 else None
