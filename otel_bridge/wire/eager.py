"""
Work that begins at once, and becomes a task only where it has to wait.

A request to a spool in memory waits for nothing between its last byte and its answer. A task for it would cost more than most
of what is done in it: the task, a turn of the loop before it begins, and one more before whoever asked goes on.

Invariants
* Work that does not wait is done when `begin` returns, and what it raises is raised there.
* All of it runs in one context, a copy of the caller's, as that of a task would.
* Up to its first wait `asyncio.current_task` is the caller's task, or none: it may not use `asyncio.timeout` there.

From Python 3.12 on asyncio has this too (`eager_start`).
"""

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T]) -> T | asyncio.Task[T]:
    """What comes of the work, or, if it waits for something, the task in which it goes on. Raises what it raises."""
    context = contextvars.copy_context()
    try:
        awaited = context.run(work.send, None)
    except StopIteration as end:
        result: T = end.value
        return result
    return asyncio.get_running_loop().create_task(_Begun(work, awaited), context=context)


class _Begun(Coroutine[Any, Any, T]):
    """The rest of a coroutine that waits for `awaited`, as a task wants it: what it is asked for first is that."""

    def __init__(self, rest: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._rest = rest
        self._awaited = awaited
        self._is_told = False

    def send(self, value: Any) -> Any:
        """Go on."""
        if self._is_told:
            return self._rest.send(value)
        self._is_told = True
        return self._awaited

    def throw(self, *error: Any) -> Any:
        """Go on with an error: where a task is cancelled before its first step, that is the first that comes."""
        if not self._is_told and self._awaited is not None:
            self._awaited.cancel()  # as the task would have done from then on
        self._is_told = True
        return self._rest.throw(*error)

    def close(self) -> None:
        """End it."""
        self._rest.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise TypeError("for a task, not to be awaited")
