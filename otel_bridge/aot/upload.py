"""
The mapping of a program, sent to a bridge from the export script.

Invariant: what leaves the machine is the mapping, the build id and the alias. The program, its weights and its ETRecord do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_bridge.aot.program import mapping_from_program
from otel_bridge.client.connection import Connection
from otel_bridge.v1 import mapping_pb2 as pb


@dataclass(frozen=True, slots=True)
class UploadedMapping:
    """
    What the bridge answered.

    build_id   what devices send, and what is in the program (`otel_bridge.mapping.pte.build_id_of`)
    digest     SHA-256 of the mapping's canonical bytes, 64 hex digits
    created    False: the build already had exactly this mapping
    """

    build_id: str
    digest: str
    created: bool

    def __str__(self) -> str:
        return f"{'stored' if self.created else 'already there'}: build {self.build_id}, mapping sha256:{self.digest[:16]}"


def upload_mapping(
    executorch_program_manager: Any,
    edge_program_manager: Any = None,
    *,
    model: str,
    version: str,
    server: str = "127.0.0.1:4417",
    token: str | Path | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    plain_token: bool = False,
    replace: bool = False,
    build_id: str | None = None,
    strip_prefix: str | Sequence[str] = (),
    with_source: bool = True,
    backend_config: Any = None,
) -> UploadedMapping:
    """
    Make the mapping of a program (`mapping_from_program`, which has what is not said here) and upload it.

    Call it before the program is written to its file: the build id is written into it.

    server and what follows   see `otel_bridge.client.connection.Connection`
    replace                   replace a mapping of the same build that resolves differently, else that is refused

    Raises `MalformedMapping`, `ConfigError` before anything is sent; `BridgeUnavailable` where a retry helps, else
    `BridgeRefused`.
    """
    with Connection(server, token=token, ca=ca, cert=cert, key=key, plain_token=plain_token) as connection:
        file = mapping_from_program(
            executorch_program_manager,
            edge_program_manager,
            model=model,
            version=version,
            build_id=build_id,
            strip_prefix=strip_prefix,
            with_source=with_source,
            backend_config=backend_config,
        )
        done = connection.call(connection.mappings.PutMapping, pb.PutMappingRequest(file=file, replace=replace))
    return UploadedMapping(done.build_id, done.digest, done.created)
