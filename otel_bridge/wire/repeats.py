"""
Requests that are sent again: answered as the first attempt was, and not emitted again.

Invariants
* A request is known by its name (tenant, stream, number) and a digest of its body. The same name with another body is another
  request, which is taken, and told: its sender has used a number twice.
* What is remembered is what was kept: the row that says so is written in the transaction that keeps the events (spool), so a
  kill leaves both or neither.
* An attempt that comes while an earlier one is being kept waits for it, and ends as it does; where that fails, the next is
  the first.
* Once it is being kept, a request is kept, whether or not its sender still waits.
* Bounded: in entries, in age, and for one name.
* Among several workers the one that came first has a request, and the others ask it (elsewhere.py).
"""

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from otel_bridge.spool.protocol import Seen
from otel_bridge.wire.eager import begin

MAX_OF_ONE_NAME = 16
"""Bodies that are remembered under one name; the oldest go first."""

_FORGET_EVERY = 1024
"""So many entries are forgotten together on disk."""

_PERSON = b"otel-bridge/seen"

_HELD_BYTES, _MOST_HELD_BYTES = 2047, 65_536
"""
For more at a time hashlib lets go of the interpreter and waits to get it back, which takes longer than the digest of a body
that is read on the loop.
"""


@dataclass(slots=True, unsafe_hash=True)  # frozen, it would take three times as long to make, and each request makes one
class Name:
    """A request: `key` is of its tenant, stream and number, `digest` of its body; 16 bytes each."""

    key: bytes
    digest: bytes


def name_of(body: bytes, tenant: str, stream_id: bytes, number: int | None) -> Name:
    """
    The name of a request.

    stream_id   b"": it has none, and its body stands for it
    number      sequence in the stream; None: the content is its number, as in the ids of its spans (spans/ids.py)
    """
    digest = _digest_of(body)
    pieces = (tenant.encode(), stream_id or digest, digest if number is None else number.to_bytes(8, "big"))
    said = b"".join([part for piece in pieces for part in (len(piece).to_bytes(4, "big"), piece)])
    return Name(hashlib.blake2b(said, digest_size=16, person=_PERSON).digest(), digest)


def _digest_of(body: bytes) -> bytes:
    if not _HELD_BYTES < len(body) <= _MOST_HELD_BYTES:
        return hashlib.blake2b(body, digest_size=16).digest()
    digest, view = hashlib.blake2b(digest_size=16), memoryview(body)
    for at in range(0, len(body), _HELD_BYTES):
        digest.update(view[at : at + _HELD_BYTES])
    return digest.digest()


class Watch(Protocol):
    """Told what was sent again."""

    def duplicate(self) -> None:
        """A request was answered as its first attempt was."""

    def sequence_reused(self) -> None:
        """A request has the stream and number of another, and another body."""


class Memory(Protocol):
    """What remembers over restarts."""

    def seen(self) -> Iterable[Seen]:
        """The requests that it knew when it was opened."""

    def forget_seen(self, age_ns: int) -> None:
        """Forget requests that were seen longer ago."""


class Elsewhere(Protocol):
    """Knows what other workers of the bridge have taken."""

    def note(self, name: Name) -> None:
        """This worker has a request."""

    async def answer_to(self, name: Name) -> tuple[bytes | None, bool]:
        """
        What another worker answered to a request; None: none has it, and it is this worker's now.

        And whether any worker has taken another body under its stream and number before. Raises `Unavailable`.
        """


@dataclass(slots=True)  # as `Name`
class _Known:
    name: Name
    answer: bytes
    at_s: float


class Repeats:
    """
    What was taken, for a while.

    max_entries, max_age_s   how many requests are remembered, and for how long; 0: none is
    memory                   where they are on disk
    elsewhere                what other workers have taken; None: there are no others
    """

    def __init__(
        self,
        max_entries: int,
        max_age_s: float,
        memory: Memory,
        watch: Watch,
        now_s: Callable[[], float] = time.monotonic,
        *,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._remembers = bool(max_entries and max_age_s)
        self._max_entries = max_entries
        self._max_age_s = max_age_s
        self._memory = memory
        self._watch = watch
        self._now_s = now_s
        self._elsewhere = elsewhere if self._remembers else None
        self._known: dict[bytes, tuple[_Known, ...]] = {}
        self._order: deque[_Known] = deque()
        self._forgotten = 0
        self._keeping: dict[bytes, dict[bytes, asyncio.Task[bytes]]] = {}
        now = now_s()
        for seen in sorted(memory.seen(), key=lambda seen: -seen.age_ns):
            name = Name(seen.key, seen.digest)
            self._add(_Known(name, seen.answer, now - seen.age_ns / 1e9))
            if self._elsewhere is not None:
                self._elsewhere.note(name)
        if not self._remembers:
            memory.forget_seen(0)

    def __len__(self) -> int:
        return len(self._order)

    def find(self, name: Name) -> bytes | None:
        """The answer to an earlier attempt; None: this is the first."""
        oldest_s = self._now_s() - self._max_age_s
        for known in self._known.get(name.key, ()):
            if known.name.digest == name.digest and known.at_s >= oldest_s:
                return known.answer
        return None

    async def once(self, name: Name, keep: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The answer to a request: that of an earlier attempt, or what comes of keeping it. Raises what `keep` raises."""
        while (earlier := self._keeping.get(name.key, {}).get(name.digest)) is not None:
            with contextlib.suppress(Exception):  # its own sender is told; this attempt is the first then
                answer = await asyncio.shield(earlier)
                self._watch.duplicate()
                return answer
            self._end(name, earlier)  # its callback may come later
        if (known := self.find(name)) is not None:
            self._watch.duplicate()
            return known
        if self._elsewhere is None and (name.key in self._keeping or name.key in self._known):
            self._watch.sequence_reused()
        keeping = begin(keep() if self._elsewhere is None else self._kept_once(name, keep, self._elsewhere))
        if not isinstance(keeping, asyncio.Task):
            return keeping
        self._keeping.setdefault(name.key, {})[name.digest] = keeping
        keeping.add_done_callback(partial(self._end, name))
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping])  # until then the request is in the bridge, and counts (turnstile.py)
            raise

    async def answer_to(self, name: Name) -> bytes | None:
        """What is answered to a request that may be on its way; None: it was not kept here, or is forgotten."""
        if (earlier := self._keeping.get(name.key, {}).get(name.digest)) is not None:
            with contextlib.suppress(Exception):  # its own sender is told
                return await asyncio.shield(earlier)
        return self.find(name)

    async def _kept_once(self, name: Name, keep: Callable[[], Coroutine[Any, Any, bytes]], elsewhere: Elsewhere) -> bytes:
        answer, is_reused = await elsewhere.answer_to(name)
        if is_reused:
            self._watch.sequence_reused()
        if answer is not None:
            self._watch.duplicate()
            return answer
        return await keep()

    def _end(self, name: Name, ended: asyncio.Task[bytes]) -> None:
        """It is kept no more, or not at all."""
        beside = self._keeping.get(name.key, {})
        if beside.get(name.digest) is ended:  # an attempt that came between may have begun again
            del beside[name.digest]
            if not beside:
                del self._keeping[name.key]

    def row_of(self, name: Name, answer: bytes) -> Seen | None:
        """What is to be on disk of a request that is kept; None: nothing is remembered."""
        return Seen(name.key, name.digest, answer) if self._remembers else None

    def remember(self, name: Name, answer: bytes) -> None:
        """A request was kept, and this is the answer."""
        self._add(_Known(name, answer, self._now_s()))

    def _add(self, known: _Known) -> None:
        if not self._remembers:
            return
        self._known[known.name.key] = (*self._known.get(known.name.key, ())[-MAX_OF_ONE_NAME + 1 :], known)
        self._order.append(known)
        oldest_s = self._now_s() - self._max_age_s
        while self._order and (len(self._order) > self._max_entries or self._order[0].at_s < oldest_s):
            self._forget(self._order.popleft())
        if self._forgotten >= _FORGET_EVERY:
            self._forgotten = 0
            age_s = self._now_s() - self._order[0].at_s if self._order else 0.0
            self._memory.forget_seen(int(age_s * 1e9))

    def _forget(self, gone: _Known) -> None:
        self._forgotten += 1
        left = tuple(known for known in self._known.get(gone.name.key, ()) if known is not gone)
        if left:
            self._known[gone.name.key] = left
        else:
            self._known.pop(gone.name.key, None)
