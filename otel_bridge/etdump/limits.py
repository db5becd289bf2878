"""
What both readers hold every file to: the frame around it, and how much it may claim.

Invariant: what a file may claim follows from its length, so work and memory stay linear in the bytes that were sent.
Offsets of a flatbuffer may point anywhere, also at one place many times: 8 KB can claim a million events.

    size-prefixed   [size: u32][root: u32]["ED00"] ...   as ETDumpGen writes it; `size` counts the bytes after itself
    bare            [root: u32]["ED00"] ...              as ExecuTorch's serialize_to_etdump_flatcc writes it
"""

from dataclasses import dataclass

from otel_bridge.errors import MalformedETDump

IDENTIFIER = b"ED00"
"""File identifier (devtools/etdump/etdump_schema_flatcc.fbs)."""

MAX_NAME_BYTES = 4096
"""Longest name or identifier of an event. The longest that a backend is known to log have some hundred bytes."""

MAX_CHAIN = 255
"""Highest chain index that the column `chain` holds. ExecuTorch writes one chain a method (exir/emit/_emitter.py)."""

BYTES_PER_EVENT = 16
"""An event that shares no table with another one takes more: slot 4, `Event` 8, `ProfileEvent` 4 and its fields."""

BYTES_PER_BLOCK = 16
"""A block that shares no table takes as much: slot 4, `RunData` 4, `name` 4, `events` 4."""

_PREFIX_BYTES = 4
_HEADER_BYTES = 8

_FOREIGN = (
    (0, b"PK\x03\x04", "it is a zip, perhaps an ETRecord: give that as the mapping's source"),
    (4, b"ET", "it is an ExecuTorch program (.pte): send the .etdp that its run wrote"),
    (0, b"{", "it looks like JSON: send the binary .etdp"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """An ETDump without what trails it; `root_at` is where the offset of the root table stands. Positions are the file's."""

    data: bytes
    root_at: int


def open_frame(data: bytes) -> Frame:
    """
    Find the ETDump in a file, size-prefixed or bare; bytes after the prefixed length are cut off.

    They are older dumps: a drained static buffer trails them (ExecuTorch's ETDumpGen does not reclaim it).
    Raises MalformedETDump: `not_an_etdump`, `truncated`, `malformed_etdump`.
    """
    # Bare first: in a size-prefixed file the identifier at offset 4 would be a root offset beyond 800 MB.
    if data[4:8] == IDENTIFIER:
        return Frame(data, 0)
    if data[8:12] != IDENTIFIER:
        raise MalformedETDump(_describe_foreign(data), reason="not_an_etdump")
    end = _PREFIX_BYTES + int.from_bytes(data[:_PREFIX_BYTES], "little")
    if end > len(data):
        raise MalformedETDump(
            f"the ETDump was cut: its size prefix (offset 0) promises {end} bytes in all, and {len(data)} are there; "
            "send the whole file",
            reason="truncated",
        )
    if end < _PREFIX_BYTES + _HEADER_BYTES:
        raise malformed("the size prefix", 0, f"it promises {end} bytes in all, too few for a header")
    return Frame(data[:end], _PREFIX_BYTES)


def malformed(what: str, at: int, found: str) -> MalformedETDump:
    """The error for bytes that cannot be an ETDump's: what they should be, at which byte, and what was found."""
    return MalformedETDump(f"{what}, byte {at}: {found}; the ETDump was damaged on its way or is forged, send the original")


class Budget:
    """
    How much a frame of `size` bytes may still claim; a method raises MalformedETDump where that is overdrawn.

    claimed   where the texts and payloads stand that have been claimed already; reading one again costs nothing
    """

    def __init__(self, size: int) -> None:
        self.claimed: set[int] = set()
        self._size = size
        self._blocks = size // BYTES_PER_BLOCK
        self._events = size // BYTES_PER_EVENT
        self._bytes = size

    def claim_blocks(self, count: int) -> None:
        """Claim `count` blocks. Reason `too_many_events`."""
        self._blocks -= count
        if self._blocks < 0:
            raise self._overdrawn("blocks", BYTES_PER_BLOCK)

    def claim_events(self, count: int) -> None:
        """Claim `count` events of one more block; a vector that blocks share counts for each. Reason `too_many_events`."""
        self._events -= count
        if self._events < 0:
            raise self._overdrawn("events", BYTES_PER_EVENT)

    def claim_bytes(self, at: int, length: int) -> None:
        """
        Claim a text or payload: `length` bytes behind the number at byte `at` that says so. To be called before it is copied.

        Many may share one, but it is not for different ones to overlap: together they fit into the file.
        Reasons `malformed_etdump` where it passes the end, `aliased`.
        """
        if at in self.claimed:
            return
        if at + 4 + length > self._size:
            raise malformed("a text or metadata", at, f"its {length} bytes pass the end of the file")
        self.claimed.add(at)
        self._bytes -= length
        if self._bytes < 0:
            raise MalformedETDump(
                f"texts and metadata overlap: with those at byte {at} they exceed the ETDump itself ({self._size} bytes); "
                "it was damaged on its way or is forged, send the original",
                reason="aliased",
            )

    def _overdrawn(self, what: str, unit: int) -> MalformedETDump:
        return MalformedETDump(
            f"the ETDump ({self._size} bytes) claims more {what} than one for each {unit} bytes: its tables are shared; "
            "send the file as ETDumpGen wrote it",
            reason="too_many_events",
        )


def block_name(raw: bytes) -> str:
    """A block's name as text: what is not UTF-8 is escaped, what is over `MAX_NAME_BYTES` is cut. It costs no event."""
    return raw[:MAX_NAME_BYTES].decode("utf-8", "backslashreplace")


def _describe_foreign(data: bytes) -> str:
    if len(data) < _PREFIX_BYTES + _HEADER_BYTES:
        way_out = "it is too short for any ETDump: was it written after an execution?"
    else:
        known = (hint for offset, magic, hint in _FOREIGN if data.startswith(magic, offset))
        way_out = next(known, "send what ETDumpGen wrote (.etdp)")
    return f'no ETDump ({len(data)} bytes): no "ED00" at offset 8 or 4, it begins {data[:12]!r}; {way_out}'
