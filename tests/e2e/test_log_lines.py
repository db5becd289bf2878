"""What strangers say does not write the log: hostile text in every field of every request, and the lines that follow."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.symbol_database import Default
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.fields import with_each_field
from support.http import sent
from support.mappings import mapping_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.requests import a_request, is_clear
from support.scenes import call, delegated, runtime
from support.service import Service, running

from otel_bridge.telemetry.logs import MAX_MESSAGE_LENGTH
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb

FORGED = "2026-01-01T00:00:00.000Z CRITICAL otel_bridge.forged: all is lost"
HOSTILE = (
    f"\r\n{FORGED}\n\x1b[2J\x1b[31m\x00\x07\x7f\x9b31m\u202e\u2028\u2066\ufeff%s%n{{}}${{jndi:ldap://x}}".encode()
    + b"\xff\xfe\xed\xa0\x80"
)
LONG = HOSTILE + b"\n" * (1 << 20)
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [\w.]+: ")
LONGEST_LINE = 10 * MAX_MESSAGE_LENGTH + 200  # an escaped character takes up to ten
APP = "hostile"
Run = Callable[..., Any]
SERVICES = ("ProfilingService", "MappingService")


def bases() -> dict[str, Any]:
    """One sound request of each kind, by the name of its message."""
    events = [runtime("Method::execute", 0, 9), call("DELEGATE_CALL", 0, 1, 8), delegated("x", 0, 2, 3, metadata=b"m")]
    export = a_request(*events)
    dump = write_etdump([RunData("Execute", [ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=1, end=9)])])
    upload = pb.UploadETDumpRequest(etdump=dump)
    for request in (export, upload):
        del request.stream.resource[:]
        request.stream.resource.add(key=b"service.name").value.text = APP.encode()
    file = mapping_pb2.MappingFile(mapping=mapping_of({"x": [1]}), name="net", version="1")
    file.mapping.methods[0].instructions[0].operators.add(handle=1).operators.add(name="aten.add")
    sound = (export, upload, mapping_pb2.PutMappingRequest(file=file))
    return {each.DESCRIPTOR.full_name: each for each in sound}


def requests() -> Iterator[tuple[str, str, Any]]:
    """Path of an RPC, path of a field, and a request in which that field is hostile: of each RPC of the bridge's."""
    sound = bases()
    for service in SERVICES:
        of_service = Default().pool.FindServiceByName(f"otel_bridge.v1.{service}")
        for method in of_service.methods:
            kind = method.input_type._concrete_class
            base = sound.get(method.input_type.full_name) or kind()
            for value in (HOSTILE, LONG):
                for field, request in with_each_field(base, value):
                    yield f"/{of_service.full_name}/{method.name}", field, request


def ask(service: Service, rpc: str, request: Any) -> str:
    """What the bridge says to a request: "" where it takes it without a word."""
    try:
        answer = service.channel.unary_unary(rpc)(request.SerializeToString(), timeout=20)
    except grpc.RpcError as error:
        return str(error.details())
    return pb.ExportEventsResponse.FromString(answer).first_rejection if "ExportEvents" in rpc else ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_of_the_log_is_a_strangers(form: str, tmp_path: Path) -> None:
    """One line a record, printable and of bounded length, in both forms; and senders are answered in clear words."""
    with OtlpSink() as sink:
        sink.answers += [Answer.partial(1, HOSTILE.decode("utf-8", "ignore"))]  # it is logged: else the test would show nothing
        settings = {"TELEMETRY__LOG_FORMAT": form, "TELEMETRY__LOG_LEVEL": "debug"}
        with running(tmp_path, sink, **settings) as service:
            fields = set()
            for rpc, field, request in requests():
                fields.add((rpc, field))
                said = ask(service, rpc, request)
                assert not said or is_clear(said), (rpc, field, ascii(said[:300]))
            assert len(fields) > 50
            service.settle()
            assert sink.spans
        lines = (tmp_path / "bridge.log").read_bytes().decode("utf-8").splitlines()
    messages = [json.loads(line)["message"] for line in lines] if form == "json" else lines
    assert any("all is lost" in message for message in messages)
    for line in lines:
        assert line.isprintable(), ascii(line[:300])
        assert len(line) < LONGEST_LINE
        assert form == "json" or LINE.match(line) or line.startswith("  "), ascii(line[:300])
    assert not any(message.startswith(FORGED) for message in messages)


HEADERS = ("authorization", "content-type", "content-encoding", "accept", "otel-bridge-sent-unix-ns", "traceparent", "x-any")


async def answer_to(address: str, request: bytes) -> bytes:
    """All that comes back, until the bridge closes the connection or is told that nothing follows."""
    reader, writer = await sent(address, request)
    try:
        writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_what_http_lets_through_does_not_write_the_log(tmp_path: Path, run: Run) -> None:
    """So it is with paths, queries and headers, whole and broken, and with what is no HTTP at all."""
    escaped = "".join(f"%{byte:02x}" for byte in HOSTILE)
    raw = HOSTILE.replace(b"\r\n", b"").replace(b"\n", b"").replace(b"\x00", b"")
    with OtlpSink() as sink, running(tmp_path, sink, TELEMETRY__LOG_LEVEL="debug") as service:
        paths = [f"/{escaped}", f"/v1/mappings/{escaped}", f"/v1/etdump?model={escaped}", f"/v1/etdump?{escaped}={escaped}"]
        asked = [b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n" % path.encode() for path in paths]
        asked += [b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode() for path in paths]
        asked += [
            b"POST /v1/etdump HTTP/1.1\r\nhost: x\r\n%s: %s\r\ncontent-length: 0\r\n\r\n" % (name.encode(), raw)
            for name in HEADERS
        ]
        asked += [b"%s / HTTP/1.1\r\n\r\n" % raw, HOSTILE, b"GET / HTTP/1.1\r\n%s\r\n\r\n" % HOSTILE]
        for request in asked:
            run(answer_to(service.http, request))
        url = f"http://{service.http}/v1/etdump"
        refused = [
            httpx.post(url, content=HOSTILE, timeout=30, trust_env=False),
            httpx.post(url, params={"model": HOSTILE}, timeout=30, trust_env=False),
        ]
        assert all(is_clear(answer.json()["message"]) for answer in refused if not answer.is_success)
    for line in (tmp_path / "bridge.log").read_bytes().decode("utf-8").splitlines():
        assert line.isprintable(), ascii(line[:300])
        assert LINE.match(line) or line.startswith("  "), ascii(line[:300])
        assert not line.startswith(FORGED)
