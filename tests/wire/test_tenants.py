"""A credential is of one tenant: what it sends is that tenant's, and of what others have it sees nothing."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from support.identity_provider import Provider
from support.mappings import mapping_of
from support.registries import digest_of
from support.requests import a_request
from support.scenes import delegated
from support.tokens import ALL, Issuer, gate_of

from otel_bridge.auth.rates import Rates
from otel_bridge.config.tenants import TenantsConfig
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.quota import Quota
from otel_bridge.mapping.source import write_file
from otel_bridge.model.identity import Scope
from otel_bridge.v1 import mapping_pb2, profiling_pb2_grpc
from otel_bridge.wire.access import ACCESS

TENANTS = ("", "acme", "globex")
BUILD = "a-build"


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


def of_mappings(handle: int = 2) -> dict[str, list[tuple[bytes, str]]]:
    """
    What one tenant may ask about the mappings of another: for each RPC and route (body, path).

    Names are those of ACME's build: its id, its alias, the digest of its document; and pages.
    """
    pb = mapping_pb2
    refs = [BUILD, "net@1", f"sha256:{digest_of(mapping_of({1: [1]}))[:12]}"]
    put = pb.PutMappingRequest(
        file=pb.MappingFile(mapping=mapping_of({1: [handle]}), build_id=BUILD, name="net", version="1"), replace=True
    )
    document = write_file(put.file, "")
    service = "/otel_bridge.v1.MappingService"
    return {
        f"{service}/GetMapping": [(pb.GetMappingRequest(ref=ref).SerializeToString(), "") for ref in refs],
        f"{service}/ListMappings": [(b"", "")],
        f"{service}/ListMissing": [(b"", "")],
        "GET /v1/mappings": [(b"", "/v1/mappings"), (b"", "/v1/mappings?page_size=1")],
        "GET /v1/mappings/{ref:path}": [(b"", f"/v1/mappings/{ref}") for ref in refs],
        "GET /v1/missing": [(b"", "/v1/missing")],
        f"{service}/DeleteMapping": [(pb.DeleteMappingRequest(ref=ref).SerializeToString(), "") for ref in refs],
        "DELETE /v1/mappings/{ref:path}": [(b"", f"/v1/mappings/{ref}") for ref in refs],
        f"{service}/SetAlias": [(pb.SetAliasRequest(name="net", version="1", ref=ref).SerializeToString(), "") for ref in refs],
        "PUT /v1/aliases/{alias:path}": [(b"", f"/v1/aliases/net@1?ref={ref}") for ref in refs],
        f"{service}/PutMapping": [(put.SerializeToString(), "")],
        "PUT /v1/mappings": [(document, "/v1/mappings?model=net@1")],
        "PUT /v1/mappings/{ref:path}": [(document, f"/v1/mappings/{BUILD}?replace=true")],
    }


@pytest.mark.parametrize("kind", ["token", "signed"])
def test_what_another_tenant_has_is_not_there(kind: str, opened: Any, run: Any, issuer: Issuer) -> None:
    """
    By every RPC and route about mappings a good credential of one tenant reads, lists, replaces and deletes nothing of another.

    Byte for byte the answers are those of a bridge on which the other tenant has nothing: it is not even told what exists. What
    the other one has is afterwards what it was.
    """
    provider = Provider()
    token = provider.sign(scope=" ".join(ALL), tenant="globex") if kind == "signed" else issuer.issue(*ALL, tenant="globex")
    bearer = f"Bearer {token}"
    gate = gate_of(issuer.file, web_tokens=provider.tokens_taken(issuer.file.parent))
    missing = [mapping_pb2.MissingMapping(ref="awaited@1", devices=3)]
    asked = of_mappings()
    assert set(asked) == {what for what, scope in ACCESS.items() if scope in (Scope.MAPPINGS_READ, Scope.MAPPINGS_WRITE)}

    async def answers(doors: Any) -> list[tuple[str, object, bytes]]:
        found: list[tuple[str, object, bytes]] = []
        for what, requests in asked.items():
            for body, path in requests:
                if path:
                    headers = {"authorization": bearer}
                    answer = await doors.client.request(what.split(" ")[0], path, content=body, headers=headers)
                    found.append((what, answer.status_code, answer.content))
                    continue
                call = doors.channel.unary_unary(what)(body, metadata=[("authorization", bearer)])
                code = await call.code()
                told = await call if code is grpc.StatusCode.OK else (await call.details()).encode()
                found.append((what, code, told))
        return found

    async def check() -> None:
        async with (
            opened(gate=gate, missing=missing, missing_tenant="acme") as full,
            opened(gate=gate, missing=missing, missing_tenant="nobody") as empty,
        ):
            upload(full.registry, "acme", BUILD)
            before = full.registry.get("acme", "net@1")
            found = await answers(full)
            assert found == await answers(empty)
            assert full.registry.get("acme", "net@1") == before
            assert full.registry.page("acme", "", 9) == [before.info]
            assert full.registry.get("globex", "net@1").info.digest not in ("", before.info.digest)
            done = {(what, told) for what, told, _ in found if told in (grpc.StatusCode.OK, 200, 201)}
            assert {what for what, _ in done} == {
                what for what in asked if re.search("/Put|PUT /v1/map|List|GET /v1/m\\w+$", what)
            }

    run(check())


async def send_by_grpc(doors: Any, bearer: str, events: int) -> tuple[bool, float | None]:
    """Whether events are taken; else how long the sender is told to wait."""
    request = a_request(*[delegated("x", 0, 1, 2)] * events)
    call = profiling_pb2_grpc.ProfilingServiceStub(doors.channel).ExportEvents(request, metadata=[("authorization", bearer)])
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return True, None
    assert code is grpc.StatusCode.UNAVAILABLE
    status = Status.FromString(dict(await call.trailing_metadata())["grpc-status-details-bin"])
    retry = RetryInfo()
    assert [each.Unpack(retry) for each in status.details] == [False, True]
    return False, retry.retry_delay.ToTimedelta().total_seconds()


async def send_by_http(doors: Any, bearer: str, events: int) -> tuple[bool, float | None]:
    """The same."""
    body = a_request(*[delegated("x", 0, 1, 2)] * events).SerializeToString()
    answer = await doors.client.post("/v1/events", content=body, headers={"authorization": bearer})
    if answer.status_code == 200:
        return True, None
    assert (answer.status_code, "www-authenticate" in answer.headers) == (429, False)
    return False, float(answer.headers["retry-after"])


@pytest.mark.parametrize("send", [send_by_grpc, send_by_http])
def test_who_sends_too_much_comes_back_later(send: Any, opened: Any, run: Any, issuer: Issuer) -> None:
    """Over its quota a tenant is told to wait, by each of its tokens, and counted; nobody else is, and mappings still go in."""
    first, second, other = (f"Bearer {issuer.issue(*ALL, tenant=tenant)}" for tenant in ("acme", "acme", "globex"))
    now_s = [0.0]
    rates = Rates(TenantsConfig(events_per_s=1.0, burst_s=10.0), now=lambda: now_s[0])
    counted: Counter[tuple[str, str]] = Counter()
    gate = gate_of(issuer.file, counted, rates=rates)

    async def check() -> None:
        async with opened(gate=gate, spend=rates.spend) as doors:
            assert await send(doors, first, 30) == (True, None)
            for bearer in (first, second):
                taken, wait_s = await send(doors, bearer, 1)
                assert not taken
                assert 20 <= wait_s <= 31  # with jitter, and in whole seconds
            assert await send(doors, other, 10) == (True, None)
            for what in ("/v1/mappings", "/metrics"):
                assert (await doors.client.get(what, headers={"authorization": first})).status_code == 200
            assert (sum(counted.values()), {reason for _, reason in counted}) == (2, {"events_quota"})
            assert doors.tally.taken == 40
            now_s[0] += 21
            assert await send(doors, second, 1) == (True, None)

    run(check())


def test_bytes_count_whatever_becomes_of_them(opened: Any, run: Any, issuer: Issuer) -> None:
    """Who sends what cannot be understood has sent its bytes all the same."""
    bearer = {"authorization": f"Bearer {issuer.issue(*ALL)}"}
    rates = Rates(TenantsConfig(bytes_per_s=100.0, burst_s=1.0), now=lambda: 0.0)
    gate = gate_of(issuer.file, rates=rates)

    async def check() -> None:
        async with opened(gate=gate, spend=rates.spend) as doors:
            assert (await doors.client.post("/v1/events", content=b"?" * 101, headers=bearer)).status_code == 400
            answer = await doors.client.post("/v1/etdump", content=b"", headers=bearer)
            assert (answer.status_code, answer.json()["reason"]) == (429, "over_quota")

    run(check())


def test_a_tenant_with_too_many_mappings(opened: Any, run: Any, issuer: Issuer) -> None:
    """What is too much is refused for good, with the way out, by either door; what there is stays, and others still upload."""
    acme, other = (f"Bearer {issuer.issue(*ALL, tenant=tenant)}" for tenant in ("acme", "globex"))
    gate = gate_of(issuer.file)
    document = write_file(mapping_pb2.MappingFile(mapping=mapping_of({1: [2]})), "")

    async def check() -> None:
        async with opened(gate=gate, quota_of=lambda tenant: Quota(builds=1 if tenant == "acme" else 2)) as doors:

            async def put(build: str, bearer: str) -> Any:
                return await doors.client.put(f"/v1/mappings/{build}", content=document, headers={"authorization": bearer})

            assert (await put("one", acme)).status_code == 201
            refused = await put("two", acme)
            assert (refused.status_code, refused.json()["code"], refused.json()["reason"]) == (
                409,
                "FAILED_PRECONDITION",
                "mapping_quota",
            )
            assert "would have 2 builds, and may have 1; delete what is no longer in use" in refused.json()["message"]
            assert (await put("one", acme)).status_code == 200
            for build in ("one", "two"):
                assert (await put(build, other)).status_code == 201
            assert [len(doors.registry.page(tenant, "", 9)) for tenant in ("acme", "globex")] == [1, 2]

    run(check())
