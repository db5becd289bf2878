"""
Requests in a file, each after its length as a varint: protobuf's delimited format (`FileTransport` of the C++ client).

Invariants
* A file that was cut in the middle of a request gives those before it: a device may have lost its power while it wrote.
* No length is believed beyond what a request may have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from otel_bridge.cli.serial_log import DamagedBlock

MAX_REQUEST_BYTES = 2**31 - 1
"""gRPC counts the bytes of a message in an int32."""

_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class RequestInFile:
    """The bytes of a request, and its number in the file, from 1."""

    number: int
    data: bytes

    is_events = True

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"request {self.number}"


def read_requests(stream: BinaryIO) -> Iterator[RequestInFile | DamagedBlock]:
    """The requests of a file, in order, then what is wrong with the rest, if anything is."""
    number, at = 1, 0
    while True:
        length, size = _read_varint(stream)
        if size == 0:
            return
        if length is None or length > MAX_REQUEST_BYTES:
            yield DamagedBlock(
                f"request {number}, at byte {at}: does not begin with the length of a request; requests are written one after "
                "the other, each after its length as a varint"
            )
            return
        data = stream.read(length)
        if len(data) < length:
            yield DamagedBlock(
                f"request {number}, at byte {at}: is cut, {len(data)} of {length} bytes are there; those before it are whole"
            )
            return
        yield RequestInFile(number, data)
        number += 1
        at += size + length


def _read_varint(stream: BinaryIO) -> tuple[int | None, int]:
    """A varint and how many bytes it takes; None where there is no whole one."""
    value = size = 0
    while size < _MAX_VARINT_BYTES:
        byte = stream.read(1)
        if not byte:
            return None, size
        value |= (byte[0] & 0x7F) << (7 * size)
        size += 1
        if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            return value, size
    return None, size
