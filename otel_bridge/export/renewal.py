"""
A connection to a back end that does not outlive its use.

Invariants
* It is opened when it is needed, and anew when the files of its TLS changed, when it is `max_age_s` old (the endpoint's name
  may stand for other addresses now, and a balancer have other back ends), and when it was found useless.
* Requests under way keep theirs: a connection is closed when the last of them has ended.
* The new one is opened before the old one is closed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from otel_bridge.config.reload import Reloaded

C = TypeVar("C")
S = TypeVar("S")


@dataclass(slots=True, eq=False)
class _Opened(Generic[C, S]):
    """A connection, with what its TLS was made of, when it was opened, and how many requests use it."""

    connection: C
    secrets: S | None
    opened_s: float
    users: int = 0
    is_retired: bool = False


class Renewal(Generic[C, S]):
    """
    Lends one connection to all requests, and renews it. For one event loop.

    open_connection   makes one of what `tls` gives, or None
    close             lets go of one; calls under way on it fail
    max_age_s         from when on a connection is not lent any more
    """

    def __init__(
        self,
        open_connection: Callable[[S | None], C],
        close: Callable[[C], Awaitable[None]],
        *,
        tls: Reloaded[S] | None = None,
        max_age_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_connection = open_connection
        self._close_connection = close
        self._tls = tls
        self._max_age_s = max_age_s
        self._now = now
        self._current: _Opened[C, S] | None = None
        self._opened: set[_Opened[C, S]] = set()

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[C, None]:
        """A connection for one request."""
        if self._tls is not None and not self._tls.is_fixed:
            await asyncio.to_thread(self._tls.refresh)
        opened = self._fresh()
        opened.users += 1
        try:
            await self._sweep()
            yield opened.connection
        finally:
            opened.users -= 1
            await self._sweep()

    def retire(self, connection: C) -> None:
        """Lend it to nobody else: it brought no answer, and a new one may lead elsewhere."""
        if self._current is not None and self._current.connection is connection:
            self._current.is_retired = True
            self._current = None

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        self._current = None
        opened, self._opened = self._opened, set()
        for each in opened:
            await self._close_connection(each.connection)

    def _fresh(self) -> _Opened[C, S]:
        secrets = self._tls.value if self._tls is not None else None
        opened, now = self._current, self._now()
        if opened is not None and opened.secrets is secrets and now - opened.opened_s < self._max_age_s:
            return opened
        self._current = _Opened(self._open_connection(secrets), secrets, now)
        self._opened.add(self._current)
        if opened is not None:
            opened.is_retired = True
        return self._current

    async def _sweep(self) -> None:
        for each in [each for each in self._opened if each.is_retired and not each.users]:
            self._opened.discard(each)
            await self._close_connection(each.connection)
