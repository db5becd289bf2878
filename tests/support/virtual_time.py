"""
An event loop whose time is virtual: hours pass in seconds, and in the same order as they would.

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())      # asyncio.sleep(3600) returns at once, and loop.time() is 3600 s later

Invariants
* Time stands still while anything runs: callbacks, threads that the loop awaits, connections that have something to say.
* When nothing runs, time jumps to the next timer. Where there is none either, and nobody says anything, that is an error.
* Work in threads of others is awaited only if the loop is told of it: `hold`.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

_PATIENCE_S = 30.0
"""Real time that a thread may take for what is awaited."""

NOON_NS = 1_800_000_000 * 10**9
"""When virtual time begins, nanoseconds since 1970."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Its clocks, in nanoseconds, are for parts that ask for some: they may be read by any thread."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._held: set[asyncio.Future[Any]] = set()
        super().__init__(_Idle(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return round(self._now_s * 1e9)

    def wall_ns(self) -> int:
        """The wall clock."""
        return NOON_NS + self.monotonic_ns()

    def hold(self, answer: "asyncio.Future[Any]") -> None:
        """Let no time pass until somebody, in a thread, has given this answer."""
        self._held.add(answer)
        answer.add_done_callback(self._held.discard)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]  # a future, as its callers know
        """As ever; no time passes until it is done."""
        answer = super().run_in_executor(executor, func, *args)
        self.hold(answer)
        return answer

    def wait(self, timeout_s: float | None) -> bool:
        """Nothing is to be done for so long: let the time pass; False: a thread must be waited for instead."""
        if self._held or timeout_s is None:
            return False
        self._now_s += timeout_s
        return True


class _Idle(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0) or self._loop.wait(timeout):
            return ready
        ready = super().select(_PATIENCE_S)
        if not ready:
            raise RuntimeError(
                f"nothing has happened for {_PATIENCE_S:g} s of real time, and no timer is set, or a thread is awaited"
            )
        return ready
