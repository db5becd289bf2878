"""
Whether the back end answers, known to all requests together.

Invariants
* Closed: everyone may try. Open: nobody, until the wait is over. Half open: one tries, the others wait for how that ends; each
  gets its turn, so that one request that the back end cannot take does not stand for all.
* It opens at the third failure in a row, of whatever requests, or when the back end asks for patience: of several back ends
  behind one address one may be ill, and the others are not to wait for it. One success ends the row.
* The wait grows with the row.
* A change between "answers" and "does not" is told once, however many requests find it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum

_log = logging.getLogger(__name__)


class State(Enum):
    """What requests may do."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


class Circuit:
    """
    The state of one back end, for one event loop.

    watch       told of each change
    name        of the back end, for the log
    tolerated   failures in a row that do not open it

    successes   requests that were answered, whatever the answer
    failures    in a row
    """

    def __init__(
        self,
        watch: Callable[[State], None] = lambda _: None,
        *,
        name: str = "the back end",
        tolerated: int = 2,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = State.CLOSED
        self.successes = 0
        self.failures = 0
        self._watch = watch
        self._name = name
        self._tolerated = tolerated
        self._sleep = sleep
        self._now = now
        self._until_s = 0.0
        self._turn = asyncio.Lock()  # first come, first served

    @asynccontextmanager
    async def passage(self) -> AsyncGenerator[None, None]:
        """Wait until an attempt may be made, which is to end in `succeed` or `fail`."""
        if self.state is State.CLOSED:
            yield
            return
        async with self._turn:
            while self._is(State.OPEN) and (rest_s := self._until_s - self._now()) > 0:
                await self._sleep(rest_s)
            if self._is(State.OPEN):
                self._change(State.HALF_OPEN)
                try:
                    yield
                finally:
                    if self._is(State.HALF_OPEN):  # cancelled: nothing was found out
                        self._change(State.OPEN)
                return
        yield

    def succeed(self) -> None:
        """The back end answered."""
        self.successes += 1
        self.failures = 0
        self._until_s = 0.0
        if self.state is not State.CLOSED:
            _log.info("%s answers again", self._name)
            self._change(State.CLOSED)

    def fail(self, fault: str, wait_s: float, *, is_told: bool = False) -> None:
        """The back end did not answer, or asked for patience (`is_told`): where it is out, nobody is to try for so long."""
        self.failures += 1
        if self.failures <= self._tolerated and not is_told and self._is(State.CLOSED):
            return
        self._until_s = max(self._until_s, self._now() + wait_s)
        if self._is(State.CLOSED):
            _log.warning("%s; requests wait and are sent again", fault)
        if not self._is(State.OPEN):
            self._change(State.OPEN)

    def _is(self, state: State) -> bool:
        return self.state is state

    def _change(self, state: State) -> None:
        self.state = state
        self._watch(state)
