"""
What each RPC and each route needs: the one table, shown in docs/security.md.

An RPC or route that has no row needs `admin` (`needed`), and a test fails until it has one.
"""

from otel_bridge.model.identity import Scope

_PROFILING = "/otel_bridge.v1.ProfilingService"
_MAPPING = "/otel_bridge.v1.MappingService"
_HEALTH = "/grpc.health.v1.Health"

ACCESS: dict[str, Scope | None] = {
    f"{_PROFILING}/ExportEvents": Scope.EVENTS_WRITE,
    f"{_PROFILING}/StreamEvents": Scope.EVENTS_WRITE,
    f"{_PROFILING}/UploadETDump": Scope.EVENTS_WRITE,
    "POST /v1/events": Scope.EVENTS_WRITE,
    "POST /v1/etdump": Scope.EVENTS_WRITE,
    f"{_MAPPING}/PutMapping": Scope.MAPPINGS_WRITE,
    f"{_MAPPING}/DeleteMapping": Scope.MAPPINGS_WRITE,
    f"{_MAPPING}/SetAlias": Scope.MAPPINGS_WRITE,
    "PUT /v1/mappings": Scope.MAPPINGS_WRITE,
    "PUT /v1/mappings/{ref:path}": Scope.MAPPINGS_WRITE,
    "DELETE /v1/mappings/{ref:path}": Scope.MAPPINGS_WRITE,
    "PUT /v1/aliases/{alias:path}": Scope.MAPPINGS_WRITE,
    f"{_MAPPING}/GetMapping": Scope.MAPPINGS_READ,
    f"{_MAPPING}/ListMappings": Scope.MAPPINGS_READ,
    f"{_MAPPING}/ListMissing": Scope.MAPPINGS_READ,
    "GET /v1/mappings": Scope.MAPPINGS_READ,
    "GET /v1/mappings/{ref:path}": Scope.MAPPINGS_READ,
    "GET /v1/missing": Scope.MAPPINGS_READ,
    "GET /metrics": Scope.ADMIN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Scope.ADMIN,
    f"{_HEALTH}/Check": None,
    f"{_HEALTH}/List": None,
    f"{_HEALTH}/Watch": None,
    "GET /healthz": None,
    "GET /readyz": None,
}
"""`/SERVICE/METHOD` of gRPC, or method and path of HTTP -> the scope; None: open to all. HEAD is as GET."""


def needed(what: str) -> Scope | None:
    """The scope that an RPC or a route needs; None: none."""
    return ACCESS.get(what, Scope.ADMIN)
