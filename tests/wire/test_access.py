"""Every RPC and every route, with every kind of credential: what wire/access.py allows, and nothing else."""

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.access import OPEN, RPCS, bad_credentials, by_grpc, by_http, message_of, routes_of
from support.http import status_of
from support.identity_provider import Provider
from support.tokens import NOON, Issuer, gate_of

from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.model.identity import Scope
from otel_bridge.v1 import mapping_pb2
from otel_bridge.wire.access import ACCESS, needed

DEVICE = {
    "/otel_bridge.v1.ProfilingService/ExportEvents",
    "/otel_bridge.v1.ProfilingService/StreamEvents",
    "/otel_bridge.v1.ProfilingService/UploadETDump",
    "POST /v1/events",
    "POST /v1/etdump",
}
"""What a device may do."""

REFUSED_GRPC = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "tokens.json")


def a_registry(registry: MemoryRegistry) -> str:
    """A registry that holds one mapping: its digest."""
    method = mapping_pb2.Method(name="forward", instructions=[mapping_pb2.Instruction(id=0, kernel="aten::add.out")])
    mapping = mapping_pb2.Mapping(format=1, methods=[method])
    return registry.put("", mapping_pb2.MappingFile(mapping=mapping, build_id="a-build"), replace=False).digest


def test_each_rpc_and_route_has_its_row(opened: Any, run: Any) -> None:
    """The table has every RPC and route that the doors have, and nothing else; without a row the answer is `admin`."""

    async def check() -> None:
        async with opened() as doors:
            routes = list(routes_of(doors.app))
            assert len(routes) > 10
            assert set(ACCESS) == {*RPCS, *routes}

    run(check())
    assert needed("GET /what/comes/later") is Scope.ADMIN


def test_a_device_may_send_and_nothing_else() -> None:
    """The scope of devices opens what takes events; reading and writing mappings have scopes of their own."""
    assert {what for what, scope in ACCESS.items() if scope is Scope.EVENTS_WRITE} == DEVICE
    assert {what.rpartition("/")[2] for what in OPEN} == {"Check", "List", "Watch", "healthz", "readyz"}
    for what, scope in ACCESS.items():
        if "apping" in what and what not in DEVICE:
            reads = what.startswith("GET") or re.search(r"/(Get|List)", what)
            assert scope is (Scope.MAPPINGS_READ if reads else Scope.MAPPINGS_WRITE), what


def test_bad_credentials_open_nothing(opened: Any, run: Any, issuer: Issuer) -> None:
    """
    Without a credential, and with one that is wrong, expired, revoked or signed badly, all but health is refused and counted.

    Nothing is read or written, and all but the first are told in the same words.
    """
    provider = Provider()
    shown = bad_credentials(issuer)
    shown |= {f"{reason}, signed": [f"Bearer {token}"] for reason, token in provider.bad_tokens().items()}
    counted: Counter[tuple[str, str]] = Counter()
    gate = gate_of(issuer.file, counted, web_tokens=provider.tokens_taken(issuer.file.parent))

    async def check() -> None:
        words = set()
        async with opened(gate=gate) as doors:
            digest = a_registry(doors.registry)
            kept = doors.registry.get("", "a-build")
            routes = list(routes_of(doors.app))
            for reason, authorizations in shown.items():
                for what in RPCS:
                    code = await by_grpc(doors.channel, what, authorizations)
                    assert (code is grpc.StatusCode.UNAUTHENTICATED) is (what not in OPEN), (reason, what)
                for what in routes:
                    answer = await by_http(doors.client, what, authorizations)
                    assert (answer.status_code == 401) is (what not in OPEN), (reason, what)
                    if what not in OPEN:
                        assert answer.headers["www-authenticate"].startswith('Bearer realm="otel-bridge"')
                        assert ("invalid_token" in answer.headers["www-authenticate"]) is bool(authorizations)
                        words |= {message_of(answer)} if authorizations else set()
                        assert digest not in answer.text
                for each in authorizations:
                    assert each.split(" ")[1] not in repr(words)
            assert len(words) == 1
            assert (doors.outlet.events, doors.registry.page("", "", 9)) == (0, [kept.info])
            assert doors.registry.get("", "a-build") == kept
            assert (doors.tally.taken, doors.tally.rejected) == (0, Counter())
            guarded = [what for what in (*RPCS, *routes) if what not in OPEN]
            assert doors.tally.outcomes["unauthenticated"] == len(shown) * len(guarded)
            for reason in {reason.partition(",")[0] for reason in shown}:
                times = sum(each.partition(",")[0] == reason for each in shown)
                assert counted["grpc", reason] + counted["http", reason] == times * len(guarded), reason

    run(check())


@pytest.mark.parametrize(
    ("scope", "kind"), [*((scope, "token") for scope in Scope), *((scope, "signed") for scope in (*Scope, None))]
)
def test_a_scope_opens_its_rows(scope: Scope | None, kind: str, opened: Any, run: Any, issuer: Issuer) -> None:
    """A token opens what its scope stands for, and health; else it is told which scope it lacks."""
    provider = Provider()
    token = provider.sign(scope=scope or "openid", tenant="acme") if kind == "signed" else issuer.issue(Scope(scope))
    authorizations = [f"Bearer {token}"]
    gate = gate_of(issuer.file, web_tokens=provider.tokens_taken(issuer.file.parent))

    async def check() -> None:
        async with opened(gate=gate) as doors:
            for what in RPCS:
                code = await by_grpc(doors.channel, what, authorizations)
                if ACCESS[what] in (None, scope):
                    assert code not in REFUSED_GRPC, what
                else:
                    assert code is grpc.StatusCode.PERMISSION_DENIED, what
            for what in routes_of(doors.app):
                answer = await by_http(doors.client, what, authorizations)
                if ACCESS[what] in (None, scope):
                    assert answer.status_code not in (401, 403), what
                else:
                    assert answer.status_code == 403, what
                    assert f'error="insufficient_scope", scope="{ACCESS[what]}"' in answer.headers["www-authenticate"]
                    assert f"it lacks the scope {ACCESS[what]}" in message_of(answer)

    run(check())


def test_head_is_as_get(opened: Any, run: Any, issuer: Issuer) -> None:
    """HEAD asks for what GET asks for, so it needs the same."""
    reader = {"authorization": f"bearer {issuer.issue(Scope.MAPPINGS_READ)}"}
    gate = gate_of(issuer.file)

    async def check() -> None:
        async with opened(gate=gate) as doors:
            assert (await doors.client.head("/v1/mappings")).status_code == 401
            assert (await doors.client.head("/v1/mappings", headers=reader)).status_code == 200
            assert (await doors.client.head("/metrics", headers=reader)).status_code == 403
            assert (await doors.client.head("/healthz")).status_code == 200

    run(check())


def test_a_refusal_does_not_wait_for_the_body(opened: Any, run: Any, issuer: Issuer) -> None:
    """Who may not come in is turned away while the body is still to come: it takes no memory, and no time."""
    issuer.issue(Scope.EVENTS_WRITE)
    gate = gate_of(issuer.file)

    async def check() -> None:
        async with opened(gate=gate) as doors:
            call = doors.channel.stream_unary("/otel_bridge.v1.ProfilingService/ExportEvents")(timeout=20)
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
            begun = b"POST /v1/etdump HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
            assert (await status_of(doors.http.address, begun)).startswith(b"HTTP/1.1 401 ")

    run(check())


def test_a_token_ends_while_the_bridge_runs(opened: Any, run: Any, issuer: Issuer) -> None:
    """A token is good until the moment at which it expires, and not at that moment: nothing is to be read again for it."""
    headers = {"authorization": f"Bearer {issuer.issue(Scope.ADMIN, lifetime=timedelta(hours=1))}"}
    clock = [NOON]
    gate = gate_of(issuer.file, now=lambda: clock[0])

    async def check() -> None:
        async with opened(gate=gate) as doors:
            clock[0] = NOON + timedelta(minutes=59, seconds=59)
            assert (await doors.client.get("/metrics", headers=headers)).status_code == 200
            clock[0] = NOON + timedelta(hours=1)
            assert (await doors.client.get("/metrics", headers=headers)).status_code == 401

    run(check())
