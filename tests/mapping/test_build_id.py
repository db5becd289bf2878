"""The build id of a program: written into it as named data, or the hash of the file."""

import contextlib
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mappings import CAPTURES, capture
from support.programs import Call, Kernel, write_program

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.pte import build_id_of, read_program
from otel_bridge.mapping.pte_file import BUILD_ID_KEY
from otel_bridge.mapping.source import read_source

STEPS = {"forward": [Kernel("aten::add", "out"), Call("Toy", b"p" * 40)]}


def program_with(*named: tuple[str | bytes, bytes]) -> bytes:
    """A program with such named data."""
    return write_program(STEPS, named=named)


def test_a_written_build_id_is_the_build_id() -> None:
    """Whoever asks for the build id of a program gets the one that was written into it, among named data of others."""
    data = program_with(("weights", b"\xff" * 200), (BUILD_ID_KEY, b"camera 7"), (b"\xff\xfe", b"key of no text"))
    assert build_id_of(data) == read_program(data).build_id == read_source(data).build_id == "camera 7"
    assert read_source(data).mapping == read_source(program_with()).mapping


@pytest.mark.parametrize("model", CAPTURES)
def test_a_program_without_one_is_known_by_its_hash(model: str) -> None:
    """Without the named data it is the SHA-256 of the file, as ever."""
    data = capture(model, "model.pte")
    assert build_id_of(data) == hashlib.sha256(data).hexdigest()


def test_of_a_file_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the named data no byte of the other segments is asked for; without, the file is hashed."""
    path = tmp_path / "model.pte"
    path.write_bytes(program_with((BUILD_ID_KEY, b"v1")))
    with path.open("rb") as file:
        assert build_id_of(file) == "v1"
    hashed: list[int] = []
    monkeypatch.setattr("otel_bridge.mapping.pte_file.hashlib.sha256", lambda data: hashed.append(len(data)))
    with path.open("rb") as file:
        build_id_of(file)
    assert hashed == []
    path.write_bytes(program_with())
    with path.open("rb") as file, pytest.raises(AttributeError):  # the stand-in gives no digest
        build_id_of(file)
    assert hashed == [path.stat().st_size]


@given(value=st.binary(max_size=200))
def test_a_value_is_a_build_id_or_refused(value: bytes) -> None:
    """A value is printable ASCII of 1 to 128 characters, or refused by its place and never repeated raw."""
    data = program_with((BUILD_ID_KEY, value))
    fits = value.isascii() and 0 < len(value) <= 128 and value.decode().isprintable()
    if fits:
        assert build_id_of(data) == value.decode()
        return
    with pytest.raises(MalformedMapping) as refused:
        build_id_of(data)
    message = str(refused.value)
    assert message.startswith(".pte: named_data[otel_bridge.build_id]: ")
    assert message.isascii()
    assert message.isprintable()


def test_two_values_are_refused() -> None:
    """Of two values none is taken."""
    data = program_with((BUILD_ID_KEY, b"a"), (BUILD_ID_KEY, b"b"))
    with pytest.raises(MalformedMapping, match="2 entries of that key"):
        build_id_of(data)


def test_a_cut_program_is_refused() -> None:
    """Cut anywhere, a program has no build id but that of a whole file: the value stands last, and must be there."""
    data = program_with((BUILD_ID_KEY, b"a" * 64))
    for size in range(0, len(data), 7):
        with pytest.raises(MalformedMapping):
            build_id_of(data[:size])


@given(at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_damaged_programs(at: int, bit: int) -> None:
    """A flipped bit changes the answer or is refused; nothing else is raised."""
    data = bytearray(program_with((BUILD_ID_KEY, b"v1")))
    data[at % len(data)] ^= 1 << bit
    with contextlib.suppress(MalformedMapping):
        assert build_id_of(bytes(data))
