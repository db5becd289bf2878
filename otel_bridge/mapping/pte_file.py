"""
The frame of a `.pte`: the program's FlatBuffer, the segments behind it, and the build id that may be among them.

    [root: u32]["ET12"]["eh00"][length of this header: u32][program bytes: u64][segments at: u64][their bytes: u64]
    ... the program, a FlatBuffer that this very header lies in ... the segments: weights, what delegates are given, named data

Sources: schema/program.fbs, exir/_serialize/_program.py (`_ExtendedHeader`, `_extract_named_data`).

Invariants
* A file that was cut is refused: the frame says where it ends.
* Segments are views: nothing of them is copied or looked at but the named data that is asked for.
"""

import hashlib
import io
import mmap
from dataclasses import dataclass
from typing import BinaryIO

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.mapping.limits import MAX_LABEL_BYTES, check_label
from otel_bridge.mapping.pte_tables import U32, U64, Allowance, Buffer, Table, Vector

IDENTIFIER = b"ET12"
"""File identifier, at byte 4 (schema/program.fbs)."""
BUILD_ID_KEY = "otel_bridge.build_id"
"""Key of the named data that holds the build id, as ASCII."""
FOREIGN = "is it a program of ExecuTorch (.pte), and whole?"

_EXTENDED = b"eh00"
_EXTENDED_AT, _LENGTH_AT, _PROGRAM_BYTES_AT, _SEGMENTS_AT, _SEGMENTS_BYTES_AT = 8, 12, 16, 24, 32
_WITH_SEGMENTS_BYTES = 32
"""Length of the extended header from which on it says how many bytes the segments have."""

_SEGMENTS, _NAMED_DATA = 4, 7  # Program
_OFFSET, _SIZE = 0, 1  # DataSegment
_KEY, _SEGMENT_INDEX = 0, 1  # NamedData

_SEGMENT_BYTES = 16
_NAMED_DATA_BYTES = 8


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """
    A program that says what it is.

    data          all of the file
    root          the table `Program`
    segments      the tables `DataSegment`
    segments_at   where the segments begin, in bytes; 0: it has none
    allowance     what its readers may still take out of it
    """

    data: memoryview
    root: Table
    segments: Vector
    segments_at: int
    allowance: Allowance

    def check_segments(self) -> None:
        """Refuses a file that ends before its segments do. An empty one, as of a program without constants, lies nowhere."""
        self.allowance.claim(_SEGMENT_BYTES * len(self.segments), ".pte: segments")
        for number in range(len(self.segments)):
            self.segment(number, f".pte: segments[{number}]")

    def segment(self, number: int, where: str) -> memoryview:
        """The bytes of a segment that is referred to at `where`."""
        table = item(self.segments, number, where, "segment")
        begin = self.segments_at + table.number(_OFFSET, U64)
        end = begin + table.number(_SIZE, U64)
        if end > len(self.data) or (end > begin and not self.segments_at):
            raise _cut(where, end, len(self.data))
        return self.data[begin:end]

    def build_id(self) -> str:
        """See `otel_bridge.mapping.pte.build_id_of`."""
        written = self._named(BUILD_ID_KEY)
        if written is None:
            return hashlib.sha256(self.data).hexdigest()
        where = f".pte: named_data[{BUILD_ID_KEY}]"
        if len(written) > MAX_LABEL_BYTES or not bytes(written).isascii():
            found = f"{len(written)} bytes, which are no build id"
            raise malformed(where, found, f"a build id there has 1 to {MAX_LABEL_BYTES} characters of ASCII: export it again")
        text = str(written, "ascii")
        check_label(text, where, required=True)
        return text

    def _named(self, key: str) -> memoryview | None:
        """The named data of that key; None: there is none."""
        entries = self.root.tables(_NAMED_DATA)
        where = f".pte: named_data[{key}]"
        self.allowance.claim(_NAMED_DATA_BYTES * len(entries), ".pte: named_data")
        places = [each.number(_SEGMENT_INDEX, U32) for each in entries if each.bytes_at(_KEY) == key.encode()]
        if len(places) > 1:
            raise malformed(where, f"{len(places)} entries of that key", FOREIGN)
        return self.segment(places[0], where) if places else None


def open_program(source: bytes | BinaryIO) -> ProgramFile:
    """
    The program in a `.pte`, given as bytes or as an open, seekable file, which is mapped into memory and not read.

    Raises `MalformedMapping`.
    """
    data = memoryview(source) if isinstance(source, bytes) else _view(source)
    if bytes(data[4:8]) != IDENTIFIER:
        found = f"the identifier {quoted(bytes(data[4:8]).decode('latin-1'))} at byte 4"
        raise malformed(".pte", found, f"only {quoted(IDENTIFIER.decode())} is known: {FOREIGN}")
    program, segments_at = _frame(data)
    root = program.root()
    return ProgramFile(data, root, root.tables(_SEGMENTS), segments_at, Allowance())


def item(items: Vector, index: int, where: str, what: str) -> Table:
    """The table at `index`, which is referred to at `where`."""
    if not 0 <= index < len(items):
        raise malformed(where, f"{what} {index} of {len(items)}", FOREIGN)
    return items[index]


def _view(file: BinaryIO) -> memoryview:
    """The bytes of an open file in place: programs with their weights may be larger than memory."""
    if isinstance(file, io.BytesIO):
        return file.getbuffer().toreadonly()
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # no file of its own, or an empty one
        raise malformed(".pte", "what is no file that can be mapped into memory", "give a regular file") from error


def _frame(data: memoryview) -> tuple[Buffer, int]:
    """The program's FlatBuffer, and where its segments begin (0: it has none)."""
    head = Buffer(data, ".pte")
    if bytes(data[_EXTENDED_AT:_LENGTH_AT]) != _EXTENDED:
        return head, 0
    size, segments_at = head.number(U64, _PROGRAM_BYTES_AT), head.number(U64, _SEGMENTS_AT)
    end = segments_at
    if head.number(U32, _LENGTH_AT) >= _WITH_SEGMENTS_BYTES:
        end += head.number(U64, _SEGMENTS_BYTES_AT)
    if max(size, end) > len(data):
        raise _cut(".pte", max(size, end), len(data))
    return Buffer(data[:size], ".pte"), segments_at


def _cut(where: str, promised: int, size: int) -> MalformedMapping:
    return malformed(where, f"it reaches to byte {promised}, and the file has {size}", "it was cut: copy or export it again")
