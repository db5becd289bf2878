"""Bad input at the doors of a running bridge: it is refused in one clear line, and nothing beside it is lost."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import flatbuffers
import grpc
import httpx
import pytest
from support import etdump_writer
from support.etdump_writer import DebugEvent, ProfileEvent, RunData, write_etdump
from support.otlp_sink import OtlpSink
from support.requests import is_clear
from support.service import Service, otel_bridge

from otel_bridge.v1 import profiling_pb2 as pb

LIMIT_BYTES = 2 << 20
FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "toy_backend_int" / "run.etdp").read_bytes()
EVENTS = 9

Door = Callable[[Service, bytes, str], str]
"""Uploads an ETDump of an app: "" where it is taken, else why it is not, as code, colon and message."""


def by_grpc(service: Service, etdump: bytes, app: str) -> str:
    """`UploadETDump`."""
    request = pb.UploadETDumpRequest(etdump=etdump)
    request.stream.resource.add(key=b"service.name").value.text = app.encode()
    error = service.profiling.UploadETDump.future(request).exception()
    if error is None:
        return ""
    assert is_clear(error.details())
    return f"{error.code().name}: {error.details()}"


def by_http(service: Service, etdump: bytes, app: str) -> str:
    """`POST /v1/etdump`."""
    response = service.post(etdump, **{"resource.service.name": app})
    if response.is_success:
        return ""
    assert response.status_code in {400, 413}
    assert is_clear(response.json()["message"])
    return f"{response.json()['code']}: {response.json()['message']}"


def a_bomb(events: int) -> bytes:
    """A file that names one event a great many times."""
    builder = flatbuffers.Builder(1024)
    block = etdump_writer._write_block(builder, RunData(events=[ProfileEvent(name="x", start=1, end=2)]))
    blocks = etdump_writer._write_tables(builder, [block] * events)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, blocks, 0)
    builder.FinishSizePrefixed(builder.EndObject(), file_identifier=b"ED00")
    return bytes(builder.Output())


def prefixed(size: int) -> bytes:
    """The capture with another length in front."""
    return size.to_bytes(4, "little") + CAPTURE[4:]


BAD = {
    "empty": (b"", "no ETDump (0 bytes)"),
    "truncated": (CAPTURE[:-1], "the ETDump was cut"),
    "half": (CAPTURE[: len(CAPTURE) // 2], "the ETDump was cut"),
    "only a header": (CAPTURE[:12], "the ETDump was cut"),
    "an empty frame": (prefixed(0), "too few for a header"),
    "a wrong root": (CAPTURE[:4] + b"\xff" * 4 + CAPTURE[8:], "leads outside the file"),
    "text": (b"hello, \x1b[31mworld\x1b[0m\n" * 9, "no ETDump"),
    "an ETRecord": ((FIXTURES / "toy_backend_int" / "model.etrecord").read_bytes(), "perhaps an ETRecord"),
    "a program": ((FIXTURES / "toy_backend_int" / "model.pte").read_bytes(), "an ExecuTorch program (.pte)"),
    "JSON": (b'{"debug_handle_map": {}}', "it looks like JSON"),
    "a gzip": (gzip.compress(CAPTURE), "no ETDump"),
    "a bomb": (a_bomb(100_000), "its tables are shared"),
    "zeros": (bytes(1 << 20), "no ETDump"),
}


@pytest.fixture(autouse=True)
def _still_up(service: Service) -> Iterator[None]:
    """Whatever a test sends: the process stays up, and logs no fault of its own."""
    pid = service.process.pid
    yield
    assert (service.process.returncode, service.process.pid) == (None, pid)
    assert service.get("/readyz").is_success
    assert "Traceback" not in service.process.log.read_text()


@pytest.mark.parametrize("door", [by_grpc, by_http])
def test_bad_files_between_good_ones(door: Door, service: Service) -> None:
    """A file that is no ETDump is INVALID_ARGUMENT and told what it is; the good files around it arrive whole."""
    app = f"between {door.__name__}"
    for number, (what, (etdump, told)) in enumerate(BAD.items()):
        assert door(service, CAPTURE + bytes([number]), app) == ""
        refusal = door(service, etdump, app)
        assert (what, refusal.partition(":")[0]) == (what, "INVALID_ARGUMENT")
        assert told in refusal
    assert door(service, CAPTURE, app) == ""
    service.settle()
    spans = service.spans(app)
    assert len(spans) == len({span.span_id for span in spans}) == EVENTS * (len(BAD) + 1)


def test_bad_files_in_one_command(service: Service, tmp_path: Path) -> None:
    """`send` names each file that the bridge refuses, sends the others all the same, and ends with 1."""
    files = [tmp_path / f"{number}.etdp" for number in range(4)]
    for file, data in zip(files, (CAPTURE, b"\x1b[31mno dump", CAPTURE[:-1], CAPTURE + b"trailing"), strict=True):
        file.write_bytes(data)
    arguments = ("--build-id", "none", "--resource", "service.name=command", "--server", service.grpc)
    done = otel_bridge("send", *files, *arguments, "--json")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith(f"Error: {files[1]}: the bridge at {service.grpc} answered INVALID_ARGUMENT: no ETDump")
    assert second.startswith(f"Error: {files[2]}: the bridge at {service.grpc} answered INVALID_ARGUMENT: the ETDump was cut")
    assert first.isprintable()
    *said, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name: last["summary"][name] for name in ("files", "sent", "refused", "unsent")} == {
        "files": 4,
        "sent": 2,
        "refused": 2,
        "unsent": 0,
    }
    assert [each["file"] for each in said] == list(map(str, files))
    assert [each.get("accepted") for each in said] == [EVENTS, None, None, EVENTS]
    assert [f"Error: {each['error']}" for each in said if "error" in each] == [first, second]
    service.settle()
    assert len(service.spans("command")) == 2 * EVENTS


@pytest.mark.parametrize("door", [by_grpc, by_http])
def test_flipped_bits(door: Door, service: Service) -> None:
    """A file with a flipped bit is refused or taken for what it says; either way the next file arrives whole."""
    dice = random.Random(7)  # noqa: S311 - the same flips in every run
    outcomes = set()
    for _ in range(60):
        flipped = bytearray(CAPTURE)
        flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
        outcomes.add(door(service, bytes(flipped), "flipped").partition(":")[0])
    assert outcomes == {"", "INVALID_ARGUMENT"}
    assert door(service, CAPTURE, f"after flips {door.__name__}") == ""
    service.settle()
    assert len(service.spans(f"after flips {door.__name__}")) == EVENTS
    ledger = service.ledger()
    assert (ledger.accepted, ledger.dropped) == (ledger.emitted, 0)


@pytest.mark.parametrize("door", [by_grpc, by_http])
def test_a_file_over_the_limit(door: Door, service: Service) -> None:
    """A request over the limit is RESOURCE_EXHAUSTED; one below it is judged by its content."""
    assert door(service, CAPTURE.ljust(LIMIT_BYTES + 1, b"\0"), "large").startswith("RESOURCE_EXHAUSTED: ")
    assert door(service, CAPTURE.ljust(LIMIT_BYTES - 1000, b"\0"), f"large {door.__name__}") == ""
    service.settle()
    assert len(service.spans(f"large {door.__name__}")) == EVENTS


def test_what_becomes_too_large(service: Service) -> None:
    """The limit counts after decompression, at either door: 1 GiB of zeros in 1 MB is refused as what it is."""
    bomb = gzip.compress(bytes(1 << 30), 1)
    url = f"http://{service.http}/v1/etdump"
    response = httpx.post(url, content=iter([bomb]), headers={"content-encoding": "gzip"}, trust_env=False, timeout=30)
    assert (response.status_code, response.json()["reason"]) == (413, "too_large")
    with pytest.raises(grpc.RpcError) as raised:
        service.profiling.UploadETDump(pb.UploadETDumpRequest(etdump=bytes(64 << 20)), compression=grpc.Compression.Gzip)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_an_undecodable_request(service: Service) -> None:
    """Bytes that are no request are INVALID_ARGUMENT, and the message says what they should have been."""
    with pytest.raises(grpc.RpcError) as raised:
        service.channel.unary_unary("/otel_bridge.v1.ProfilingService/ExportEvents")(b"\x08\x96\x01\xff")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "4 bytes is no otel_bridge.v1.ExportEventsRequest" in (raised.value.details() or "")


METADATA = (
    b'{"a": NaN}',
    b'{"a": Infinity, "b": 1}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a": 1e999}',
    b'{"a": "\\ud800"}',
    b'{"\\ud800": 1}',
    b"[" * 100_000,
    b'{"a": {"b": [1]}}',
    b'{"": 1}',
    b"\xff\xfe\x00",
    b"\x1b[31mred",
    b"null",
    b'"text"',
    bytes(300_000),
)


def test_bad_events_and_metadata(service: Service) -> None:
    """Identifiers that are no UTF-8 cost their events, metadata that cannot be decoded only an attribute; the rest arrives."""
    events = [
        ProfileEvent(id_int=n, chain=0, instruction=0, start=n, end=n + 1, metadata=data) for n, data in enumerate(METADATA)
    ]
    bad = [ProfileEvent(id_str=b"\xff", chain=0, instruction=0), ProfileEvent(name="x" * 5000, chain=0), DebugEvent(name="d")]
    dump = write_etdump([RunData("Execute", [*events, *bad, ProfileEvent(name="Method::execute", chain=-1, start=0, end=99)])])
    answer = service.post(dump, **{"resource.service.name": "metadata"}).json()
    assert answer["accepted"] == len(METADATA) + 1
    assert answer["rejected"] == {"not_utf8": 1, "name_too_long": 1, "debug_event": 1}
    assert is_clear(answer["first_rejection"])
    service.settle()
    spans = service.spans("metadata")
    assert len(spans) == len(METADATA) + 1
    told: dict[str, set[str]] = {}
    for span in spans:
        said = {each.key: each.value.string_value for each in span.attributes}
        told[said.get("executorch.delegate.debug_id", "")] = {key for key in said if ".metadata" in key}
    assert [number for number in range(len(METADATA)) if not told[str(number)]] == []


def test_an_unknown_method(service: Service, fixtures: Path) -> None:
    """Events of a method that the mapping lacks arrive, unresolved and marked so."""
    source = fixtures / "toy_backend_int" / "model.etrecord"
    service.command("mapping", "upload", source, "--model", "toy", "--version", "1")
    assert service.post(CAPTURE, model="toy@1", method="backward", **{"resource.service.name": "method"}).is_success
    service.settle()
    spans = service.spans("method")
    statuses = [each.value.string_value for span in spans for each in span.attributes if each.key.endswith("resolution.status")]
    assert (len(spans), set(statuses)) == (EVENTS, {"no_method"})


def test_the_sink_saw_nothing_strange(sink: OtlpSink, service: Service) -> None:
    """After all that, every span that left is one that any back end takes: ids, name, an end behind its start."""
    service.settle()
    assert len(sink.spans) > 0
    for span in sink.spans:
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert span.name
        assert span.start_time_unix_nano < span.end_time_unix_nano
