"""
The gRPC services as handlers of bytes.

Requests are parsed in the method and not by gRPC, whose answer to an undecodable message is INTERNAL: the sender would not
learn that the fault is its own. Each method is an envelope: parse, call, translate the error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import Message

from otel_bridge.errors import BridgeError, MalformedRequest
from otel_bridge.mapping.registry import Registry
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.intake import SENT_KEY, Intake, parse
from otel_bridge.wire.status import code_of, message_of, status_of

_log = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.GenericRpcHandler[bytes, bytes]"  # generic for type checkers only
Method = Callable[[bytes, "Context"], Awaitable[Message]]
Context = grpc.aio.ServicerContext[Any, Any]
Requests = Callable[[str], None]
"""Told the outcome of each request: "ok", or the reason of its error."""

PROFILING = profiling_pb2.DESCRIPTOR.services_by_name["ProfilingService"].full_name
MAPPING = mapping_pb2.DESCRIPTOR.services_by_name["MappingService"].full_name

_TENANT = ""
_MAX_PAGE = 1000
_DEFAULT_PAGE = 100


def profiling_handler(intake: Intake, count: Requests) -> Handler:
    """`otel_bridge.v1.ProfilingService`."""

    async def export_events(body: bytes, context: Context) -> Message:
        return await intake.export_events(body, _sent(context))

    async def upload_etdump(body: bytes, context: Context) -> Message:
        return await intake.upload_etdump(body, _sent(context))

    return _handler(PROFILING, {"ExportEvents": export_events, "UploadETDump": upload_etdump}, count)


def mapping_handler(
    registry: Registry,
    missing: Callable[[], list[mapping_pb2.MissingMapping]],
    uploaded: Callable[[], None],
    count: Requests,
) -> Handler:
    """
    `otel_bridge.v1.MappingService`. The registry may wait for a disk, so it runs in a thread.

    missing    builds and aliases without a mapping, ascending by ref
    uploaded   told of each write
    """

    async def put(body: bytes, _context: Context) -> Message:
        request = await asyncio.to_thread(parse, mapping_pb2.PutMappingRequest, body)
        done = await asyncio.to_thread(registry.put, _TENANT, request.file, replace=request.replace)
        uploaded()
        return mapping_pb2.PutMappingResponse(digest=done.digest, build_id=done.build_id, created=done.created)

    async def get(body: bytes, _context: Context) -> Message:
        request = parse(mapping_pb2.GetMappingRequest, body)
        entry = await asyncio.to_thread(registry.get, _TENANT, request.ref)
        return mapping_pb2.GetMappingResponse(info=entry.info, mapping=entry.mapping)

    async def page(body: bytes, _context: Context) -> Message:
        request = parse(mapping_pb2.ListMappingsRequest, body)
        size = _page_size(request.page_size)
        found = await asyncio.to_thread(registry.page, _TENANT, request.page_token, size + 1)
        more = found[size - 1].build_id if len(found) > size else ""
        return mapping_pb2.ListMappingsResponse(mappings=found[:size], next_page_token=more)

    async def list_missing(body: bytes, _context: Context) -> Message:
        request = parse(mapping_pb2.ListMissingRequest, body)
        size, after = _page_size(request.page_size), request.page_token.encode()
        found = [each for each in missing() if each.ref.encode() > after]
        more = found[size - 1].ref if len(found) > size else ""
        return mapping_pb2.ListMissingResponse(missing=found[:size], next_page_token=more)

    async def delete(body: bytes, _context: Context) -> Message:
        request = parse(mapping_pb2.DeleteMappingRequest, body)
        build = await asyncio.to_thread(registry.delete, _TENANT, request.ref)
        return mapping_pb2.DeleteMappingResponse(build_id=build)

    async def set_alias(body: bytes, _context: Context) -> Message:
        request = parse(mapping_pb2.SetAliasRequest, body)
        build, previous = await asyncio.to_thread(registry.set_alias, _TENANT, request.name, request.version, request.ref)
        uploaded()
        return mapping_pb2.SetAliasResponse(build_id=build, previous_build_id=previous or "")

    methods = {
        "PutMapping": put,
        "GetMapping": get,
        "ListMappings": page,
        "DeleteMapping": delete,
        "SetAlias": set_alias,
        "ListMissing": list_missing,
    }
    return _handler(MAPPING, methods, count)


def _page_size(asked: int) -> int:
    if asked > _MAX_PAGE:
        raise MalformedRequest(f"page_size: is {asked}; at most {_MAX_PAGE} are allowed")
    return asked or _DEFAULT_PAGE


def _handler(service: str, methods: Mapping[str, Method], count: Requests) -> Handler:
    def enveloped(method: Method) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def call(body: bytes, context: Context) -> bytes:
            try:
                answer = (await method(body, context)).SerializeToString()
            except Exception as error:  # noqa: BLE001 - each error has its row in the table
                count(error.reason if isinstance(error, BridgeError) else "internal")
                await _abort(context, error)
            count("ok")
            return answer

        return call

    rpcs = {name: grpc.unary_unary_rpc_method_handler(enveloped(method)) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, rpcs)


async def _abort(context: Context, error: Exception) -> NoReturn:
    if not isinstance(error, BridgeError):
        _log.error("a request failed inside the bridge", exc_info=error)
    details = status_of(error).SerializeToString()
    await context.abort(code_of(error).grpc, message_of(error), (("grpc-status-details-bin", details),))
    raise AssertionError("abort always raises")


def _sent(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == SENT_KEY:
            return value if isinstance(value, str) else None
    return None
