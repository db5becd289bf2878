"""
A request over HTTP and its answer: the envelope of every route that takes or gives something of the bridge's.

Invariants
* Each exchange is counted once, by its outcome, under the same words as over gRPC.
* An error is answered by the table of status.py, as JSON or, to who speaks protobuf, as `google.rpc.Status`; where a retry
  helps, `Retry-After` says when.
* Plain ASGI, so that no request pays for objects that it does not need.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from otel_bridge.errors import BodyStalled, BridgeError, Draining
from otel_bridge.wire.intake import SENT_KEY, Disconnected
from otel_bridge.wire.status import code_of, message_of, retry_after_s, status_of
from otel_bridge.wire.turnstile import Turnstile, Visit

_log = logging.getLogger(__name__)

JSON = "application/json"
PROTOBUF = "application/x-protobuf"

_MAX_DIGITS = 18

Requests = Callable[[str], None]
"""Told the outcome of each request: "ok", or the reason of its error."""

GIVEN_UP = "disconnected"
"""The outcome of a request whose client is gone, or does not wait any more."""

IS_GONE = "is_gone"
"""Key in the `state` of an ASGI scope: a function that tells whether the connection is gone."""


@dataclass(slots=True)  # frozen, it would take three times as long to make, and each request makes one
class Exchange:
    """
    A request that has come, but for its body.

    visit   what it takes of the bridge; None: it has not been let in yet
    """

    scope: Scope
    receive: Receive
    visit: Visit | None = None

    @property
    def method(self) -> str:
        """GET, PUT, ..."""
        return str(self.scope["method"])

    @property
    def query(self) -> bytes:
        """What follows the question mark, as it was sent."""
        query: bytes = self.scope["query_string"]
        return query

    @property
    def sent(self) -> str | None:
        """The sender's word for when it sent."""
        return self.header(SENT_KEY.encode()) or None

    def header(self, name: bytes) -> str:
        """A header, "" where there is none; of several the first."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return ""

    def headers(self, name: bytes) -> list[str]:
        """All headers of a name."""
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]

    @property
    def length(self) -> int:
        """Bytes of the body as it is sent; 0 where that is not known."""
        said = self.header(b"content-length")
        return int(said) if said.isascii() and said.isdecimal() and len(said) <= _MAX_DIGITS else 0

    def resize(self, size: int) -> None:
        """The body has so many bytes by now. Raises `Overloaded` where there is no room for them."""
        if self.visit is not None:
            self.visit.resize(size)

    def is_given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        is_gone = self.scope.get("state", {}).get(IS_GONE)
        return is_gone is not None and bool(is_gone())

    def part(self, name: str) -> str:
        """A part of the path, by its name in the route; "" where the route has none."""
        return str(self.scope.get("path_params", {}).get(name, ""))


@dataclass(slots=True)  # as `Exchange`
class Reply:
    """An answer."""

    body: bytes
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


_UNHEARD = Reply(b"", JSON, 499)
"""Where nobody is there to hear it: the server takes no answer at all for a fault."""

Answer = Callable[[Exchange], Awaitable[Reply]]
FaultReply = Callable[[Exception], Reply]


def json_reply(value: Any, status: int = 200) -> Reply:
    """An answer in JSON."""
    return Reply(json.dumps(value, separators=(",", ":")).encode(), JSON, status)


def json_fault(error: Exception) -> Reply:
    """An error as an object with `code`, `reason` and `message`."""
    code = code_of(error)
    fault = {"code": code.grpc.name, "reason": _reason_of(error), "message": message_of(error)}
    return Reply(json_reply(fault).body, JSON, code.http, _headers_of(error, retry_after_s(error)))


def protobuf_fault(error: Exception) -> Reply:
    """An error as `google.rpc.Status` with the details that it has over gRPC, as OTLP over HTTP answers."""
    wait_s = retry_after_s(error)
    return Reply(status_of(error, wait_s).SerializeToString(), PROTOBUF, code_of(error).http, _headers_of(error, wait_s))


async def send_reply(send: Send, reply: Reply) -> None:
    """Give an answer."""
    headers = [(b"content-type", reply.media_type.encode()), (b"content-length", b"%d" % len(reply.body))]
    headers += [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


class Endpoint:
    """
    A route as an ASGI application.

    answer      makes the answer; what it raises is an error of the table
    turnstile   lets it in
    count       told the outcome
    fault       how errors are written
    """

    def __init__(self, answer: Answer, turnstile: Turnstile, count: Requests, fault: FaultReply = json_fault) -> None:
        self._answer = answer
        self._turnstile = turnstile
        self._count = count
        self.fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            with await self._turnstile.enter() as visit:
                reply = await self._answer(Exchange(scope, receive, visit))
        except Disconnected:
            self._count(GIVEN_UP)
            reply = _UNHEARD
        except asyncio.CancelledError:  # the server's grace for requests under way is over
            stopped = Draining("the bridge stopped before the body was there; send it again, to another instance or later")
            reply = self._fault_of(stopped)
        except Exception as error:  # noqa: BLE001 - each error has its row in the table
            reply = self._fault_of(error)
        else:
            self._count("ok")
        await send_reply(send, reply)

    def _fault_of(self, error: Exception) -> Reply:
        if not isinstance(error, BridgeError):
            _log.error("a request failed inside the bridge", exc_info=error)
        self._count(_reason_of(error))
        return self.fault(error)


def _reason_of(error: Exception) -> str:
    return error.reason if isinstance(error, BridgeError) else "internal"


def _headers_of(error: Exception, wait_s: float | None) -> dict[str, str]:
    headers = {} if wait_s is None else {"retry-after": str(math.ceil(wait_s))}
    if isinstance(error, BodyStalled):
        headers["connection"] = "close"  # where the rest of the body would stand, no new request can begin
    return headers
