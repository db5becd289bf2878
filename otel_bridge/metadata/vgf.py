"""
Arm VGF: neural statistics, JSON with blobs in base64 (backends/arm/runtime/VGFNeuralStatistics.cpp,
`serialize_vgf_neural_statistics_collection`; devtools/inspector/vgf_neural_statistics.py).

    {"schema": "executorch.vgf.neural_statistics", "schema_version": 1, "available": true, "reason": "", "segments": [
     {"segment_id": 0, "debug_database": {"available": true, "size": 3, "encoding": "base64", "data": "AAEC"}, ...}]}

Invariant: the blobs, which may be megabytes, are measured and left where they are.
"""

from collections.abc import Iterator

from otel_bridge.metadata.builtin import read_object
from otel_bridge.metadata.decoder import Content, Scalar, declared, undecoded

SCHEMA = "executorch.vgf.neural_statistics"
VERSION = 1

_BLOBS = ("debug_database", "statistics_info", "statistics_memory")


def decode_vgf(data: bytes) -> Content:
    """Version, how many segments, and how many bytes of blobs; JSON of another schema or version stays undecoded."""
    said = read_object(data)
    if isinstance(said, Content):
        return said
    if said.get("schema") != SCHEMA:
        return undecoded(data, f"a JSON object, but not of the schema {SCHEMA}")
    version = said.get("schema_version")
    if version != VERSION or isinstance(version, bool):
        return undecoded(data, f"{SCHEMA} of another version than {VERSION}")
    segments = said.get("segments")
    if not isinstance(segments, list):
        return undecoded(data, f"{SCHEMA} without a list of segments")
    sizes = list(_blob_sizes(segments))
    pairs: list[tuple[str, Scalar]] = [
        ("schema_version", VERSION),
        ("available", said.get("available") is True),
        ("segments", len(segments)),
        ("blobs", len(sizes)),
        ("blob_bytes", sum(size for size in sizes if size is not None)),
    ]
    if isinstance(said.get("reason"), str) and said["reason"]:
        pairs.append(("reason", said["reason"]))
    damaged = sizes.count(None)
    return declared(pairs, data, [f"{damaged} blobs are no base64 of their size"] if damaged else [])


def _blob_sizes(segments: list[object]) -> Iterator[int | None]:
    """Bytes of each available blob; None: its text is not as long as base64 of so many bytes."""
    for segment in segments:
        for name in _BLOBS if isinstance(segment, dict) else ():
            blob = segment.get(name)  # type: ignore[attr-defined]  # a dict: see the line above
            if not isinstance(blob, dict) or blob.get("available") is not True:
                continue
            size, text = blob.get("size"), blob.get("data")
            if not isinstance(size, int) or not isinstance(text, str) or blob.get("encoding") != "base64":
                yield None
            else:
                yield size if len(text) == (size + 2) // 3 * 4 else None
