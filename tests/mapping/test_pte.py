"""Programs, honest and not."""

import hashlib
import io
import json
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import maps_of
from support.mappings import CAPTURES, FIXTURES, capture
from support.programs import Call, Kernel, Methods, Other, write_program, xnnpack_payload

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping import pte_tables
from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.pte import Program, read_program
from otel_bridge.mapping.xnnpack_payload import KINDS
from otel_bridge.v1 import mapping_pb2 as pb

XNNPACK = "XnnpackBackend"


def payloads_in(data: bytes) -> list[list[tuple[int, int]]]:
    """(member of the union, debug handle) of every node of every payload, found by their magic: a reader of its own."""
    found = []
    at = data.find(b"XH00")
    while at >= 0:
        begin, size = struct.unpack_from("<II", data, at + 6)
        graph = data[at - 4 + begin :][:size]

        def field(table: int, slot: int, graph: bytes = graph) -> int:
            vtable = table - struct.unpack_from("<i", graph, table)[0]
            return table + int(struct.unpack_from("<H", graph, vtable + 4 + 2 * slot)[0])

        def follow(place: int, graph: bytes = graph) -> int:
            return place + int(struct.unpack_from("<I", graph, place)[0])

        vector = follow(field(follow(0), 1))
        nodes = [follow(vector + 4 * number) for number in range(1, struct.unpack_from("<I", graph, vector)[0] + 1)]
        found.append([(graph[field(node, 0)], struct.unpack_from("<I", graph, field(node, 2))[0]) for node in nodes])
        at = data.find(b"XH00", at + 1)
    return found


@pytest.mark.parametrize("model", CAPTURES)
def test_captured_programs(model: str) -> None:
    """Methods, delegate instructions and backends are those that ExecuTorch's program manager named; each has its place."""
    program = read_program(capture(model, "model.pte"))
    maps = maps_of(model)
    assert [method.name for method in program.mapping.methods] == sorted(maps["debug_handle_map"])
    for method in program.mapping.methods:
        calls = {str(each.id): each.delegate for each in method.instructions if each.delegate}
        assert calls == {key: call["name"] for key, call in maps["delegate_map"][method.name].items()}
        kernels = {key for key, handles in maps["debug_handle_map"][method.name].items() if isinstance(handles, int)}
        assert kernels <= {str(each.id) for each in method.instructions if each.kernel}
    assert program.build_id == hashlib.sha256(capture(model, "model.pte")).hexdigest()


@pytest.mark.parametrize("run", sorted(FIXTURES.glob("*/run.json")), ids=lambda path: path.parent.name)
def test_captured_kernels(run: Path) -> None:
    """A kernel call names the kernel that the runtime says it ran there."""
    program = read_program(capture(run.parent.name, "model.pte"))
    named = {(each.id, each.kernel) for method in program.mapping.methods for each in method.instructions if each.kernel}
    events = [event["profile_event"] for block in json.loads(run.read_bytes())["run_data"] for event in block["events"]]
    ran = {
        (event["instruction_id"], event["name"].replace("native_call_", "aten::"))
        for event in events
        if event is not None and (event["name"] or "").startswith("native_call_")
    }
    assert ran == named


@pytest.mark.parametrize("model", CAPTURES)
def test_captured_nodes(model: str) -> None:
    """XNNPACK's nodes are those that a second reader finds, in order; their handles are among those of their call."""
    data = capture(model, "model.pte")
    calls = [
        (each, maps_of(model)["debug_handle_map"][method.name][str(each.id)])
        for method in read_program(data).mapping.methods
        for each in method.instructions
        if each.delegate == XNNPACK
    ]
    found = [[(KINDS.index(node.kind) + 1, node.handle or 65535) for node in call.nodes] for call, _ in calls]
    assert found == payloads_in(data)
    for call, handles in calls:
        assert set(call.handles) == {node.handle for node in call.nodes} - {0} <= set(handles)


METHODS: Methods = {
    "forward": [
        Kernel("aten::add", "out"),
        Call(XNNPACK, xnnpack_payload([("Conv2d", 7), ("StaticTranspose", 65535), (48, 0), ("Copy", 3)])),
        Other(3),
        Call("Toy", b"anything"),
        Kernel("my::kernel"),
    ],
    "other": [Other(4), Call(XNNPACK, xnnpack_payload([("Add", 2)], header=False), inline=True)],
}


def test_written_program() -> None:
    """Instructions keep their index, beside those that are no call too; 65535 and 0 are no handle; later kinds are numbered."""
    program = read_program(write_program(METHODS))
    nodes = [("Conv2d", 7), ("StaticTranspose", 0), ("XNode48", 0), ("Copy", 3)]
    assert program.mapping == pb.Mapping(
        format=1,
        methods=[
            pb.Method(
                name="forward",
                instructions=[
                    pb.Instruction(id=0, kernel="aten::add.out"),
                    pb.Instruction(
                        id=1, delegate=XNNPACK, handles=[3, 7], nodes=[pb.DelegateNode(kind=k, handle=h) for k, h in nodes]
                    ),
                    pb.Instruction(id=3, delegate="Toy"),
                    pb.Instruction(id=4, kernel="my::kernel"),
                ],
            ),
            pb.Method(
                name="other",
                instructions=[
                    pb.Instruction(id=1, delegate=XNNPACK, handles=[2], nodes=[pb.DelegateNode(kind="Add", handle=2)])
                ],
            ),
        ],
    )
    assert program.jumping == {"other"}


def test_forms_of_the_frame() -> None:
    """Without the size of the segments, or without any header and segments but empty ones, a program says the same."""
    assert read_program(write_program(METHODS, header_bytes=24)).mapping == read_program(write_program(METHODS)).mapping
    inline: Methods = {"forward": [Call(XNNPACK, xnnpack_payload([("Add", 1)]), inline=True)]}
    assert read_program(write_program(inline, header_bytes=0)).mapping == read_program(write_program(inline)).mapping
    empty: Methods = {"forward": [Call("Toy", b"")]}
    assert read_program(write_program(empty, header_bytes=0)).mapping == read_program(write_program(empty)).mapping


def test_a_payload_of_an_unknown_form_gives_no_nodes() -> None:
    """A later form of the payload is no reason to refuse the program: its calls are known, their nodes are not."""
    later = xnnpack_payload([("Add", 1)]).replace(b"XH00", b"XH99")
    (method,) = read_program(write_program({"forward": [Call(XNNPACK, later)]})).mapping.methods
    assert list(method.instructions) == [pb.Instruction(id=0, delegate=XNNPACK)]


@pytest.mark.parametrize(
    ("data", "where", "found"),
    [
        (write_program(METHODS, identifier=b"ET13"), ".pte", '"ET13"'),
        (write_program(METHODS, chains=2), ".pte: execution_plan[0].chains", "2 chains"),
        (write_program({"forward": [Other(1)]}), ".pte: execution_plan[0].instructions[0]", "operator 0 of 0"),
        (write_program({"forward": [Other(2)]}), ".pte: execution_plan[0].instructions[0]", "delegate 0 of 0"),
        (write_program({"forward": [Call("")]}), ".pte: execution_plan[0].instructions[0].delegate", "no backend id"),
        (write_program({"forward": [Kernel(b"\xff")]}), ".pte, byte", "not UTF-8"),
        (write_program({"forward": [Kernel("x" * 5000)]}), ".pte, byte", "a text of 5000 bytes"),
        (write_program({"": [Kernel("x")]}), "methods[", "an empty string"),
        (write_program({"forward": [Call(XNNPACK, b"....XH00")]}), "processed", "a number outside the buffer"),
        (
            write_program({"forward": [Call(XNNPACK, xnnpack_payload([("Add", 1)]).replace(b"XN01", b"XN99"))]}),
            "processed",
            "promises a graph in bytes 32 to",
        ),
        (write_program({"forward": [Call("A", b"data")]}, header_bytes=0), ".pte: segments[0]", "it reaches to byte"),
        (write_program(METHODS, plan_references=2), "methods[forward]", "given twice"),
        (b"\0\0\0\0ET12", ".pte, byte 0", "a vtable shorter than its head"),
    ],
)  # fmt: skip
def test_refused(data: bytes, where: str, found: str) -> None:
    """What is no program, or one that cannot be told apart, is refused with its place, and nothing of it is echoed raw."""
    with pytest.raises(MalformedMapping) as caught:
        read_program(data)
    assert where in str(caught.value)
    assert found in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("model", CAPTURES)
def test_cut_programs(model: str) -> None:
    """A program that was cut is refused, wherever it was cut: also in its weights."""
    data = capture(model, "model.pte")
    for length in [*range(0, len(data), 64), len(data) - 1]:
        with pytest.raises(MalformedMapping):
            read_program(data[:length])


def _read(data: bytes) -> Program | None:
    """The program of bytes that may be anything; any error but the one that is promised fails the test."""
    try:
        return read_program(data)
    except MalformedMapping:
        return None


SMALL = capture("multi_method", "model.pte")


@settings(max_examples=300)
@given(st.lists(st.integers(0, 8 * len(SMALL) - 1), min_size=1, max_size=6))
def test_flipped_bits(bits: list[int]) -> None:
    """Whatever bits are flipped, a program is read into a canonical mapping or refused."""
    data = bytearray(SMALL)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    program = _read(bytes(data))
    assert program is None or canonical(program.mapping) == program.mapping


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SMALL) // 4 - 1), st.integers(-80, 80) | st.integers(-(2**31), 2**31 - 1)), min_size=1
    )
)
def test_forged_references(words: list[tuple[int, int]]) -> None:
    """References may lead back, out, into each other or in a circle, and counts may claim anything: the same holds."""
    data = bytearray(SMALL)
    for word, value in words:
        struct.pack_into("<i", data, 4 * word, value)
    program = _read(bytes(data))
    assert program is None or canonical(program.mapping) == program.mapping


def _bombs() -> list[bytes]:
    nodes = Call(XNNPACK, xnnpack_payload([("Add", 1)] * 5000))
    return [
        write_program({"forward": [Kernel("k")] * 5000}, plan_references=1000),
        write_program({"forward": [nodes] * 5000}),
        write_program({"forward": [Kernel("k" * 4000)] * 20_000}),
    ]


@pytest.mark.parametrize("data", _bombs(), ids=["methods", "nodes", "kernels"])
def test_shared_tables(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """References that lead to one place many times buy no more work than one honest document: then the file is refused."""
    read = _count_tables(monkeypatch)
    with pytest.raises(MalformedMapping, match="more than a mapping of"):
        read_program(data)
    assert len(read) < 4 * pte_tables.MAX_DOCUMENT_BYTES // 256


@pytest.mark.parametrize("name", ["", "k" * 4000], ids=["without names", "with long names"])
def test_too_many_methods(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are counted before any is read: one without name and instructions makes nothing, so no allowance would end it."""
    data = write_program({name: []}, plan_references=400_000)
    read = _count_tables(monkeypatch)
    with pytest.raises(MalformedMapping, match=r"400000 methods.*at most 1024 are taken"):
        read_program(data)
    assert len(read) == 1  # the root


def _count_tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of the tables that are read from here on."""
    read: list[int] = []
    make = pte_tables.Table.__init__

    def count(self: pte_tables.Table, buffer: pte_tables.Buffer, at: int) -> None:
        read.append(at)
        make(self, buffer, at)

    monkeypatch.setattr(pte_tables.Table, "__init__", count)
    return read


def test_weights_stay_where_they_are(tmp_path: Path) -> None:
    """A file is read in place: what is kept and copied does not grow with its weights."""
    nodes: list[tuple[str | int, int]] = [("Conv2d", 1)]
    path = tmp_path / "model.pte"
    path.write_bytes(write_program({"forward": [Call(XNNPACK, xnnpack_payload(nodes, weights=bytes(16 << 20)))]}))
    with path.open("rb") as file:
        tracemalloc.start()
        try:
            program = read_program(file)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1 << 20
    assert program.build_id == hashlib.sha256(path.read_bytes()).hexdigest()
    assert program == read_program(io.BytesIO(path.read_bytes())) == read_program(path.read_bytes())


def test_what_cannot_be_mapped_is_told(tmp_path: Path) -> None:
    """A file that is empty or has no place on disk is refused in the reader's own words."""
    (tmp_path / "empty.pte").touch()
    with (tmp_path / "empty.pte").open("rb") as file, pytest.raises(MalformedMapping, match="give a regular file"):
        read_program(file)
