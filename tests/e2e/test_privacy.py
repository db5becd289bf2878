"""A real bridge keeps of devices, people and developers what the settings let it: on disk, in spans, over restarts."""

import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from support.mappings import mapping_of
from support.otlp_sink import OtlpSink
from support.requests import a_request
from support.scenes import call, delegated
from support.service import Service, otel_bridge, running

from otel_bridge.app.privacy import SALT
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub

SERIAL, OTHER = b"SN-0123-4567-89", b"SN-0000-0000-00"
APP = "kept-as-it-is"
BUILD = "build"
NUMBERS = count()
HASHED = {"PRIVACY__HASH_KEYS": "device.id,enduser.*"}

MADE_IN = "/" + "home/ana/"  # a checkout holds no path that one machine has, not even as an example


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test."""
    with OtlpSink() as sink:
        yield sink


def send(service: Service, serial: bytes, build: bytes = b"") -> None:
    """An inference of a device that says who it is, on the resource and on the inference."""
    request = a_request(call("DELEGATE_CALL", 0, 0, 9), delegated("conv", 0, 1, 2, metadata=b'{"cycles":5,"user":"ana"}'))
    request.stream.sequence = next(NUMBERS)
    request.stream.model.CopyFrom(pb.ModelRef(build_id=build))
    for key, value in ((b"service.name", APP.encode()), (b"device.id", serial), (b"host.id", serial)):
        request.stream.resource.add(key=key).value.text = value
    request.blocks[0].attributes.add(key=b"enduser.id").value.text = serial
    assert service.profiling.ExportEvents(request) == pb.ExportEventsResponse(accepted=2)


def upload(service: Service, mapping: mapping_pb2.Mapping) -> None:
    """The mapping of the build arrives."""
    file = mapping_pb2.MappingFile(build_id=BUILD, mapping=mapping)
    MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))


def devices(sink: OtlpSink) -> list[str]:
    """What stands for the device in what arrived, in that order."""
    resources = [part.resource for request in sink.requests for part in request.resource_spans]
    return [each.value.string_value for resource in resources for each in resource.attributes if each.key == "device.id"]


def test_a_hash_is_all_that_is_kept_of_a_device(sink: OtlpSink, tmp_path: Path) -> None:
    """The value reaches neither disk nor back end nor log; its hash is the same after a restart, and no other device's."""
    with running(tmp_path, sink, PARKING__POLICY="park", **HASHED) as service:
        send(service, SERIAL, build=BUILD.encode())  # waits on disk for its mapping
        send(service, SERIAL)
        send(service, OTHER)
        service.process.wait_until(lambda: len(devices(sink)) == 2)
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    salt = tmp_path / "data" / SALT
    assert stat.S_IMODE(salt.stat().st_mode) == 0o600
    assert APP.encode() in kept  # so what is looked for would be found
    assert SERIAL not in kept
    with running(tmp_path, sink, **HASHED) as service:
        upload(service, mapping_of({"conv": [1]}))
        send(service, SERIAL)
        service.settle()
    first, other, *later = devices(sink)
    assert later == [first, first]
    assert other != first
    assert SERIAL.decode() not in str(sink.requests)


def test_bridges_with_one_salt_hash_alike(sink: OtlpSink, tmp_path: Path) -> None:
    """A salt from a file serves several bridges; one that makes its own hashes otherwise."""
    salt = tmp_path / "shared"
    salt.write_bytes(b"5" * 64)
    for name, settings in (
        ("a", {"PRIVACY__SALT_FILE": str(salt)}),
        ("b", {"PRIVACY__SALT_FILE": str(salt)}),
        ("c", {}),
    ):
        (tmp_path / name).mkdir()
        with running(tmp_path / name, sink, **HASHED, **settings) as service:
            send(service, SERIAL)
            service.settle()
    a, b, c = devices(sink)
    assert a == b != c


def test_a_salt_that_is_lost_in_part_is_told(tmp_path: Path) -> None:
    """A bridge does not start with a salt that is too short to be one, nor does it make another in its place."""
    (tmp_path / SALT).write_text("short\n")
    done = otel_bridge(
        "serve",
        "--data-dir",
        tmp_path,
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        OTEL_BRIDGE_PRIVACY__HASH_KEYS="device.id",
    )
    assert done.returncode == 1
    assert "holds 5 bytes, and at least 32 are needed" in done.stderr
    assert (tmp_path / SALT).read_text() == "short\n"


def test_spans_do_not_show_where_a_model_was_built(sink: OtlpSink, tmp_path: Path) -> None:
    """Source paths lose the developer's home directory and metadata what is not listed; the mapping itself stays whole."""
    mapping = mapping_of({"conv": [1]})
    known = mapping.methods[0].instructions[0].operators.add(handle=1)
    known.operators.add(name="aten.conv", file=MADE_IN + "net/model.py", line=3)
    with running(tmp_path, sink, PRIVACY__METADATA_KEYS="cycles", METADATA__PARSERS="json") as service:
        upload(service, mapping)
        send(service, SERIAL, build=BUILD.encode())
        service.settle()
        stored = MappingServiceStub(service.channel).GetMapping(mapping_pb2.GetMappingRequest(ref=BUILD))
    said = {each.key: each.value for span in sink.spans for each in span.attributes}
    assert said["code.file.path"].string_value == "net/model.py"
    assert said["executorch.delegate.metadata.cycles"].double_value == 5
    assert "ana" not in str(sink.requests)
    assert MADE_IN + "net/model.py" in str(stored)
