"""Every RPC and every route of a bridge, credentials of every kind, and how the doors answer them."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import httpx
from google.protobuf import descriptor_pool
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.routing import Route
from support.tokens import ALL, Issuer

from otel_bridge.wire.access import ACCESS
from otel_bridge.wire.grpc_door import _REFLECTED

RPCS = [
    f"/{service}/{method.name}"
    for service in _REFLECTED
    for method in descriptor_pool.Default().FindServiceByName(service).methods
]
"""Every RPC of every service that the gRPC door has."""

OPEN = {what for what, scope in ACCESS.items() if scope is None}
"""What needs no credential."""


def routes_of(app: Starlette) -> Iterator[str]:
    """Every method and path of the HTTP door, as the table has them."""
    for route in app.routes:
        assert isinstance(route, Route)
        yield from (f"{method} {route.path}" for method in route.methods or () if method != "HEAD")


def bad_credentials(issuer: Issuer) -> dict[str, list[str]]:
    """Headers `authorization` that let nobody in, by the reason that is counted."""
    good, other = issuer.issue(*ALL), issuer.issue(*ALL)
    revoked = issuer.issue(*ALL)
    issuer.revoke(revoked)
    expired = issuer.issue(*ALL, lifetime=timedelta())
    never_drawn = Issuer(issuer.file.with_name("elsewhere.json")).issue(*ALL)
    return {
        "no_credential": [],
        "malformed": [f"Basic {good}"],
        "malformed, too": [f"Bearer {good}x"],
        "malformed, twice": [f"Bearer {good}", f"Bearer {good}"],
        "unknown": [f"Bearer {never_drawn}"],
        "unknown, secret of another": ["Bearer " + good[:15] + other[15:]],
        "expired": [f"Bearer {expired}"],
        "revoked": [f"Bearer {revoked}"],
    }


async def by_grpc(channel: grpc.aio.Channel, what: str, authorizations: list[str], body: bytes = b"") -> grpc.StatusCode:
    """How a call ends; OK once it has answered for the first time."""
    call: Any = channel.unary_stream(what)(body, metadata=[("authorization", each) for each in authorizations])
    try:
        await call.read()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    call.cancel()
    return grpc.StatusCode.OK


async def by_http(client: httpx.AsyncClient, what: str, authorizations: list[str]) -> httpx.Response:
    """The answer of a route."""
    method, path = what.split(" ")
    headers = [("authorization", each) for each in authorizations]
    return await client.request(method, re.sub(r"{.*}", "a-build", path), headers=headers)


def message_of(answer: httpx.Response) -> str:
    """What a refusal says, in either form."""
    if answer.headers["content-type"] == "application/json":
        message: str = answer.json()["message"]
        return message
    return Status.FromString(answer.content).message
