"""
The gRPC services as handlers of bytes.

Requests are parsed in the method and not by gRPC, whose answer to an undecodable message is INTERNAL: the sender would not
learn that the fault is its own. Each method is an envelope: parse, call, translate the error.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from otel_bridge.errors import BridgeError
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.intake import SENT_KEY, Intake, off_loop, parse
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.sender import sender
from otel_bridge.wire.status import code_of, message_of, status_of

_log = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.GenericRpcHandler[bytes, bytes]"  # generic for type checkers only
Method = Callable[[bytes, "Context"], Awaitable[Message]]
Context = grpc.aio.ServicerContext[Any, Any]
Requests = Callable[[str], None]
"""Told the outcome of each request: "ok", or the reason of its error."""

PROFILING = profiling_pb2.DESCRIPTOR.services_by_name["ProfilingService"].full_name
MAPPING = mapping_pb2.DESCRIPTOR.services_by_name["MappingService"].full_name

M = TypeVar("M", bound=Message)


def profiling_handler(intake: Intake, count: Requests) -> Handler:
    """`otel_bridge.v1.ProfilingService`."""

    async def export_events(body: bytes, context: Context) -> Message:
        return await intake.export_events(body, _sent(context), sender().tenant)

    async def upload_etdump(body: bytes, context: Context) -> Message:
        return await intake.upload_etdump(body, _sent(context), sender().tenant)

    return _handler(PROFILING, {"ExportEvents": export_events, "UploadETDump": upload_etdump}, count)


def mapping_handler(mappings: Mappings, count: Requests) -> Handler:
    """`otel_bridge.v1.MappingService`."""
    pb = mapping_pb2
    methods = {
        "PutMapping": _parsed(pb.PutMappingRequest, mappings.put),
        "GetMapping": _parsed(pb.GetMappingRequest, mappings.get),
        "ListMappings": _parsed(pb.ListMappingsRequest, mappings.page),
        "DeleteMapping": _parsed(pb.DeleteMappingRequest, mappings.delete),
        "SetAlias": _parsed(pb.SetAliasRequest, mappings.set_alias),
        "ListMissing": _parsed(pb.ListMissingRequest, mappings.list_missing),
    }
    return _handler(MAPPING, methods, count)


def _parsed(kind: type[M], method: Callable[[str, M], Awaitable[Message]]) -> Method:
    async def call(body: bytes, _context: Context) -> Message:
        return await method(sender().tenant, await off_loop(body, lambda: parse(kind, body)))

    return call


def _handler(service: str, methods: Mapping[str, Method], count: Requests) -> Handler:
    def enveloped(method: Method) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def call(body: bytes, context: Context) -> bytes:
            try:
                answer = (await method(body, context)).SerializeToString()
            except Exception as error:  # noqa: BLE001 - each error has its row in the table
                count(error.reason if isinstance(error, BridgeError) else "internal")
                await abort(context, error)
            count("ok")
            return answer

        return call

    rpcs = {name: grpc.unary_unary_rpc_method_handler(enveloped(method)) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, rpcs)


async def abort(context: Context, error: Exception) -> NoReturn:
    """End a call with what the table of status.py has for the error."""
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
