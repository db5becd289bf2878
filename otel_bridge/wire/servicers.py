"""
The gRPC services as handlers of bytes.

Requests are parsed in the method and not by gRPC, whose answer to an undecodable message is INTERNAL: the sender would not
learn that the fault is its own. Each method is an envelope: let in, read, parse, call, translate the error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from otel_bridge.errors import BridgeError
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.call import Context, WayIn, abort, entry, is_given_up
from otel_bridge.wire.exchange import GIVEN_UP
from otel_bridge.wire.intake import SENT_KEY, Disconnected, Intake, off_loop, parse
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.sender import sender
from otel_bridge.wire.streams import Streams

Handler: TypeAlias = "grpc.GenericRpcHandler[bytes, bytes]"  # generic for type checkers only
_Rpc: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
Method = Callable[[bytes, Context], Awaitable[bytes]]

PROFILING = profiling_pb2.DESCRIPTOR.services_by_name["ProfilingService"].full_name
MAPPING = mapping_pb2.DESCRIPTOR.services_by_name["MappingService"].full_name

M = TypeVar("M", bound=Message)


def profiling_handler(intake: Intake, way_in: WayIn, streams: Streams) -> Handler:
    """`otel_bridge.v1.ProfilingService`."""

    async def export_events(body: bytes, context: Context) -> bytes:
        return await intake.export_events(body, entry(context, SENT_KEY), sender().tenant, partial(is_given_up, context))

    async def upload_etdump(body: bytes, context: Context) -> bytes:
        return await intake.upload_etdump(body, entry(context, SENT_KEY), sender().tenant, partial(is_given_up, context))

    methods = {"ExportEvents": export_events, "UploadETDump": upload_etdump}
    return _handler(PROFILING, methods, way_in, {"StreamEvents": grpc.stream_stream_rpc_method_handler(streams.answer)})


def mapping_handler(mappings: Mappings, way_in: WayIn) -> Handler:
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
    return _handler(MAPPING, methods, way_in)


def _parsed(kind: type[M], method: Callable[[str, M], Awaitable[Message]]) -> Method:
    async def call(body: bytes, _context: Context) -> bytes:
        return (await method(sender().tenant, await off_loop(body, parse, kind, body))).SerializeToString()

    return call


def _handler(service: str, methods: Mapping[str, Method], way_in: WayIn, streams: Mapping[str, _Rpc] | None = None) -> Handler:
    def enveloped(method: Method) -> Callable[[object, Context], Awaitable[bytes]]:
        async def let_in(context: Context) -> bytes:
            with await way_in.turnstile.enter() as visit:
                body = await way_in.arrivals.read(context)
                visit.resize(len(body))
                return await method(body, context)

        async def call(_messages: object, context: Context) -> bytes:
            try:
                answer = await let_in(context)
            except grpc.aio.AbortError:  # turned away while its message was on its way, and counted there
                raise
            except asyncio.CancelledError:
                way_in.count(GIVEN_UP)
                raise
            except Disconnected as error:
                way_in.count(GIVEN_UP)
                await abort(context, error)
            except Exception as error:  # noqa: BLE001 - each error has its row in the table
                way_in.count(error.reason if isinstance(error, BridgeError) else "internal")
                await abort(context, error)
            way_in.count("ok")
            return answer

        return call

    rpcs = {name: grpc.stream_unary_rpc_method_handler(enveloped(method)) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, {**rpcs, **(streams or {})})
