"""
What either door does with mappings: `MappingService`, message in and message out.

Invariant: the registry may wait for a disk, so it runs in a thread; the event loop never waits for it.
"""

import asyncio
from collections.abc import Callable

from otel_bridge.errors import MalformedRequest
from otel_bridge.mapping.registry import Registry
from otel_bridge.v1 import mapping_pb2 as pb

_TENANT = ""
_MAX_PAGE = 1000
_DEFAULT_PAGE = 100


class Mappings:
    """
    The service.

    missing    builds and aliases without a mapping, ascending by ref
    uploaded   told of each write

    Each method raises what the registry raises (mapping/registry.py), and `MalformedRequest`.
    """

    def __init__(
        self, registry: Registry, missing: Callable[[], list[pb.MissingMapping]], uploaded: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._missing = missing
        self._uploaded = uploaded

    async def put(self, request: pb.PutMappingRequest) -> pb.PutMappingResponse:
        """Store a mapping."""
        done = await asyncio.to_thread(self._registry.put, _TENANT, request.file, replace=request.replace)
        self._uploaded()
        return pb.PutMappingResponse(digest=done.digest, build_id=done.build_id, created=done.created)

    async def get(self, request: pb.GetMappingRequest) -> pb.GetMappingResponse:
        """Find a mapping."""
        entry = await asyncio.to_thread(self._registry.get, _TENANT, request.ref)
        return pb.GetMappingResponse(info=entry.info, mapping=entry.mapping)

    async def page(self, request: pb.ListMappingsRequest) -> pb.ListMappingsResponse:
        """List builds."""
        size = _page_size(request.page_size)
        found = await asyncio.to_thread(self._registry.page, _TENANT, request.page_token, size + 1)
        more = found[size - 1].build_id if len(found) > size else ""
        return pb.ListMappingsResponse(mappings=found[:size], next_page_token=more)

    async def list_missing(self, request: pb.ListMissingRequest) -> pb.ListMissingResponse:
        """List what devices named and nobody uploaded."""
        size, after = _page_size(request.page_size), request.page_token.encode()
        found = [each for each in self._missing() if each.ref.encode() > after]
        more = found[size - 1].ref if len(found) > size else ""
        return pb.ListMissingResponse(missing=found[:size], next_page_token=more)

    async def delete(self, request: pb.DeleteMappingRequest) -> pb.DeleteMappingResponse:
        """Forget a build."""
        build = await asyncio.to_thread(self._registry.delete, _TENANT, request.ref)
        return pb.DeleteMappingResponse(build_id=build)

    async def set_alias(self, request: pb.SetAliasRequest) -> pb.SetAliasResponse:
        """Let an alias name a build."""
        build, before = await asyncio.to_thread(self._registry.set_alias, _TENANT, request.name, request.version, request.ref)
        self._uploaded()
        return pb.SetAliasResponse(build_id=build, previous_build_id=before or "")


def _page_size(asked: int) -> int:
    if asked > _MAX_PAGE:
        raise MalformedRequest(f"page_size: is {asked}; at most {_MAX_PAGE} are allowed")
    return asked or _DEFAULT_PAGE
