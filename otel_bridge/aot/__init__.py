"""Ahead of time: debug handle maps for delegates, mappings from export scripts."""

from otel_bridge.aot.build_id import embed_build_id
from otel_bridge.aot.builder import (
    DelegateMappingBuilder,
    DuplicateIdentifier,
    InvalidEntry,
    InvalidHandles,
    InvalidIdentifier,
)
from otel_bridge.aot.program import mapping_from_program
from otel_bridge.aot.upload import UploadedMapping, upload_mapping

__all__ = [
    "DelegateMappingBuilder",
    "DuplicateIdentifier",
    "InvalidEntry",
    "InvalidHandles",
    "InvalidIdentifier",
    "UploadedMapping",
    "embed_build_id",
    "mapping_from_program",
    "upload_mapping",
]
