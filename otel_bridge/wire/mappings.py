"""
What either door does with mappings: `MappingService`, message in and message out.

Invariants
* Each call is of one tenant, and sees, names and changes what is of that tenant alone.
* The registry may wait for a disk, so it runs in a thread; the event loop never waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from otel_bridge.errors import MalformedRequest
from otel_bridge.mapping.quota import NO_QUOTA, Quota
from otel_bridge.mapping.registry import Registry
from otel_bridge.v1 import mapping_pb2 as pb

_MAX_PAGE = 1000
_DEFAULT_PAGE = 100


class Mappings:
    """
    The service.

    missing    builds and aliases of a tenant without a mapping, ascending by ref
    uploaded   told of each write, and awaited before it is answered
    quota_of   how much a tenant may keep

    Each method raises what the registry raises (mapping/registry.py), and `MalformedRequest`.
    """

    def __init__(
        self,
        registry: Registry,
        missing: Callable[[str], Awaitable[list[pb.MissingMapping]]],
        uploaded: Callable[[], Awaitable[None]],
        quota_of: Callable[[str], Quota] = lambda _tenant: NO_QUOTA,
    ) -> None:
        self._registry = registry
        self._missing = missing
        self._uploaded = uploaded
        self._quota_of = quota_of

    async def put(self, tenant: str, request: pb.PutMappingRequest) -> pb.PutMappingResponse:
        """Store a mapping."""
        done = await asyncio.to_thread(
            self._registry.put, tenant, request.file, replace=request.replace, quota=self._quota_of(tenant)
        )
        await self._uploaded()
        return pb.PutMappingResponse(digest=done.digest, build_id=done.build_id, created=done.created)

    async def get(self, tenant: str, request: pb.GetMappingRequest) -> pb.GetMappingResponse:
        """Find a mapping."""
        entry = await asyncio.to_thread(self._registry.get, tenant, request.ref)
        return pb.GetMappingResponse(info=entry.info, mapping=entry.mapping)

    async def page(self, tenant: str, request: pb.ListMappingsRequest) -> pb.ListMappingsResponse:
        """List builds."""
        size = _page_size(request.page_size)
        found = await asyncio.to_thread(self._registry.page, tenant, request.page_token, size + 1)
        more = found[size - 1].build_id if len(found) > size else ""
        return pb.ListMappingsResponse(mappings=found[:size], next_page_token=more)

    async def list_missing(self, tenant: str, request: pb.ListMissingRequest) -> pb.ListMissingResponse:
        """List what devices named and nobody uploaded."""
        size, after = _page_size(request.page_size), request.page_token.encode()
        found = [each for each in await self._missing(tenant) if each.ref.encode() > after]
        more = found[size - 1].ref if len(found) > size else ""
        return pb.ListMissingResponse(missing=found[:size], next_page_token=more)

    async def delete(self, tenant: str, request: pb.DeleteMappingRequest) -> pb.DeleteMappingResponse:
        """Forget a build."""
        build = await asyncio.to_thread(self._registry.delete, tenant, request.ref)
        return pb.DeleteMappingResponse(build_id=build)

    async def set_alias(self, tenant: str, request: pb.SetAliasRequest) -> pb.SetAliasResponse:
        """Let an alias name a build."""
        build, before = await asyncio.to_thread(
            self._registry.set_alias, tenant, request.name, request.version, request.ref, quota=self._quota_of(tenant)
        )
        await self._uploaded()
        return pb.SetAliasResponse(build_id=build, previous_build_id=before or "")


def _page_size(asked: int) -> int:
    if asked > _MAX_PAGE:
        raise MalformedRequest(f"page_size: is {asked}; at most {_MAX_PAGE} are allowed")
    return asked or _DEFAULT_PAGE
