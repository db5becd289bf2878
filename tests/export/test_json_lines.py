"""OTLP JSON lines."""

import asyncio
import base64
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from support.otlp_payloads import a_payload, a_request

from otel_bridge.config.egress import ExportConfig
from otel_bridge.errors import BackEndUnavailable, ConfigError, ExportRejected
from otel_bridge.export.build import build_exporter
from otel_bridge.export.json_lines import JsonLines, to_json
from otel_bridge.export.protocol import Exporter, Sent

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def rich_request() -> bytes:
    """A request that uses whatever JSON writes in a way of its own."""
    request = a_request(1)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.CopyFrom(
        Span(
            trace_id=bytes(range(16)),
            span_id=bytes(range(16, 24)),
            parent_span_id=b"\xfb\xff\xfe" + b"\xab" * 5,
            trace_state="a=b",
            name='délégué "1"\n',
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=2**64 - 1,
            end_time_unix_nano=2**53 + 1,
            flags=0x101,
            status=Status(code=Status.STATUS_CODE_ERROR, message="x"),
            links=[Span.Link(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)],
            attributes=[
                KeyValue(key="int", value=AnyValue(int_value=-(2**63))),
                KeyValue(key="zero", value=AnyValue(int_value=0)),
                KeyValue(key="double", value=AnyValue(double_value=0.5)),
                KeyValue(key="flag", value=AnyValue(bool_value=False)),
                KeyValue(key="bytes", value=AnyValue(bytes_value=b"\x00\xff")),
                KeyValue(key="list", value=AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="")]))),
            ],
        )
    )
    return request.SerializeToString()


GOLDEN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "app 0"}}]},
            "schemaUrl": "https://schema/0",
            "scopeSpans": [
                {
                    "scope": {"name": "scope 0"},
                    "schemaUrl": "https://scope/0",
                    "spans": [
                        {
                            "traceId": "000102030405060708090a0b0c0d0e0f",
                            "spanId": "1011121314151617",
                            "parentSpanId": "fbfffeababababab",
                            "traceState": "a=b",
                            "name": 'délégué "1"\n',
                            "kind": 1,
                            "startTimeUnixNano": "18446744073709551615",
                            "endTimeUnixNano": "9007199254740993",
                            "flags": 257,
                            "status": {"code": 2, "message": "x"},
                            "links": [{"traceId": "01" * 16, "spanId": "02" * 8}],
                            "attributes": [
                                {"key": "int", "value": {"intValue": "-9223372036854775808"}},
                                {"key": "zero", "value": {"intValue": "0"}},
                                {"key": "double", "value": {"doubleValue": 0.5}},
                                {"key": "flag", "value": {"boolValue": False}},
                                {"key": "bytes", "value": {"bytesValue": "AP8="}},
                                {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": ""}]}}},
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}


def send(run: Run, exporter: Exporter, *payloads: bytes) -> None:
    async def send_and_close() -> None:
        try:
            for payload in payloads:
                assert await exporter.send(payload) == Sent()
        finally:
            await exporter.close()

    run(send_and_close())


def test_golden() -> None:
    """Ids are lower-case hex, enums integers, 64-bit integers decimal strings, bytes base64, names lowerCamelCase."""
    assert json.loads(to_json(rich_request())) == GOLDEN


def test_round_trip(tmp_path: Path, run: Run) -> None:
    """A line of the file, its ids turned into base64, reads back by protobuf's own JSON as the message that was sent."""

    def to_base64(value: Any) -> Any:
        if isinstance(value, list):
            return [to_base64(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        ids = {"traceId", "spanId", "parentSpanId"}
        return {
            name: base64.b64encode(bytes.fromhex(entry)).decode() if name in ids else to_base64(entry)
            for name, entry in value.items()
        }

    payloads = [rich_request(), a_payload(2, 3)]
    send(run, JsonLines(tmp_path / "spans.jsonl"), *payloads)
    lines = (tmp_path / "spans.jsonl").read_text().splitlines()
    read_back = [ParseDict(to_base64(json.loads(line)), TracesData()) for line in lines]
    assert read_back == [TracesData.FromString(payload) for payload in payloads]


def test_files_grow(tmp_path: Path, run: Run) -> None:
    """Lines are appended to what is there, by the exporter that the settings describe."""
    path = tmp_path / "spans.jsonl"
    path.write_text('{"old": 1}\n')
    send(run, build_exporter(ExportConfig(protocol="file", path=str(path))), a_payload(1))
    assert [next(iter(json.loads(line))) for line in path.read_text().splitlines()] == ["old", "resourceSpans"]


def test_standard_output() -> None:
    """With path "-" lines go to standard output, behind what was printed before."""
    program = (
        "import asyncio, sys\n"
        "from otel_bridge.config.egress import ExportConfig\n"
        "from otel_bridge.export.build import build_exporter\n"
        "exporter = build_exporter(ExportConfig(protocol='file'))\n"
        "async def main():\n"
        "    await exporter.send(bytes.fromhex(sys.argv[1]))\n"
        "    await exporter.close()\n"
        "print('before', flush=True)\n"
        "asyncio.run(main())\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, a_payload(1).hex()], check=True, capture_output=True, text=True)
    first, line, last = done.stdout.splitlines()
    assert (first, last) == ("before", "after")
    assert json.loads(line) == json.loads(to_json(a_payload(1)))


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A path that cannot be appended to is refused at start."""
    with pytest.raises(ConfigError, match=r"export.path \(.*\) cannot be opened for appending: Is a directory"):
        JsonLines(tmp_path)
    with pytest.raises(ConfigError, match=r"destinations\.a\.path \(.*\) cannot be opened"):
        JsonLines(tmp_path, setting="destinations.a.path")


def test_a_payload_that_is_none(tmp_path: Path, run: Run) -> None:
    """Bytes that are no request are rejected, and nothing is written."""
    path = tmp_path / "spans.jsonl"
    with pytest.raises(ExportRejected, match="no ExportTraceServiceRequest"):
        send(run, JsonLines(path), b"\xff")
    assert path.read_bytes() == b""


def test_a_full_disk_is_waited_out(run: Run) -> None:
    """A full disk means unavailable: space may come back."""
    with pytest.raises(BackEndUnavailable, match="No space left on device"):
        send(run, JsonLines(Path("/dev/full")), a_payload(1))


def test_a_reader_that_is_gone(tmp_path: Path, run: Run) -> None:
    """A pipe that nobody reads any more means rejected: nobody will come back."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    exporter = JsonLines(path)
    os.close(reader)
    with pytest.raises(ExportRejected, match=os.strerror(errno.EPIPE)):
        send(run, exporter, a_payload(1))


def test_no_part_of_a_line_stays(tmp_path: Path) -> None:
    """A write that fails half-way leaves the file as it was; the same payload sent again gives one whole line."""
    path = tmp_path / "spans.jsonl"
    program = (
        "import asyncio, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from otel_bridge.errors import BridgeError\n"
        "from otel_bridge.export.json_lines import JsonLines\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "exporter, payload = JsonLines(Path(sys.argv[1])), bytes.fromhex(sys.argv[2])\n"
        "async def main():\n"
        "    await exporter.send(payload)\n"
        "    size = Path(sys.argv[1]).stat().st_size\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, -1))\n"
        "    try:\n"
        "        await exporter.send(payload)\n"
        "    except BridgeError as error:\n"
        "        print(error.reason, Path(sys.argv[1]).stat().st_size == size)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
        "    await exporter.send(payload)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(path), a_payload(1).hex()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["export_rejected", "True"]
    line = to_json(a_payload(1))
    assert path.read_text() == f"{line}\n{line}\n"


def test_the_loop_stays_free(tmp_path: Path, run: Run) -> None:
    """While a write waits for its reader, the event loop runs on."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    exporter = JsonLines(path)
    payload = a_payload(1, attribute_bytes=200_000)  # more than a pipe holds

    def drain() -> bytes:
        os.set_blocking(reader, True)
        taken = b""
        while not taken.endswith(b"\n"):
            taken += os.read(reader, 65_536)
        os.close(reader)
        return taken

    async def scene() -> bytes:
        sending = asyncio.create_task(exporter.send(payload))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not sending.done()
        taken = await asyncio.to_thread(drain)
        await sending
        await exporter.close()
        return taken

    assert run(scene()).decode() == to_json(payload) + "\n"
