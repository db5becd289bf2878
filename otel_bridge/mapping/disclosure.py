"""
What a mapping tells of the machine that it was made on: the paths of source files.

Invariant: nothing else of a mapping changes, so it resolves as before; what is canonical stays so.
"""

import re
from collections.abc import Iterator, Sequence

from otel_bridge.v1 import mapping_pb2 as pb


def without_source(mapping: pb.Mapping) -> pb.Mapping:
    """The mapping without source files and lines."""
    result = _copy(mapping)
    for operator in _operators(result):
        operator.ClearField("file")
        operator.ClearField("line")
    return result


def relative(mapping: pb.Mapping, prefixes: Sequence[str]) -> pb.Mapping:
    r"""
    The mapping with the longest of the folders `prefixes` that a source file lies in taken off its path.

    Folders match whole: "/src/net" is none of "/src/network/a.py". Both / and \ divide them. Other files stay as they are.
    """
    folders = sorted((each.rstrip("/\\") for each in prefixes if each), key=len, reverse=True)
    heads = [re.compile(re.escape(folder) + r"[/\\]+(?=.)") for folder in folders]
    result = _copy(mapping)
    known: dict[str, str] = {}
    for operator in _operators(result):
        if operator.file not in known:
            known[operator.file] = _without_head(operator.file, heads)
        operator.file = known[operator.file]
    return result


def disclose(mapping: pb.Mapping, *, strip_prefix: Sequence[str] = (), with_source: bool = True) -> pb.Mapping:
    """The mapping with as much of source paths as is wanted: `relative`, or `without_source`."""
    return relative(mapping, strip_prefix) if with_source else without_source(mapping)


def _without_head(file: str, heads: Sequence[re.Pattern[str]]) -> str:
    for head in heads:
        if found := head.match(file):
            return file[found.end() :]
    return file


def _copy(mapping: pb.Mapping) -> pb.Mapping:
    result = pb.Mapping()
    result.CopyFrom(mapping)
    return result


def _operators(mapping: pb.Mapping) -> Iterator[pb.Operator]:
    for method in mapping.methods:
        for instruction in method.instructions:
            for known in instruction.operators:
                yield from known.operators
