"""
The HTTP door: ETDumps without a client, health and metrics.

    POST /v1/etdump?model=NAME@VERSION&method=M    body: the ETDump, Content-Encoding gzip allowed
                    build_id=ID  stream=32HEX  sequence=N  first_position=N  ended_at=UNIX_NS  runtime_version=V
                    tick_ratio=N/D  counter_bits=B  anchor=TICKS=UNIX_NS  resource.KEY=VALUE
    GET  /healthz    200 while the process lives
    GET  /readyz     200 while requests are taken, else 503
    GET  /metrics    Prometheus text

Answers are JSON: counts with 200; else an object with `code`, `reason` and `message`, and `Retry-After` where a retry helps.
"""

import asyncio
import logging
import math
import re
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from otel_bridge.errors import BridgeError, Draining, MalformedRequest, TooLarge
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.intake import SENT_KEY, Intake
from otel_bridge.wire.status import code_of, message_of, retry_after_s

_log = logging.getLogger(__name__)


def http_app(
    intake: Intake,
    *,
    max_request_bytes: int,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    count: Callable[[str], None],
) -> Starlette:
    """
    The routes.

    max_request_bytes   of a body, after decompression
    ready               whether requests are taken
    metrics             Prometheus text exposition
    count               told the outcome of each upload: "ok", or the reason of its error
    """

    async def upload(request: Request) -> Response:
        try:
            message = upload_request(request.scope["query_string"])
            message.etdump = await read_body(request, max_request_bytes)
            answer = await intake.upload_etdump(message.SerializeToString(), request.headers.get(SENT_KEY))
        except ClientDisconnect:
            count("disconnected")
            return Response(status_code=400)
        except asyncio.CancelledError:  # the server's grace for requests under way is over
            count(Draining.reason)
            return _fault(Draining("the bridge stopped before the body was there; send it again, to another instance or later"))
        except Exception as error:  # noqa: BLE001 - each error has its row in the table
            count(error.reason if isinstance(error, BridgeError) else "internal")
            return _fault(error)
        count("ok")
        return JSONResponse(_counts(answer))

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        return PlainTextResponse("ready\n") if ready() else PlainTextResponse("not ready\n", 503)

    async def show_metrics(_request: Request) -> Response:
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return Starlette(
        routes=[
            Route("/v1/etdump", upload, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
        ]
    )


def upload_request(query: bytes) -> pb.UploadETDumpRequest:
    """
    The query of an upload as a request without its ETDump; what is not UTF-8 arrives byte for byte, as it would by gRPC.

    Raises `MalformedRequest` for an unknown or repeated parameter and for a value that cannot be read.
    """
    message = pb.UploadETDumpRequest()
    seen: set[str] = set()
    text = query.decode("utf-8", "surrogateescape")
    for key, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        if key in seen:
            raise MalformedRequest(f"query parameter {key[:64]!a}: is given twice; give it once")
        seen.add(key)
        if key.startswith("resource."):
            attribute = message.stream.resource.add(key=_bytes(key.removeprefix("resource.")))
            attribute.value.text = _bytes(value)
        elif key in _PARAMETERS:
            try:
                _PARAMETERS[key](message, value)
            except ValueError as error:
                raise MalformedRequest(f"query parameter {key}: {error}") from error
        else:
            known = ", ".join([*_PARAMETERS, "resource.KEY"])
            raise MalformedRequest(f"query parameter {key[:64]!a}: is not known; known are {known}")
    return message


def _set_model(message: pb.UploadETDumpRequest, value: str) -> None:
    name, _, version = value.partition("@")
    message.stream.model.name, message.stream.model.version = _bytes(name), _bytes(version)


def _set_stream(message: pb.UploadETDumpRequest, value: str) -> None:
    if not re.fullmatch("[0-9a-fA-F]{32}", value):
        raise ValueError("must be 32 hex digits")
    message.stream.stream_id = bytes.fromhex(value)


def _set_ratio(message: pb.UploadETDumpRequest, value: str) -> None:
    numerator, slash, denominator = value.partition("/")
    clock = _clock(message)
    clock.numerator, clock.denominator = _number(numerator, 64), _number(denominator, 64) if slash else 1
    if not clock.numerator or not clock.denominator:
        raise ValueError("must be N or N/D, neither of them 0")


def _set_anchor(message: pb.UploadETDumpRequest, value: str) -> None:
    ticks, equals, unix_ns = value.partition("=")
    if not equals:
        raise ValueError("must look like TICKS=UNIX_NS")
    _clock(message).anchor_ticks, _clock(message).anchor_unix_ns = _number(ticks, 64), _number(unix_ns, 63)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _clock(message: pb.UploadETDumpRequest) -> pb.Clock:
    return message.stream.clocks[0] if message.stream.clocks else message.stream.clocks.add()


def _number(value: str, bits: int) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 20 or int(value) >= 2**bits:  # noqa: PLR2004 - digits of 2^64
        raise ValueError(f"must be a number from 0 to 2^{bits}-1")
    return int(value)


def _setter(path: str, bits: int | None = None) -> Callable[[pb.UploadETDumpRequest, str], None]:
    *parents, last = path.split(".")

    def set_field(message: pb.UploadETDumpRequest, value: str) -> None:
        target: Any = message
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, _bytes(value) if bits is None else _number(value, bits))

    return set_field


_PARAMETERS: dict[str, Callable[[pb.UploadETDumpRequest, str], None]] = {
    "model": _set_model,
    "build_id": _setter("stream.model.build_id"),
    "method": _setter("method"),
    "stream": _set_stream,
    "sequence": _setter("stream.sequence", 64),
    "first_position": _setter("first_position", 64),
    "ended_at": _setter("ended_at_unix_ns", 63),
    "runtime_version": _setter("stream.runtime_version"),
    "tick_ratio": _set_ratio,
    "counter_bits": lambda message, value: setattr(_clock(message), "counter_bits", _number(value, 8)),
    "anchor": _set_anchor,
}


async def read_body(request: Request, limit: int) -> bytes:
    """
    The body, decompressed where it is gzip, at most `limit` bytes; never more than that is held.

    Raises `TooLarge`, `MalformedRequest`.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in {"identity", "gzip"}:
        raise MalformedRequest("header Content-Encoding: is neither gzip nor identity; send one of these")
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16) if encoding == "gzip" else None
    body = bytearray()
    async for chunk in request.stream():
        try:
            body += inflate.decompress(chunk, limit + 1 - len(body)) if inflate else chunk
        except zlib.error as error:
            raise MalformedRequest(f"the body is not gzip, as its Content-Encoding says: {error}") from error
        if inflate and inflate.unused_data:
            raise MalformedRequest(
                f"the body goes on after its gzip ended, {len(body)} bytes decompressed; send one gzip member"
            )
        if len(body) > limit:
            raise TooLarge(f"the body is over {limit} bytes; send less at once, or raise server.max_request_bytes")
    if inflate and not inflate.eof:
        raise MalformedRequest(f"the gzip body ends early, after {len(body)} decompressed bytes; send it whole")
    return bytes(body)


def _counts(answer: pb.UploadETDumpResponse) -> dict[str, Any]:
    return {
        "accepted": answer.accepted,
        "rejected": {rejection.reason: rejection.events for rejection in answer.rejected},
        "first_rejection": answer.first_rejection,
        "blocks": answer.blocks,
    }


def _fault(error: Exception) -> Response:
    if not isinstance(error, BridgeError):
        _log.error("a request failed inside the bridge", exc_info=error)
    wait = retry_after_s(error)
    headers = {"Retry-After": str(math.ceil(wait))} if wait is not None else {}
    code = code_of(error)
    reason = error.reason if isinstance(error, BridgeError) else "internal"
    content = {"code": code.grpc.name, "reason": reason, "message": message_of(error)}
    return JSONResponse(content, code.http, headers=headers)
