"""The whole configuration. A `BridgeConfig` that exists obeys every rule; it never changes."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from otel_bridge.config.auth import AuthConfig, faults_of_doors
from otel_bridge.config.egress import DestinationName, ExportConfig, faults_of_files
from otel_bridge.config.ingress import IngressConfig
from otel_bridge.config.jwt import JwtConfig, faults_of_jwt
from otel_bridge.config.privacy import PrivacyConfig
from otel_bridge.config.sections import (
    AdmissionConfig,
    ClockConfig,
    MappingConfig,
    MetadataConfig,
    ParkingConfig,
    ServerConfig,
    SpoolConfig,
)
from otel_bridge.config.setting import Section
from otel_bridge.config.telemetry import TelemetryConfig
from otel_bridge.config.tenants import TenantsConfig, faults_of_tenants
from otel_bridge.config.values import split_address
from otel_bridge.model.destination import DEFAULT, MAX_DESTINATIONS


class BridgeConfig(Section):
    """Every setting of the bridge. Without arguments: the defaults; `load` reads file and environment."""

    server: ServerConfig = ServerConfig()
    auth: AuthConfig = AuthConfig()
    jwt: JwtConfig = JwtConfig()
    tenants: TenantsConfig = TenantsConfig()
    ingress: IngressConfig = IngressConfig()
    admission: AdmissionConfig = AdmissionConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    clock: ClockConfig = ClockConfig()
    spool: SpoolConfig = SpoolConfig()
    parking: ParkingConfig = ParkingConfig()
    metadata: MetadataConfig = MetadataConfig()
    mapping: MappingConfig = MappingConfig()
    export: ExportConfig = ExportConfig()
    destinations: Mapping[DestinationName, ExportConfig] = {}
    telemetry: TelemetryConfig = TelemetryConfig()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        faults = faults_of_doors(self.server, self.auth)
        faults += faults_of_jwt(self.jwt, self.auth)
        faults += faults_of_tenants(self.tenants, self.auth)
        faults += faults_of_files({section_of(name): each for name, each in self.exports.items()})
        if len(self.exports) > MAX_DESTINATIONS:
            faults.append(
                f"destinations has {len(self.destinations)} tables: with export, there may be {MAX_DESTINATIONS} destinations "
                "at most"
            )
        if self.server.grpc_address == self.server.http_address and split_address(self.server.grpc_address)[1]:
            faults.append(f"server.grpc_address and server.http_address must differ; both are {self.server.grpc_address}")
        if self.spool.max_bytes < self.server.max_request_bytes:
            faults.append(
                f"spool.max_bytes ({self.spool.max_bytes}) must be at least server.max_request_bytes "
                f"({self.server.max_request_bytes}): a larger request would never find room"
            )
        if self.server.workers > 1 and self.server.data_dir is None:
            faults.append(
                f'server.workers is {self.server.workers}, and server.data_dir is ":memory:": workers share their mappings in '
                'a directory; name one, and set spool.durability = "memory" to keep events off the disk'
            )
        if self.privacy.salt_file and not self.privacy.hash_keys:
            faults.append("privacy.salt_file is set, but privacy.hash_keys is not: nothing is hashed")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @property
    def exports(self) -> dict[str, ExportConfig]:
        """Every destination by its name, that of the section `export` first."""
        return {DEFAULT: self.export, **self.destinations}


def section_of(destination: str) -> str:
    """Where the settings of a destination stand."""
    return "export" if destination == DEFAULT else f"{TABLES}.{destination}"


def depth_of(part: str) -> int:
    """How many names lead to a setting of this part: section and setting, or `destinations`, its name and setting."""
    return 3 if part == TABLES else 2


def section_type(part: str) -> type[Section]:
    """What declares the settings of this part."""
    return ExportConfig if part == TABLES else SECTIONS[part]


SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in BridgeConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
"""Name of a section -> its type, in the order in which they are printed."""

TABLES = "destinations"
"""The part that holds sections, by names that are chosen freely, each with the settings of `export`."""

SETTINGS: frozenset[str] = frozenset(
    f"{name}.{setting}" for name, section in SECTIONS.items() for setting in section.model_fields
)
"""Every setting as `section.name`."""
