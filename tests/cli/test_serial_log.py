"""What is read out of serial logs."""

import io
import re
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.armour import armoured, printed_by_runner
from support.requests import is_clear

from otel_bridge.cli import serial_log
from otel_bridge.cli.serial_log import DamagedBlock, SerialBlock, read_serial_log

DATA = bytes(range(256))
EVENTS, ETDUMP = "OTEL BRIDGE EVENTS", "ETDUMP"
NOISE = [
    b"",
    b"[00:00:01.000] boot",
    b"\xff\xfe\x00\x1b[31m",
    b"-----BEGIN CERTIFICATE-----",
    b"=1234567",
    b"#[END] not",
    b"----",
]


def read(log: bytes) -> list[SerialBlock | DamagedBlock]:
    """All of a log."""
    return list(read_serial_log(io.BytesIO(log)))


def test_a_line_of_many_words_costs_its_bytes() -> None:
    """Of a line inside a block only the last word counts: the others are not taken apart."""
    words = b"ab " * 300_000
    log = text(armoured(DATA)[:1]) + words + text(armoured(DATA)[1:])
    tracemalloc.start()
    try:
        (block,) = read(log)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(block, SerialBlock)
    assert block.data == DATA
    assert peak < 4 * len(log)


def text(lines: list[str], end: str = "\n") -> bytes:
    """Lines as bytes."""
    return "".join(f"{line}{end}" for line in lines).encode()


def the_fault(log: bytes) -> str:
    """What is said of the one block of a log, which cannot be used."""
    (fault,) = read(log)
    assert isinstance(fault, DamagedBlock)
    assert is_clear(str(fault))
    return str(fault)


@given(
    st.lists(st.tuples(st.sampled_from([EVENTS, ETDUMP]), st.binary(min_size=1, max_size=300)), max_size=4),
    st.integers(1, 100),
    st.sampled_from(["\n", "\r\n", "\r\r\n"]),
    st.sampled_from(["", "12:00:01.123 ", "[    1.5] I (uart): ", "\t"]),
    st.lists(st.sampled_from(NOISE), max_size=3),
)
def test_what_is_printed_is_read(
    blocks: list[tuple[str, bytes]], width: int, end: str, prefix: str, noise: list[bytes]
) -> None:
    """Every block comes out byte for byte, whatever the width of lines, their ends, what stands in front, and noise between."""
    log = b"".join(line + b"\n" for line in noise)
    first_lines = []
    for kind, data in blocks:
        first_lines.append(log.count(b"\n") + 1)
        log += text([prefix + line for line in armoured(data, kind, width=width)], end)
        log += b"".join(line + b"\n" for line in noise)
    found = read(log)
    assert [(block.kind, block.data) for block in found if isinstance(block, SerialBlock)] == blocks
    assert [block.first_line for block in found if isinstance(block, SerialBlock)] == first_lines


@given(st.binary(max_size=600))
def test_any_bytes_are_a_log(log: bytes) -> None:
    """Whatever a serial line carries, reading ends, and what is said of it is clear."""
    for each in read(log + b"\n-----BEGIN ETDUMP-----\n" + log):
        if isinstance(each, DamagedBlock):
            assert is_clear(str(each))


@given(st.data())
def test_damage_is_seen(data: st.DataObject) -> None:
    """A block of which a byte was changed or lost gives its own bytes or a fault, never other bytes."""
    log = bytearray(text(armoured(DATA)))
    index = data.draw(st.integers(0, len(log) - 1))
    if data.draw(st.booleans()):
        log[index] = data.draw(st.integers(0, 255))
    else:
        del log[index]
    assert {each.data for each in read(bytes(log)) if isinstance(each, SerialBlock)} <= {DATA}


def test_lines_of_others_inside_a_block() -> None:
    """A line of another task in the middle of a block, which is no base64, costs nothing: the checksum holds."""
    lines = armoured(DATA)
    lines.insert(2, "W (1234) wifi: disconnected, reason=8!")
    (block,) = read(text(lines))
    assert isinstance(block, SerialBlock)
    assert (block.data, block.first_line, block.last_line) == (DATA, 1, len(lines))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_the_runner_of_executorch_prints(end: str) -> None:
    """An ETDump comes out of what the bare-metal runner prints; its debug buffer is left alone."""
    (block,) = read(text(["I [executorch:main.cpp] Model run", *printed_by_runner(DATA), "done"], end))
    assert isinstance(block, SerialBlock)
    assert (block.data, block.is_events, block.place) == (DATA, False, "lines 2 to 9")


ARMOUR = armoured(DATA)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (ARMOUR[:-1], r"lines 1 to 7: the OTEL BRIDGE EVENTS block is cut: the log ends before it"),
        (ARMOUR[:3], r"lines 1 to 3: .* is cut: the log ends before it"),
        ([*ARMOUR[:-2], ARMOUR[-1]], rf"lines 1 to 7: .* has no checksum, and its 256 bytes have {zlib.crc32(DATA):08x}"),
        ([*ARMOUR[:-2], "=00000000", ARMOUR[-1]], r"lines 1 to 8: .* has the checksum 00000000, and its 256 bytes have"),
        ([*ARMOUR[:2], *ARMOUR[3:]], r"has the checksum [0-9a-f]{8}, and its 199 bytes have"),
        ([ARMOUR[0], ARMOUR[-1]], r"lines 1 to 2: .* holds no bytes"),
        ([ARMOUR[0], "QUJ", *ARMOUR[-2:]], r"is no base64; bytes were lost or changed"),
        (["#[RUN THIS]", "nothing", "#[END]"], r"lines 1 to 3: the ExecuTorch runner block holds no bytes"),
        ([*printed_by_runner(DATA)[:4], 'echo "AAAA', "#[END]"], r"lines 1 to 6: .* holds no bytes"),
        (printed_by_runner(DATA)[:-1], r"lines 1 to 7: .* is cut"),
        ([*ARMOUR[:3], "-----END ETDUMP-----"], r"lines 1 to 4: .* is cut"),
    ],
)
def test_a_block_that_cannot_be_used(lines: list[str], told: str) -> None:
    """A block that is cut or damaged is told with its lines, what is wrong with it, and what to do."""
    assert re.search(told, the_fault(text(lines)))


def test_a_cut_block_costs_itself() -> None:
    """A device that restarts in the middle of a block begins another: the first is told, the second is read."""
    fault, block = read(text([*ARMOUR[:3], "rebooting", *ARMOUR]))
    assert str(fault).startswith("lines 1 to 4: the OTEL BRIDGE EVENTS block is cut: another begins before its end")
    assert isinstance(block, SerialBlock)
    assert (block.data, block.place) == (DATA, "lines 5 to 12")


def test_a_log_without_a_last_line_end() -> None:
    """The end of the log ends its last line."""
    (block,) = read(text(ARMOUR).removesuffix(b"\n"))
    assert isinstance(block, SerialBlock)


def test_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block, or a line, over the bound is not held: the block is told, and the next one is read."""
    monkeypatch.setattr(serial_log, "MAX_ENCODED_BYTES", 400)
    fault, block = read(text([*armoured(bytes(400), width=70), "x" * 5000, *ARMOUR]))
    assert "has more than 400 bytes of base64; send less at once" in str(fault)
    assert isinstance(block, SerialBlock)
    assert (block.data, block.first_line) == (DATA, 13)
    assert "is cut" in the_fault(text([ARMOUR[0], "A" * 5000]))
