"""Decoders that users declare with the mapping instead of writing code: a layout, or a FlatBuffers schema."""

from collections.abc import Callable

from otel_bridge.metadata.decoder import Content, undecoded
from otel_bridge.metadata.layout import Layout
from otel_bridge.metadata.reflect import compile_schema
from otel_bridge.v1 import mapping_pb2 as pb


def compile_format(declared: bytes) -> Layout | Callable[[bytes], Content]:
    """
    The layout in a serialised `MetadataFormat`, or the decoder of another.

    One that is none leaves all bytes undecoded: a registry may hold what an older bridge let through.
    """
    declaration = pb.MetadataFormat.FromString(declared)
    try:
        if declaration.HasField("layout"):
            return Layout(declaration.layout)
        return compile_schema(declaration.flatbuffer)
    except ValueError as error:
        fault = f"the layout declared with the mapping cannot be used: {error}"
        return lambda data: undecoded(data, fault)
