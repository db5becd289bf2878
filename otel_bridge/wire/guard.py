"""
The gate in front of both doors: who may not come in is turned away before the request's body is read.

Invariants
* Every RPC and every route passes here, also those that nobody foresaw: reflection, metrics, what a later version adds.
* A refused RPC is answered without waiting for its message, which may have 64 MiB.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import grpc
from starlette import types as asgi
from starlette.routing import Route

from otel_bridge.auth.gate import Gate, Refusal, Shown
from otel_bridge.errors import PermissionDenied, Unauthenticated
from otel_bridge.model.identity import Scope
from otel_bridge.wire.access import needed
from otel_bridge.wire.call import Context, Handler, abort
from otel_bridge.wire.exchange import Endpoint, Exchange, Reply, Requests, json_fault, send_reply
from otel_bridge.wire.sender import note_sender

AUTHORIZATION = "authorization"
CLIENT_NAMES = "client_names"
"""Key in the `state` of an ASGI scope: DNS and URI names in the client's certificate. Not there: it has shown none."""


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic for type checkers only
    """The gate before the RPCs; `count` is told the reason of each refusal."""

    def __init__(self, gate: Gate, count: Requests) -> None:
        self._gate = gate
        self._count = count

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call, or one that refuses it."""
        handler = await continuation(handler_call_details)
        what = str(handler_call_details.method)
        scope = needed(what)
        if handler is None or scope is None:
            return handler
        given = [str(value) for key, value in handler_call_details.invocation_metadata or () if key == AUTHORIZATION]
        if not given and self._gate.takes_certificates:
            return self._checked_inside(handler, what, scope)
        # TLS itself demands a certificate at this door, where one is needed: whoever comes so far has one.
        shown = Shown(given, ())
        decision = self._gate.decide(shown, scope)
        if isinstance(decision, Refusal):
            return self._refusing(decision, what)
        note_sender(decision, partial(self._renew, shown, what, scope))
        return handler

    def _renew(self, shown: Shown, what: str, scope: Scope, peer: str) -> None:
        """A call goes on with another request: what it has shown counts as it does now."""
        decision = self._gate.decide(shown, scope)
        if isinstance(decision, Refusal):
            self._gate.turn_away(decision, "grpc", what, peer)
            raise decision.error
        note_sender(decision)

    def _refusing(self, refusal: Refusal, what: str) -> Handler:
        async def refuse(_messages: AsyncIterator[bytes], context: Context) -> None:
            await self._turn_away(refusal, what, context)

        # A handler of streams begins before the first message is there.
        return grpc.stream_unary_rpc_method_handler(refuse)

    def _checked_inside(self, handler: Handler, what: str, scope: Scope) -> Handler:
        """The same handler, but that it looks at the certificate first, which is known only inside a call."""

        async def check(context: Context) -> None:
            shown = Shown((), _names_in(context))
            decision = self._gate.decide(shown, scope)
            if isinstance(decision, Refusal):
                await self._turn_away(decision, what, context)
            else:
                note_sender(decision, partial(self._renew, shown, what, scope))

        async def answer_one(messages: AsyncIterator[Any], context: Context) -> Any:
            await check(context)
            return await handler.stream_unary(messages, context)

        async def answer_stream(messages: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            await check(context)
            async for answer in handler.stream_stream(messages, context):
                yield answer

        async def answer_all(messages: AsyncIterator[Any], context: Context) -> None:
            await check(context)
            await handler.stream_stream(messages, context)

        codecs = (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            yields = inspect.isasyncgenfunction(handler.stream_stream)  # grpc.aio has two kinds of them
            return grpc.stream_stream_rpc_method_handler(answer_stream if yields else answer_all, *codecs)
        return grpc.stream_unary_rpc_method_handler(answer_one, *codecs)

    async def _turn_away(self, refusal: Refusal, what: str, context: Context) -> None:
        self._gate.turn_away(refusal, "grpc", what, str(context.peer()))
        self._count(refusal.error.reason)
        await abort(context, refusal.error)


def _names_in(context: Context) -> list[str]:
    shown = context.auth_context()
    return [name.decode(errors="backslashreplace") for key in ("peer_dns", "peer_uri") for name in shown.get(key, ())]


class HttpGuard:
    """The gate before one route, as an ASGI application around the route's own."""

    def __init__(self, route: Route, gate: Gate, count: Requests) -> None:
        self._app = route.app
        self._path = route.path
        self._fault = route.app.fault if isinstance(route.app, Endpoint) else json_fault
        self._gate = gate
        self._count = count

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Answer the request, or let the route do it."""
        exchange = Exchange(scope, receive)
        what = f"{'GET' if exchange.method == 'HEAD' else exchange.method} {self._path}"
        right = needed(what)
        if right is not None:
            shown = Shown(exchange.headers(AUTHORIZATION.encode()), scope.get("state", {}).get(CLIENT_NAMES))
            decision = self._gate.decide(shown, right)
            if isinstance(decision, Refusal):
                self._gate.turn_away(decision, "http", what, _peer_of(scope))
                self._count(decision.error.reason)
                await send_reply(send, _challenged(self._fault(decision.error), decision.error))
                return
            note_sender(decision)
        await self._app(scope, receive, send)


def guard_routes(routes: Sequence[Route], gate: Gate, count: Requests) -> None:
    """Put the gate before each route; `count` is told the reason of each refusal."""
    for route in routes:
        route.app = HttpGuard(route, gate, count)


def _challenged(reply: Reply, error: Exception) -> Reply:
    """The reply with the header that RFC 6750, section 3, asks for; nothing where the credential is not at fault."""
    challenge = 'Bearer realm="otel-bridge"'
    match error:
        case PermissionDenied():
            challenge += f', error="insufficient_scope", scope="{error.scope}"'
        case Unauthenticated(is_invalid=True):
            challenge += ', error="invalid_token"'
        case Unauthenticated():
            pass
        case _:
            return reply
    return Reply(reply.body, reply.media_type, reply.status, {**reply.headers, "www-authenticate": challenge})


def _peer_of(scope: asgi.Scope) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "an unknown address"
