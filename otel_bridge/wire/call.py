"""
A call over gRPC: how its message comes in, and how it ends.

gRPC reads a message once it is asked for, and then whole: what it takes is known at its end. Before it is asked for, flow
control lets 64 KiB of it in (grpc_door.py). So a handler here is one of streams, which begins before the first message is
there, and what is on its way has a time limit, and ends where memory runs short.
"""

import asyncio
import contextlib
import logging
import math
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc

from otel_bridge.errors import BodyStalled, BridgeError, MalformedRequest, Overloaded
from otel_bridge.v1 import profiling_pb2
from otel_bridge.wire.exchange import Requests
from otel_bridge.wire.intake import Disconnected
from otel_bridge.wire.status import code_of, message_of, status_of
from otel_bridge.wire.turnstile import Turnstile

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = Any
"""A `grpc.RpcMethodHandler`, whose stubs know synchronous functions only."""

OWN_METHODS = f"/{profiling_pb2.DESCRIPTOR.package}."
"""How the names of the bridge's own methods begin; health and reflection are others'."""

_END = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
_LOOK_S = 0.1
"""How often what is on its way is looked at."""


class Arrivals:
    """
    The messages that are on their way in. Where others wait for room, one may take no longer than they may wait.

    timeout_s   how long one may take
    turnstile   knows whether memory is short, and whether others wait
    count       told the reason of each that is turned away
    """

    def __init__(self, timeout_s: float, turnstile: Turnstile, count: Requests) -> None:
        self._timeout_s = timeout_s
        self._turnstile = turnstile
        self._count = count
        self._due_s: dict[Context, float] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def read(self, context: Context) -> bytes:
        """
        The message of a call.

        Raises `MalformedRequest` where there is none, and `grpc.aio.AbortError` where the call was ended meanwhile.
        """
        message = await self._read(context, asyncio.get_running_loop().time() + self._timeout_s)
        if message is None:
            await asyncio.sleep(_LOOK_S)  # of a client that has gone gRPC tells the end first, and cancels this a moment later
            raise MalformedRequest("the call has no message; send one", reason="undecodable")
        return message

    async def next(self, context: Context) -> bytes | None:
        """
        The next message of a stream, however long that takes; None: there is no other.

        Raises `grpc.aio.AbortError` where the call was ended meanwhile.
        """
        return await self._read(context, math.inf)

    async def _read(self, context: Context, due_s: float) -> bytes | None:
        self._due_s[context] = due_s
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        try:
            message = await context.read()
        finally:
            self._due_s.pop(context, None)
        return None if message is _END else bytes(message)

    def turn_away(self, context: Context, error: BridgeError) -> None:
        """End a call whose message is on its way."""
        if context in self._due_s:
            self._turn_away([context], error)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(_LOOK_S, self._look) if self._due_s else None
        try:
            self._turnstile.check_memory()
        except Overloaded as error:
            self._turn_away(list(self._due_s), error)
            return
        time_s, setting = self._timeout_s, "ingress.body_timeout_s"
        if self._turnstile.waiting and self._turnstile.wait_s < time_s:
            time_s, setting = self._turnstile.wait_s, "ingress.max_wait_s, as others wait"
        until_s = loop.time() + self._timeout_s - time_s
        late = [context for context, due_s in self._due_s.items() if due_s <= until_s]
        self._turn_away(late, BodyStalled(f"the message was not there within {time_s:g} s ({setting}); send it again"))

    def _turn_away(self, contexts: list[Context], error: BridgeError) -> None:
        for context in contexts:
            del self._due_s[context]
            self._count(error.reason)
            ending = asyncio.ensure_future(_end(context, error))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


@dataclass(frozen=True, slots=True)
class WayIn:
    """What a request passes before its method, and who is told how it ended."""

    turnstile: Turnstile
    arrivals: Arrivals
    count: Requests


async def _end(context: Context, error: BridgeError) -> None:
    """End a call whose handler waits for its message, which then raises `grpc.aio.AbortError` there."""
    with contextlib.suppress(grpc.aio.BaseError):  # it has ended now, or had already
        await abort(context, error)


async def abort(context: Context, error: Exception) -> NoReturn:
    """
    End a call with what the table of status.py has for the error.

    Not to be called in a frame that holds the body, or a task that does: cycles are looked for only now and then
    (pipeline/memory.py).
    """
    if isinstance(error, Disconnected):
        code, message, details = grpc.StatusCode.DEADLINE_EXCEEDED, "nobody waits any more; the request was not kept", b""
    else:
        code, message, details = code_of(error).grpc, message_of(error), status_of(error).SerializeToString()
        if not isinstance(error, BridgeError):
            _log.error("a request failed inside the bridge", exc_info=error)
    _forget_frames(error)
    await context.abort(code, message, (("grpc-status-details-bin", details),) if details else ())
    raise AssertionError("abort always raises")


def _forget_frames(error: BaseException | None) -> None:
    """grpc.aio leaves each call that is aborted in a cycle with the error, and so with frames that hold the body."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def is_given_up(context: Context) -> bool:
    """Whether nobody waits for the answer any more: the client is gone, or its deadline has passed."""
    remaining_s = context.time_remaining()
    return bool(context.cancelled()) or (remaining_s is not None and remaining_s <= 0)


def entry(context: Context, key: str) -> str | None:
    """The first text of that key beside a call; None: there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else None
    return None
