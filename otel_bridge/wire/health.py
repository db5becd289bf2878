"""What balancers are told: `GET /readyz`, and `grpc.health.v1.Health` over gRPC."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from starlette.responses import PlainTextResponse, Response


@dataclass(frozen=True, slots=True)
class Condition:
    """
    Whether requests are welcome, and of each part that the bridge needs for that what is wrong with it.

    parts   name -> "ok", or what is wrong; strangers read it, so it names nobody and nothing of the settings
    """

    is_ready: bool
    parts: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """One for the whole, and one for each part."""
        return ["ready" if self.is_ready else "not ready", *(f"{name}: {found}" for name, found in self.parts.items())]

    def reply(self) -> Response:
        """200 or 503, with these lines."""
        return PlainTextResponse("".join(f"{line}\n" for line in self.lines()), 200 if self.is_ready else 503)


class Health(health.aio.HealthServicer):  # type: ignore[name-defined,misc]  # the stubs do not know it
    """
    The health service, whose streams end when they are told to.

    A balancer's `Watch` lasts as long as the server does: a stop that waited for it would always take its whole grace.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        super().__init__()
        self._services = services
        self._ended = asyncio.Event()

    async def tell(self, *, is_ready: bool) -> None:
        """Say whether requests are welcome, of the server and of each service; nothing after `enter_graceful_shutdown`."""
        status = health_pb2.HealthCheckResponse.SERVING if is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *self._services):
            await self.set(service, status)

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    async def Watch(  # noqa: N802 - the protocol names it
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Say the status, and each change of it, until the client goes or `end`."""
        watching = asyncio.create_task(super().Watch(request, context))
        ending = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([watching, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            ending.cancel()
            await asyncio.gather(watching, ending, return_exceptions=True)
