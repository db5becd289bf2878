"""
Calls that no turnstile counts: health, which is open to all and must answer in an overload too, and reflection.

Invariants
* So many of a kind are open at a time, whatever they do; `Health.Watch` may be for hours, and takes no room from `Check`.
* Who has begun to ask and does not end keeps nobody else from it: where there is no room, the call whose message has been on
  its way for longest makes room.
* Their messages come in as all others do (call.py): not before they are asked for, and not when memory is short.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from otel_bridge.errors import MalformedRequest, Overloaded
from otel_bridge.wire.call import OWN_METHODS, Arrivals, Context, Handler, abort

MAX_OPEN = 256


class Lookers(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic for type checkers only
    """Bounds calls of services that are not the bridge's own."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._open: Counter[str] = Counter()
        self._arriving: dict[str, dict[Context, None]] = defaultdict(dict)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call; one that is not the bridge's own is bounded."""
        handler = await continuation(handler_call_details)
        if handler is None or str(handler_call_details.method).startswith(OWN_METHODS):
            return handler
        return self._bounded(handler, str(handler_call_details.method))

    def _bounded(self, handler: Handler, method: str) -> Handler:
        async def check(_messages: object, context: Context) -> Any:
            with self._counted(method) as fault:
                message = await self._read(handler, method, context, fault)
                return await handler.unary_unary(message, context)

        async def watch(_messages: object, context: Context) -> None:
            with self._counted(method) as fault:
                message = await self._read(handler, method, context, fault)
                await handler.unary_stream(message, context)

        async def reflect(messages: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            with self._counted(method) as fault:
                if fault is not None:
                    await abort(context, fault)
                async for answer in handler.stream_stream(messages, context):
                    yield answer

        write = handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(check, None, write)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(watch, None, write)
        return grpc.stream_stream_rpc_method_handler(reflect, handler.request_deserializer, write)

    @contextlib.contextmanager
    def _counted(self, method: str) -> Iterator[Overloaded | None]:
        """What there is against one more call."""
        too_many = Overloaded(f"{MAX_OPEN} calls of this kind are open; try again later")
        self._open[method] += 1
        try:
            yield too_many if self._open[method] > MAX_OPEN else None
        finally:
            self._open[method] -= 1

    async def _read(self, handler: Handler, method: str, context: Context, fault: Overloaded | None) -> Any:
        arriving = self._arriving[method]
        if fault is not None:
            if not arriving:
                await abort(context, fault)
            oldest = next(iter(arriving))
            del arriving[oldest]
            self._arrivals.turn_away(oldest, fault)
        arriving[context] = None
        try:
            body = await self._arrivals.read(context)
        finally:
            arriving.pop(context, None)
        try:
            return handler.request_deserializer(body)
        except DecodeError as error:
            await abort(context, MalformedRequest(f"the message cannot be read: {error}", reason="undecodable"))
