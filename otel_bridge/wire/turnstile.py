"""
The turnstile behind both gates: how much of requests is in the bridge at a time, and how many wait outside.

Invariants
* A request passes before its body is read: one that waits, or is turned away, has cost the bridge no body.
* Inside are never more requests and bytes than the limits say, but that one request alone may be as large as any may be.
* Who waits goes in by turn. Who finds the line full, or has waited too long, is told to come again.
* Short of memory nobody goes in, out of the line neither. It is asked for at most every `LOOK_S`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from otel_bridge.errors import Overloaded

_log = logging.getLogger(__name__)

AHEAD_BYTES = 65_536
"""What a request counts as until it is read: so much flow control lets in of what nobody has asked for (grpc_door.py)."""

LOOK_S = 0.05
"""How old an answer about memory may be."""
_GIVE_BACK_S = 1.0
"""How often the C library is asked to give back what it keeps: that takes milliseconds."""
RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all requests together: how many are inside, their bytes, how many wait, and how long."""

    requests: int = 1024
    size_bytes: int = 256 << 20
    waiting: int = 1024
    wait_s: float = 5.0


class Memory:
    """
    Whether the process is short of memory.

    limit_bytes   0: it never is
    used_bytes    physical memory in use; None: not known on this system
    give_back     asks for memory that is kept in reserve to be given back
    """

    def __init__(
        self, limit_bytes: int, used_bytes: Callable[[], int | None], give_back: Callable[[], object] = lambda: None
    ) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = used_bytes
        self._give_back = give_back
        self._look_at_s = self._give_back_at_s = 0.0
        self._is_short = False

    @property
    def is_short(self) -> bool:
        """As it was at most `LOOK_S` ago."""
        now_s = time.monotonic()
        if self._limit_bytes and now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._is_short = self._is_over() and not self._relieved(now_s)
        return self._is_short

    def _is_over(self) -> bool:
        used = self._used_bytes()
        return used is not None and used > self._limit_bytes

    def _relieved(self, now_s: float) -> bool:
        if now_s < self._give_back_at_s:
            return False
        self._give_back_at_s = now_s + _GIVE_BACK_S
        self._give_back()
        if self._is_over():
            _log.warning("memory is above ingress.memory_bytes (%d); senders are told to come again", self._limit_bytes)
            return False
        return True


class Turnstile:
    """
    Lets requests in. One event loop uses it.

    requests     how many are inside
    size_bytes   their bytes
    """

    def __init__(self, limits: Limits, memory: Memory) -> None:
        self._limits = limits
        self._memory = memory
        self._line: deque[asyncio.Future[None]] = deque()
        self.requests = self.size_bytes = 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._line)

    @property
    def wait_s(self) -> float:
        """How long one may wait."""
        return self._limits.wait_s

    async def enter(self) -> "Visit":
        """Wait for room for one more request, of `AHEAD_BYTES` as long as it is not read. Raises `Overloaded`."""
        self.check_memory()
        if self._line or not self._has_room():
            await self._wait()
        else:
            self._count(1, AHEAD_BYTES)
        return Visit(self)

    def check_memory(self) -> None:
        """Raises `Overloaded` where memory is short."""
        if self._memory.is_short:
            raise Overloaded(
                "the bridge has no memory for more now (ingress.memory_bytes); try again later",
                retry_after_s=RETRY_AFTER_S,
                reason="memory_limit",
            )

    def grow(self, held: int, size: int) -> None:
        """Room for a request that holds `held` bytes and turns out to have `size`. Raises `Overloaded`."""
        more = size - held
        if more > 0 and self.requests > 1 and self.size_bytes + more > self._limits.size_bytes:
            raise _overloaded(f"requests of {self._limits.size_bytes} bytes are in the bridge (ingress.max_bytes)")
        self.size_bytes += more
        if more < 0:
            self._let_in()

    def leave(self, size: int) -> None:
        """A request that holds `size` bytes is gone."""
        self._count(-1, -size)
        self._let_in()

    async def _wait(self) -> None:
        limits = self._limits
        if len(self._line) >= limits.waiting:
            raise _overloaded(f"{self.requests} requests are in the bridge and {len(self._line)} wait (ingress.max_waiting)")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await asyncio.wait((place,), timeout=limits.wait_s)
            self._check_place(place)
        except BaseException:
            self._step_out(place)
            raise

    def _check_place(self, place: asyncio.Future[None]) -> None:
        if not place.done():
            raise _overloaded(f"no room for the request within {self._limits.wait_s:g} s (ingress.max_wait_s)")
        self.check_memory()

    def _step_out(self, place: asyncio.Future[None]) -> None:
        """Who waited does not any more; where it was let in at the same moment, it leaves again."""
        if place.done():
            self.leave(AHEAD_BYTES)
        else:
            self._line.remove(place)

    def _let_in(self) -> None:
        while self._line and self._has_room():
            self._count(1, AHEAD_BYTES)
            self._line.popleft().set_result(None)

    def _has_room(self) -> bool:
        limits = self._limits
        return self.requests == 0 or (self.requests < limits.requests and self.size_bytes + AHEAD_BYTES <= limits.size_bytes)

    def _count(self, requests: int, size: int) -> None:
        self.requests += requests
        self.size_bytes += size


class Visit:
    """A request inside the turnstile; it leaves at the end of the `with` block, or by `leave`."""

    __slots__ = ("_size", "_turnstile")

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self._size = AHEAD_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()

    def leave(self) -> None:
        """It is gone. Not to be called twice."""
        self._turnstile.leave(self._size)

    def resize(self, size: int) -> None:
        """So many bytes it has, as is known by now. Raises `Overloaded` where there is no room for them."""
        self._turnstile.grow(self._size, size)
        self._size = size


def _overloaded(found: str) -> Overloaded:
    return Overloaded(f"{found}; try again later", retry_after_s=RETRY_AFTER_S)
