"""
Blocks of bytes in what a device printed: a serial log, read as it comes.

Armour of this project (otel_bridge/clients/cpp), one request or one ETDump a block:

    -----BEGIN OTEL BRIDGE EVENTS-----          or ETDUMP in place of OTEL BRIDGE EVENTS
    CAISDgoQAAECAwQFBgcICQoLDA0ODxoFCgN0b3k=    base64, on any number of lines
    =1c291ca3                                   CRC-32 of the bytes, 8 hex digits
    -----END OTEL BRIDGE EVENTS-----

What ExecuTorch's bare-metal runner prints (examples/arm/executor_runner/arm_executor_runner.cpp, `write_etdump`):

    #[RUN THIS]
    echo "8AMAAEVEMDA..." | base64 -d >etdump.bin
    #[END]

Invariants
* A line may have anything in front, such as a time, if white space divides it from the rest; and any line end.
* Lines that are no armour and no base64 are noise. What noise there was inside a block, its checksum tells.
* A block that is cut or damaged costs itself, and is told with its lines; of foreign bytes nothing is repeated.
* No more than `MAX_ENCODED_BYTES` of a block, or of a line, is held.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

EVENTS, ETDUMP, RUNNER = "OTEL BRIDGE EVENTS", "ETDUMP", "ExecuTorch runner"
MAX_ENCODED_BYTES = 128 << 20
"""More than a request of the largest size that a bridge takes by default."""

_BOUNDARY = re.compile(rb"(?:^|\s)-----(BEGIN|END) (OTEL BRIDGE EVENTS|ETDUMP)-----\s*\Z")
_RUNNER_BEGIN = re.compile(rb"(?:^|\s)#\[RUN THIS\]\s*\Z")
_RUNNER_END = re.compile(rb"(?:^|\s)#\[END\]\s*\Z")
_RUNNER_ETDUMP = re.compile(rb'(?:^|\s)echo "([A-Za-z0-9+/=]+)" \| base64 -d >etdump\.bin\s*\Z')
_BASE64 = re.compile(rb"(?=.)[A-Za-z0-9+/]*={0,2}\Z")
_CHECKSUM = re.compile(rb"=([0-9A-Fa-f]{8})\Z")


@dataclass(frozen=True, slots=True)
class SerialBlock:
    """The bytes of a block, and the lines where it stands, from 1."""

    kind: str
    first_line: int
    last_line: int
    data: bytes

    @property
    def is_events(self) -> bool:
        """Whether it is an `ExportEventsRequest`, else an ETDump."""
        return self.kind == EVENTS

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"lines {self.first_line} to {self.last_line}"


class DamagedBlock(Exception):
    """A block that cannot be used; the message says where it stands, what is wrong, and the way out."""


@dataclass(slots=True)
class _Open:
    """A block whose end has not been seen."""

    kind: str
    first_line: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    checksum: int | None = None

    def add(self, line: bytes) -> None:
        """Take what a line inside the block holds."""
        token = next(iter(line.rsplit(None, 1)[-1:]), b"")  # of a line of spaces there is none
        runner, checksum = _RUNNER_ETDUMP.search(line), _CHECKSUM.match(token)
        if self.kind == RUNNER:
            self._keep(runner[1] if runner else b"")
        elif checksum:
            self.checksum = int(checksum[1], 16)
        elif _BASE64.match(token):
            self._keep(token)

    def _keep(self, part: bytes) -> None:
        self.size += len(part)
        if part and self.size <= MAX_ENCODED_BYTES:
            self.parts.append(part)

    def close(self, last_line: int) -> "SerialBlock | DamagedBlock":
        """The block, or what is wrong with it."""
        if self.size > MAX_ENCODED_BYTES:
            return self.damaged(last_line, f"has more than {MAX_ENCODED_BYTES} bytes of base64; send less at once")
        if not self.parts:
            return self.damaged(last_line, "holds no bytes; let the device print it again")
        try:
            data = base64.b64decode(b"".join(self.parts), validate=True)
        except binascii.Error:
            return self.damaged(last_line, "is no base64; bytes were lost or changed, let the device print it again")
        if self.kind != RUNNER and self.checksum != zlib.crc32(data):
            found = "no checksum" if self.checksum is None else f"the checksum {self.checksum:08x}"
            return self.damaged(
                last_line,
                f"has {found}, and its {len(data)} bytes have {zlib.crc32(data):08x}; bytes were lost or changed, "
                "let the device print it again",
            )
        return SerialBlock(self.kind, self.first_line, last_line, data)

    def damaged(self, last_line: int, what: str) -> DamagedBlock:
        """The fault of this block."""
        return DamagedBlock(f"lines {self.first_line} to {last_line}: the {self.kind} block {what}")


def read_serial_log(stream: BinaryIO) -> Iterator[SerialBlock | DamagedBlock]:
    """The blocks of a log, in order, each as soon as its end is there; between them what is wrong with others."""
    opened: _Open | None = None
    number = 1
    cut_line = False
    while line := stream.readline(MAX_ENCODED_BYTES):
        begins, ends = _boundary(line)
        if opened is not None and (begins or ends == opened.kind):
            if begins:
                yield opened.damaged(number - 1, "is cut: another begins before its end; let the device print it again")
            else:
                yield opened.close(number)
            opened = None
        if begins:
            opened = _Open(begins, number)
        elif opened is not None and not cut_line:
            opened.add(line)
        cut_line = not line.endswith(b"\n")
        number += not cut_line
    if opened is not None:
        yield opened.damaged(number - (not cut_line), "is cut: the log ends before it; let the device print it again")


def _boundary(line: bytes) -> tuple[str, str]:
    """The kind of block that begins with a line, and the kind that ends with it; "" for none."""
    if _RUNNER_BEGIN.search(line):
        return RUNNER, ""
    if _RUNNER_END.search(line):
        return "", RUNNER
    match = _BOUNDARY.search(line)
    if match is None:
        return "", ""
    kind = match[2].decode()
    return (kind, "") if match[1] == b"BEGIN" else ("", kind)
