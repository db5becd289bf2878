"""An ETRecord that is broken, hostile or of no use is refused: where, what was found, and the way out."""

import io
import re
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.etrecords import ADD, GRAPH, MAPS, record_of
from support.mappings import call_of, etrecord_of, node_of

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping import etrecord
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.v1 import mapping_pb2 as pb

BOMB = etrecord_of({**MAPS, "debug_handle_map": b" " * (3 << 20)}, compression=zipfile.ZIP_DEFLATED)


def encrypted(data: bytes) -> bytes:
    """The same with the flag for encryption set on every member."""
    return re.sub(rb"(PK\x03\x04..|PK\x01\x02....)\x00\x00", lambda head: head[1] + b"\x01\x00", data, flags=re.DOTALL)


def doubled() -> bytes:
    """Two members of one name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("debug_handle_map", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("debug_handle_map", "{}")
    return buffer.getvalue()


def damaged() -> bytes:
    """A byte of a member's content flipped, so that its checksum fails."""
    data = bytearray(etrecord_of(MAPS))
    data[data.index(b'{"forward"') + 2] ^= 1
    return bytes(data)


WHOLE = etrecord_of(MAPS)


@pytest.mark.parametrize(
    ("data", "where", "way_out"),
    [
        (b"", "ETRecord: no whole zip", "complete"),
        (b"PK\x03\x04" + b"\xff" * 40, "ETRecord: no whole zip", "complete"),
        (WHOLE[: len(WHOLE) // 2], "ETRecord: no whole zip", "complete"),
        (WHOLE[:-1], "ETRecord: no whole zip", "complete"),
        (etrecord_of({"ETRECORD_V0": b""}), "debug_handle_map: missing", "properties debug_handle_map and delegate_map"),
        (etrecord_of({**MAPS, "debug_handle_map": None}), "debug_handle_map: missing", "properties debug_handle_map"),
        (etrecord_of({**MAPS, "debug_handle_map": {}}), "debug_handle_map: an object of 0", "properties debug_handle_map"),
        (etrecord_of({**MAPS, "debug_handle_map": [1]}), "debug_handle_map: a list of 1", "is an object"),
        (etrecord_of({**MAPS, "debug_handle_map": b"{"}), "debug_handle_map: no JSON", "is the file whole"),
        (
            etrecord_of({**MAPS, "debug_handle_map": b"\xff"}),
            "debug_handle_map: a byte that is not UTF-8 at offset 0",
            "right file",
        ),
        (etrecord_of({**MAPS, "delegate_map": None}), "debug_handle_map[forward][0]: a list of handles", "delegate_map"),
        (etrecord_of({"debug_handle_map": MAPS["debug_handle_map"]}), "debug_handle_map[forward][0]: a list", "delegate_map"),
        (etrecord_of({**MAPS, f"{GRAPH}/forward": b"PK"}), f"{GRAPH}/forward: no JSON", "is the file whole"),
        (
            etrecord_of({**MAPS, f"{GRAPH}/forward": {"graph_module": 3}}),
            f"{GRAPH}/forward.graph_module.graph.nodes: null",
            "maps as JSON",
        ),
        (etrecord_of({**MAPS, f"{GRAPH}/forward": b"[" * 100_000}), f"{GRAPH}/forward: JSON nested too deep", "right file"),
        (etrecord_of({**MAPS, f"{GRAPH}/forward": b"9" * 5000}), f"{GRAPH}/forward: a number of thousands", "right file"),
        (etrecord_of(MAPS, compression=zipfile.ZIP_BZIP2), "debug_handle_map: compression of kind 12", "make it anew"),
        (encrypted(WHOLE), "debug_handle_map: a member that cannot be read", "encrypted"),
        (damaged(), "debug_handle_map: a member that cannot be read", "damaged"),
        (BOMB, "debug_handle_map: no JSON", "is the file whole"),
    ],
)
def test_refused(data: bytes, where: str, way_out: str) -> None:
    """A file that is no ETRecord with maps is refused in one line: what, where and the way out."""
    with pytest.raises(MalformedMapping) as caught:
        read_etrecord(data)
    assert where in str(caught.value)
    assert way_out in str(caught.value)
    assert str(caught.value).isprintable()


def test_doubled_member() -> None:
    """Two members of a name that is read are refused: zip readers disagree on which one counts."""
    with pytest.raises(MalformedMapping, match="debug_handle_map: 2 members of that name"):
        read_etrecord(doubled())


def test_no_delegates() -> None:
    """A program without delegates has no delegate map, in any of the forms that ExecuTorch has written."""
    for members in ({}, {"delegate_map": None}, {"delegate_map": {}}, {"delegate_map": {"forward": {}}}):
        mapping = read_etrecord(etrecord_of({"debug_handle_map": {"forward": {"3": 9}}, **members}))
        assert mapping == pb.Mapping(
            format=1, methods=[pb.Method(name="forward", instructions=[pb.Instruction(id=3, handles=[9])])]
        )


@pytest.mark.parametrize(
    ("limit", "value", "where"),
    [
        ("MAX_MEMBER_BYTES", 1 << 20, "debug_handle_map: more than 1048576 bytes"),
        ("MAX_READ_BYTES", 1 << 20, "debug_handle_map: more than 1048576 bytes"),
        ("MAX_DIRECTORY_BYTES", 100, "ETRecord: a directory of "),
    ],
)
def test_reading_is_bounded(limit: str, value: int, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks to more than the limit is given up at the limit; so is a directory of too many members."""
    monkeypatch.setattr(etrecord, limit, value)
    with pytest.raises(MalformedMapping) as caught:
        read_etrecord(BOMB)
    assert where in str(caught.value)


def test_operators_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One handle of many nodes in many instructions is refused before the product is built."""
    monkeypatch.setattr(etrecord, "MAX_OPERATORS", 20)
    nodes = [node_of(f"n{i}", "aten.add.Tensor", 1) for i in range(10)]
    assert read_etrecord(record_of({}, nodes, {0: 1, 1: 1}))
    with pytest.raises(MalformedMapping, match="operators: more than 20"):
        read_etrecord(record_of({}, nodes, {0: 1, 1: 1, 2: 1}))


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and instructions that do not match in number are compared each with each only while that is cheap."""
    monkeypatch.setattr(etrecord, "_MAX_PAIRS", 1)
    with pytest.raises(MalformedMapping, match="ETRecord: 1 calls of delegates in the graph, 2 in the maps"):
        read_etrecord(record_of({0: ("X", [1]), 1: ("X", [1])}, [call_of("X", [ADD])]))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_flipped(position: int, mask: int) -> None:
    """Whatever byte is damaged, the answer is a mapping or a refusal, never another error."""
    data = bytearray(WHOLE)
    data[position] ^= mask
    with suppress(MalformedMapping):
        read_etrecord(bytes(data))
