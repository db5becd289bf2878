"""
OTLP JSON: one `TracesData` a line, to a file or to standard output.

Invariants
* By the OTLP JSON rules (opentelemetry-proto docs/specification.md, "JSON Protobuf Encoding"): ids are lower-case hex, enums
  integers, 64-bit integers decimal strings, names lowerCamelCase.
* A file has one writer and only grows by whole lines: what a failed write left behind is cut off again.
* Neither conversion nor writing runs on the event loop.
"""

import asyncio
import base64
import errno
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_bridge.errors import BackEndUnavailable, ConfigError, ExportRejected
from otel_bridge.export.protocol import Sent

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.ESTALE})
"""Errors of a disk that may be gone later: full, over quota, a network file system away."""

_IDS = ("traceId", "spanId", "parentSpanId")


class JsonLines:
    """
    Appends to `path`, or writes to standard output if it is None; `setting` is what says so.

    Raises ConfigError if the file cannot be opened.
    """

    def __init__(self, path: Path | None, *, setting: str = "export.path") -> None:
        self._path = path
        self._name = "standard output" if path is None else str(path)
        self._lock = Lock()  # of threads, not tasks: a cancelled `send` leaves its thread writing
        try:
            self._file: BinaryIO = sys.stdout.buffer if path is None else path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"{setting} ({self._name}) cannot be opened for appending: {error.strerror}") from error

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - the resource says whose it is
        """See `Exporter.send`. A line that is being written when the call is cancelled is still written whole."""
        await asyncio.to_thread(self._append, payload)
        return Sent()

    async def close(self) -> None:
        """See `Exporter.close`."""
        await asyncio.to_thread(self._close)

    def _append(self, payload: bytes) -> None:
        line = to_json(payload).encode() + b"\n"
        with self._lock:
            before = os.fstat(self._file.fileno()).st_size if self._path else 0
            try:
                _write(self._file, line)
            except OSError as error:
                self._cut(before)
                said = f"{self._name} cannot be written: {error.strerror}"
                raise (BackEndUnavailable(said) if error.errno in _PASSING else ExportRejected(said)) from error

    def _cut(self, size: int) -> None:
        """Of a pipe or a terminal, what is out is out."""
        if self._path is not None:
            with suppress(OSError):
                self._file.truncate(size)

    def _close(self) -> None:
        with self._lock:
            if self._path is not None:
                self._file.close()


def to_json(payload: bytes) -> str:
    """
    One line of OTLP JSON, without its end, from a serialised `TracesData` or `ExportTraceServiceRequest` (equal on the wire).

    Raises ExportRejected if `payload` is neither.
    """
    try:
        traces = TracesData.FromString(payload)
    except DecodeError as error:
        raise ExportRejected(f"the payload ({len(payload)} bytes) is no ExportTraceServiceRequest") from error
    document = MessageToDict(traces, use_integers_for_enums=True)
    for resource_spans in document.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                _to_hex(span)
                for link in span.get("links", ()):
                    _to_hex(link)
    return json.dumps(document, separators=(",", ":"))


def _to_hex(ids: dict[str, Any]) -> None:
    """Protobuf's JSON has bytes as base64; OTLP makes an exception for ids."""
    for name in _IDS:
        if name in ids:
            ids[name] = base64.b64decode(ids[name]).hex()


def _write(file: BinaryIO, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[file.write(rest) :]  # a raw file may take less than all
    file.flush()
