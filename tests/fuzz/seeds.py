"""
Inputs to start from: captures, and requests, mappings, programs and schemas as the tests write them, all small.

Invariant: what they show is the way into a parser: a fuzzer finds by itself where to leave it.
"""

import gzip
import json
import sys
import zipfile
from math import inf
from pathlib import Path

from fuzz.targets import DECODERS, ENCODINGS, MARK, joined
from support.etdump_writer import AllocationEvent, DebugEvent, ProfileEvent, RunData, write_etdump
from support.etrecords import ADD, GRAPH, MAPS, MUL
from support.identity_provider import AUDIENCE, ISSUER, Provider
from support.mappings import call_of, capture, etrecord_of, mapping_of, program_of
from support.programs import Call, Kernel, write_program, xnnpack_payload
from support.scenes import batch_of, call, delegated, execute, runtime, scope

from otel_bridge.mapping.source import write_file
from otel_bridge.spool.encode import encode
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PROBE = Path(__file__).parents[1] / "metadata"
DUMPS = [capture(name, "run.etdp") for name in ("toy_backend_int", "toy_backend_str", "multi_method")]
WRITTEN = write_etdump(
    [
        RunData("Default", [ProfileEvent(name="Method::init", chain=-1, instruction=0, start=1, end=9)]),
        RunData(
            "Execute",
            [
                ProfileEvent(id_str="conv", chain=0, instruction=0, metadata=b"{}", start=12, end=13),
                ProfileEvent(id_int=3, chain=0, instruction=0, start=14, end=15),
                DebugEvent(chain=0, instruction=1, name="x"),
                AllocationEvent(allocator=1, size=64),
            ],
        ),
    ],
    size_prefixed=False,
)
SCENE = batch_of(
    (
        execute(0, method="forward", attributes=(("thread.id", 4),), error=0, run_index=1),
        [
            runtime("Method::execute", 0, 100),
            call("DELEGATE_CALL", 0, 10, 60),
            delegated("conv #1", 0, 20, 30, metadata=b'{"a":1}'),
            delegated(7, 0, 30, 40, metadata=b"text"),
            call("OPERATOR_CALL", 1, 60, 90, chain=1),
            scope("native_call_add.out", 1, 65, 80),
        ],
    ),
    (execute(1), [call("OPERATOR_CALL", 1, 160, 190)]),
)
FILE = mapping_pb2.MappingFile(mapping=mapping_of({"conv #1": [1, 2], 7: [3]}), build_id="b" * 40, name="net", version="1")
LAYOUT = mapping_pb2.MetadataFormat(
    delegate="Toy",
    layout=mapping_pb2.StructLayout(
        fields=[
            mapping_pb2.StructField(name=name, type=kind, unit=unit)
            for name, kind, unit in (
                ("cycles", "u32", "{cycle}"),
                ("load", "f32", ""),
                ("hot", "bool", ""),
                ("id", "bytes<4>", ""),
            )
        ]
    ),
)
QUERIES = (
    b"model=net@1&method=forward&stream=000102030405060708090a0b0c0d0e0f&sequence=7&resource.service.name=a%20b",
    b"build_id=abc&tick_ratio=125/3&counter_bits=32&anchor=5=1800000000000000000&ended_at=1800000000000000000",
    b"first_position=3&runtime_version=1.5&resource.%ff=%e2%80%ae",
    b"model=net&replace=true",
)


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "somebody", "exp": 4_102_444_800, "tenant": "acme"}


def _odd_numbers() -> bytes:
    request = request_of(SCENE)
    for block in request.blocks:
        block.attributes.add(key=b"executorch.inference.inputs").value.number = inf
    return request.SerializeToString()


def _upload() -> bytes:
    request = pb.UploadETDumpRequest(etdump=WRITTEN, method=b"forward", stream=request_of(SCENE).stream, first_position=4)
    request.attributes.add(key=b"thread.name").value.text = b"main"
    return request.SerializeToString()


def _metadata() -> list[bytes]:
    vgf = {
        "schema": "executorch.vgf.neural_statistics", "schema_version": 1, "available": True, "reason": "none", "segments": [
            {"segment_id": 0, "debug_database": {"available": True, "size": 3, "encoding": "base64", "data": "AAEC"}}
        ],
    }  # fmt: skip
    coreml = {
        "preferredComputeUnit": "NE",
        "supportedComputeUnits": ["NE", "CPU"],
        "operatorName": "conv",
        "estimatedCost": 0.25,
    }
    plain = {"a": 1, "b": [True, None, {"c": "é"}], "d": 1e300, "e": 2**64}
    wide = {f"key {number}": number for number in range(40)} | {"long": "x" * 2100}
    said = [*(json.dumps(each).encode() for each in (vgf, coreml, plain, wide, ["x"] * 40)), b"line", b"\x07"]
    return [bytes([number]) + each for number in range(len(DECODERS)) for each in said]


def _bodies() -> list[bytes]:
    text = b"body " * 20
    coded = {"": text, "gzip": gzip.compress(text, mtime=0), "zstd": zstd.compress(text)}
    bomb = gzip.compress(bytes(1 << 17), mtime=0)
    return [bytes([number, 9]) + coded[name] for number, name in enumerate(ENCODINGS)] + [b"\x01\xff" + bomb]


def _programs() -> list[bytes]:
    steps = [Kernel("aten::add", "out"), Call("XnnpackBackend", xnnpack_payload([("Conv2d", 1), ("Softmax", 2)], weights=b"w"))]
    return [write_program({"forward": steps}), capture("toy_backend_int", "model.pte"), capture("toy_backend_str", "model.pte")]


def _etrecords() -> list[bytes]:
    maps = [json.dumps(MAPS[name]).encode() for name in ("debug_handle_map", "delegate_map")]
    graph = json.dumps(program_of([ADD, MUL, call_of("Toy", [ADD])])).encode()
    deflated = etrecord_of({**MAPS, f"{GRAPH}/forward": program_of([ADD])}, compression=zipfile.ZIP_DEFLATED)
    return [MARK.join([*maps, graph]), MARK.join(maps), etrecord_of(MAPS), deflated]


def _key_sets() -> list[bytes]:
    provider = Provider()
    provider.rotate("two", rsa_bits=2048)
    (curve, _) = json.loads(provider.key_set())["keys"]
    edwards = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    odd = [{**curve, "d": "AA"}, {"kty": "oct", "k": "AAAA"}, {**curve, "alg": "none"}, {**curve, "alg": "HS256"}]
    return [provider.key_set(edwards), json.dumps({"keys": [curve]}).encode(), json.dumps({"keys": [*odd, curve]}).encode()]


SEEDS: dict[str, list[bytes]] = {
    "etdump": [*DUMPS, WRITTEN],
    "upload": [_upload()],
    "events": [request_of(SCENE).SerializeToString(), _odd_numbers()],
    "query": [*QUERIES],
    "body": _bodies(),
    "mapping": [write_file(FILE, "a.bin"), write_file(FILE, "a.json"), capture("toy_backend_int", "maps.json")],
    "etrecord": _etrecords(),
    "program": _programs(),
    "metadata": _metadata(),
    "layout": [joined(LAYOUT.SerializeToString(), bytes(range(13)))],
    "schema": [joined((PROBE / "probe.bin").read_bytes(), (PROBE / "probe.bfbs").read_bytes())],
    "record": [encode(SCENE)],
    "web_token": [
        b'{"alg":"ES256","kid":"one","typ":"JWT"}\n' + json.dumps(CLAIMS | {"scope": "events:write admin", "nbf": 1}).encode(),
        b'{"alg":"ES256"}\n' + json.dumps(CLAIMS | {"scope": ["admin", 7], "aud": ["x", AUDIENCE]}).encode(),
        b'{"alg":"ES256"}\n'
        + json.dumps(CLAIMS | {"exp": 10**400, "iat": 0.5, "tenant": "a" * 64, "sub": "ana\n\u202e"}).encode(),
    ],
    "key_set": _key_sets(),
    "credential": [
        b"otb_abcdefghij_" + b"A" * 43,
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nvendor=1",
    ],
}
"""Target -> inputs."""
