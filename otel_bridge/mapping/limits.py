"""
How much a mapping may hold.

Invariant: a document costs what its bytes cost. Every count is bounded before anything walks it, so a hostile upload buys
no more work and memory than an honest one of its size.
"""

from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.v1 import mapping_pb2 as pb

MAX_TEXT_BYTES = 4096
"""Of any one text. XNNPACK's identifiers have 20 to 60; templated C++ names reach some hundreds."""
MAX_LABEL_BYTES = 128
"""Of a build id, and of an alias's name and version: they are keys, and values of attributes."""
MAX_DOCUMENT_BYTES = 32 << 20
"""A model of 10,000 nodes makes about 2 MB; this still fits one request of 64 MiB."""
MAX_METHODS = 1024
"""Models have one to a dozen."""
MAX_INSTRUCTIONS = 1 << 16
"""Over all methods. The largest language models have some thousand."""
MAX_ENTRIES = 1 << 16
"""Over all instructions. A delegate has fewer identifiers than its part of the model has nodes."""
MAX_HANDLES = 1 << 20
"""Over all instructions and entries. A handle takes a byte on the wire and some 40 in memory."""
MAX_OPERATORS = 1 << 18
"""Over all handles of all instructions."""
MAX_NODES = 1 << 18
"""Over all delegate calls: as many as operators."""
MAX_INSTRUCTION_ID = 2**31 - 1
"""An event's instruction id is an int32 (devtools/etdump/etdump_schema_flatcc.fbs)."""
MAX_HANDLE = 2**32 - 1
"""A debug handle is a uint32 (runtime/core/event_tracer.h)."""

_UTF8_MAX_BYTES = 4
_SPLIT = "give each method a build of its own"


def check_counts(mapping: pb.Mapping) -> None:
    """Refuses a mapping that holds too much of anything."""
    check_size(mapping.ByteSize())
    instructions = [instruction for method in mapping.methods for instruction in method.instructions]
    for what, count, limit in (
        ("methods", len(mapping.methods), MAX_METHODS),
        ("instructions", len(instructions), MAX_INSTRUCTIONS),
        ("entries", sum(len(each.entries) for each in instructions), MAX_ENTRIES),
        ("operators", sum(len(item.operators) for each in instructions for item in each.operators), MAX_OPERATORS),
        ("nodes", sum(len(each.nodes) for each in instructions), MAX_NODES),
        ("handles", sum(len(each.handles) + sum(len(e.handles) for e in each.entries) for each in instructions), MAX_HANDLES),
    ):
        if count > limit:
            raise malformed("mapping", f"{count} {what}", f"at most {limit} are taken: {_SPLIT}")


def check_size(size_bytes: int) -> None:
    """Refuses a document of too many bytes."""
    if size_bytes > MAX_DOCUMENT_BYTES:
        raise malformed("mapping", f"{size_bytes} bytes", f"at most {MAX_DOCUMENT_BYTES} are taken: {_SPLIT}")


def check_text(text: str, where: str, *, required: bool, limit_bytes: int = MAX_TEXT_BYTES) -> None:
    """Refuses a text that is too long or, where it is required, empty."""
    if required and not text:
        raise malformed(where, "an empty string", "it needs at least one character")
    if len(text) * _UTF8_MAX_BYTES > limit_bytes and len(text.encode()) > limit_bytes:
        raise malformed(where, f"a text of {len(text)} characters", f"at most {limit_bytes} bytes of UTF-8 are taken")


def check_label(text: str, where: str, *, required: bool) -> None:
    """Refuses a build id, or an alias's name or version, that is too long or not printable."""
    check_text(text, where, required=required, limit_bytes=MAX_LABEL_BYTES)
    if not text.isprintable():
        raise malformed(where, quoted(text), "use printable characters only")


def check_alias(name: str, version: str, *, required: bool) -> None:
    """Refuses a name and version that cannot be written NAME@VERSION and read back: the first @ divides them."""
    check_label(name, "name", required=required)
    check_label(version, "version", required=False)
    if "@" in name:
        raise malformed("name", quoted(name), "an alias is NAME@VERSION: leave @ out of the name")
