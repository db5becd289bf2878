"""
Mappings over HTTP: `MappingService` for build pipelines that have curl and no gRPC.

    PUT    /v1/mappings[/BUILD_ID]?model=NAME@VERSION&replace=true   body: a built document, binary or JSON
    GET    /v1/mappings?page_size=N&page_token=T
    GET    /v1/mappings/REF                                          the document: JSON, or binary where Accept prefers it
    DELETE /v1/mappings/REF
    GET    /v1/missing?page_size=N&page_token=T
    PUT    /v1/aliases/NAME@VERSION?ref=REF

Invariant: no weights come in. An ETRecord and a program are refused by their first bytes, before the rest is sent.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from starlette.routing import Route

from otel_bridge.errors import MalformedRequest
from otel_bridge.mapping.document import to_json
from otel_bridge.mapping.source import read_document, refuse_weights, write_file
from otel_bridge.v1 import mapping_pb2 as pb
from otel_bridge.wire.exchange import JSON, Answer, Endpoint, Exchange, Reply, json_reply
from otel_bridge.wire.intake import off_loop
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.query import flag, number, text, values
from otel_bridge.wire.sender import sender

BINARY = "application/octet-stream"
_CREATED = 201

_PAGE: dict[str, Callable[[str], Any]] = {"page_size": lambda value: number(value, 32), "page_token": text}
PUT_PARAMETERS: dict[str, Callable[[str], Any]] = {"model": text, "replace": flag}
_QUALITY = re.compile(r"\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*\Z", re.IGNORECASE)

ReadBody = Callable[[Exchange, Callable[[bytes], None]], Awaitable[bytes]]
"""The body of a request, whose first bytes are shown to the function."""


def mapping_routes(mappings: Mappings, read: ReadBody, endpoint: Callable[[Answer], Endpoint]) -> list[Route]:
    """The routes."""

    async def put(exchange: Exchange) -> Reply:
        asked = values(exchange.query, PUT_PARAMETERS)
        body = await read(exchange, refuse_weights)
        file = await off_loop(body, read_document, body)
        file.build_id = exchange.part("ref") or file.build_id
        if "model" in asked:
            file.name, _, file.version = asked["model"].partition("@")
        done = await mappings.put(sender().tenant, pb.PutMappingRequest(file=file, replace=asked.get("replace", False)))
        return _told(done, _CREATED if done.created else 200)

    async def get(exchange: Exchange) -> Reply:
        values(exchange.query, {})
        found = await mappings.get(sender().tenant, pb.GetMappingRequest(ref=exchange.part("ref")))
        file = pb.MappingFile(mapping=found.mapping, build_id=found.info.build_id)
        is_binary = _prefers_binary(exchange.header(b"accept"))
        # In a thread: of a large document the event loop would hear for a second.
        return await asyncio.to_thread(_document_reply, file, is_binary=is_binary)

    async def delete(exchange: Exchange) -> Reply:
        values(exchange.query, {})
        return _told(await mappings.delete(sender().tenant, pb.DeleteMappingRequest(ref=exchange.part("ref"))))

    async def page(exchange: Exchange) -> Reply:
        return _told(await mappings.page(sender().tenant, pb.ListMappingsRequest(**values(exchange.query, _PAGE))))

    async def list_missing(exchange: Exchange) -> Reply:
        return _told(await mappings.list_missing(sender().tenant, pb.ListMissingRequest(**values(exchange.query, _PAGE))))

    async def set_alias(exchange: Exchange) -> Reply:
        asked = values(exchange.query, {"ref": text})
        if not asked.get("ref"):
            raise MalformedRequest("query parameter ref: is not given; name the build that the alias shall stand for")
        name, _, version = exchange.part("alias").partition("@")
        return _told(
            await mappings.set_alias(sender().tenant, pb.SetAliasRequest(name=name, version=version, ref=asked["ref"]))
        )

    def route(path: str, **answers: Callable[[Exchange], Awaitable[Reply]]) -> Route:
        async def answer(exchange: Exchange) -> Reply:
            return await answers["GET" if exchange.method == "HEAD" else exchange.method](exchange)

        return Route(path, endpoint(answer), methods=list(answers))

    return [
        route("/v1/mappings", GET=page, PUT=put),
        route("/v1/mappings/{ref:path}", GET=get, PUT=put, DELETE=delete),
        route("/v1/missing", GET=list_missing),
        route("/v1/aliases/{alias:path}", PUT=set_alias),
    ]


def _document_reply(file: pb.MappingFile, *, is_binary: bool) -> Reply:
    return Reply(write_file(file, ""), BINARY) if is_binary else Reply(to_json(file).encode(), JSON)


def _told(message: Message, status: int = 200) -> Reply:
    named: dict[str, Any] = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    return json_reply(MessageToDict(message, **named), status)


def _prefers_binary(accept: str) -> bool:
    """Whether a header Accept gives the binary form a higher quality than JSON (RFC 9110, section 12.5.1)."""
    quality: dict[str, float] = {}
    for each in accept.lower().split(","):
        kind, *options = each.split(";")
        found = [match for match in map(_QUALITY.match, options) if match]
        quality[kind.strip()] = float(found[-1][1]) if found else 1.0
    rest = quality.get("application/*", quality.get("*/*", 0.0))
    return quality.get(BINARY, rest) > quality.get(JSON, rest)
