"""A credential is of one tenant: what it sends is that tenant's, and of what others have it sees nothing."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.mappings import mapping_of
from support.requests import a_request
from support.scenes import delegated
from support.tokens import ALL, Issuer, gate_of

from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.v1 import mapping_pb2, profiling_pb2_grpc

TENANTS = ("", "acme", "globex")


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "tokens.json")


def upload(registry: MemoryRegistry, tenant: str, build: str, handle: int = 1) -> str:
    """Give a tenant a mapping with the alias net@1: its digest."""
    file = mapping_pb2.MappingFile(mapping=mapping_of({1: [handle]}), build_id=build, name="net", version="1")
    return registry.put(tenant, file).digest


def test_events_are_of_the_senders_tenant(opened: Any, run: Any, issuer: Issuer) -> None:
    """Requests of several tenants at once, by either door: each is its tenant's, as is the build of its alias."""
    bearers = {tenant: f"Bearer {issuer.issue(*ALL, tenant=tenant)}" for tenant in TENANTS}
    gate = gate_of(issuer.file)

    async def check() -> None:
        async with opened(gate=gate) as doors:
            for tenant in TENANTS:
                upload(doors.registry, tenant, f"of {tenant}")
            stub = profiling_pb2_grpc.ProfilingServiceStub(doors.channel)

            async def send(tenant: str, number: int) -> None:
                request = a_request(delegated("x", 0, 1, 2))
                request.stream.model.Clear()
                request.stream.model.name, request.stream.model.version = b"net", b"1"
                request.stream.sequence = number
                if number % 2:
                    await stub.ExportEvents(request, metadata=[("authorization", bearers[tenant])])
                else:
                    headers = {"authorization": bearers[tenant]}
                    answer = await doors.client.post("/v1/events", content=request.SerializeToString(), headers=headers)
                    assert answer.status_code == 200

            await asyncio.gather(*(send(tenant, number) for number in range(20) for tenant in TENANTS))
            streams = [record.batch.streams[0] for record in await doors.outlet.read(10**9)]
            assert sorted((each.tenant, each.sequence) for each in streams) == [(t, n) for t in TENANTS for n in range(20)]
            assert all(each.build == f"of {each.tenant}" for each in streams)

    run(check())


def test_another_tenants_mappings_are_not_there(opened: Any, run: Any, issuer: Issuer) -> None:
    """
    What one tenant has, another one can neither read, list, replace, delete nor name.

    The answers are those that it gets for what does not exist at all.
    """
    bearer = [("authorization", f"Bearer {issuer.issue(*ALL, tenant='globex')}")]
    gate = gate_of(issuer.file)
    pb = mapping_pb2

    async def check() -> None:
        async with opened(gate=gate) as doors:
            digest = upload(doors.registry, "acme", "secret")

            async def ask(method: str, request: Any, answer: Any) -> tuple[grpc.StatusCode, str, Any]:
                call = doors.channel.unary_unary(
                    f"/otel_bridge.v1.MappingService/{method}", type(request).SerializeToString, answer.FromString
                )(request, metadata=bearer)
                code = await call.code()
                return code, await call.details() or "", await call if code is grpc.StatusCode.OK else None

            for known, unknown in (("secret", "no-one"), ("net@1", "no@1"), (f"sha256:{digest[:16]}", "sha256:" + "0" * 16)):
                for method, kind, answer in (
                    ("GetMapping", pb.GetMappingRequest, pb.GetMappingResponse),
                    ("DeleteMapping", pb.DeleteMappingRequest, pb.DeleteMappingResponse),
                    ("SetAlias", lambda ref: pb.SetAliasRequest(name="mine", ref=ref), pb.SetAliasResponse),
                ):
                    of_known, of_unknown = (
                        await ask(method, kind(ref=known), answer),
                        await ask(method, kind(ref=unknown), answer),
                    )
                    assert of_known[0] is of_unknown[0] is grpc.StatusCode.NOT_FOUND
                    assert of_known[1] == of_unknown[1].replace(unknown, known)
            assert not (await ask("ListMappings", pb.ListMappingsRequest(), pb.ListMappingsResponse))[2].mappings
            file = pb.MappingFile(mapping=mapping_of({1: [2]}), build_id="secret", name="net", version="1")
            code, _, put = await ask("PutMapping", pb.PutMappingRequest(file=file), pb.PutMappingResponse)
            assert (code, put.created) == (grpc.StatusCode.OK, True)
            assert doors.registry.get("acme", "net@1").info.digest == digest
            assert doors.registry.get("globex", "net@1").info.digest == put.digest != digest

    run(check())
