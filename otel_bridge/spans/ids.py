"""
Ids of traces and spans: derived, never drawn.

Invariants
* The derivation is an interface: tests pin it with golden values, and a change of it is breaking.
* Equal (tenant, stream, request, position) give equal ids: a batch that is sent or replayed twice shows once.
* The id of an instruction's span follows from (instruction, chain, occurrence) alone, so a child can name its parent before
  the parent has arrived.
* No id is zero.

trace id = BLAKE2b-128 over the length-prefixed tenant, stream id, request (sequence, or SHA-256 of the ETDump) and position.
span id  = a bijection of 64 bits (xor-shift-multiply, the finaliser of SplitMix64) keyed by the trace id, of the span's place:

    bits 63-62   0: root   1: by row   2: by instruction
    by row           bits 0-61    row within the inference, counted over all parts
    by instruction   bits 31-53   occurrence (23 bits)    bits 54-61   chain    bits 0-30   instruction id
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import Block
from otel_bridge.model.stream import Stream

ROOT_PLACE = 0
_BY_ROW = np.uint64(1 << 62)
_BY_INSTRUCTION = np.uint64(2 << 62)
_CHAIN_SHIFT, _OCCURRENCE_SHIFT = np.uint64(54), np.uint64(31)
_OCCURRENCE_MASK = np.uint64(2**23 - 1)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)

_NONE = bytes(16)
_length = struct.Struct(">I").pack
_position = struct.Struct(">Q").pack
_POSITION_LENGTH = _length(8)
"""Of the position, which follows."""

MAX_OCCURRENCES = 2**23
"""Completions of one instruction in one inference that have ids of their own."""


def trace_id(stream: Stream, block: Block) -> bytes:
    """16 bytes, not all zero, of one block. The parts of a split inference, sent in consecutive requests, share one."""
    return trace_ids((stream,), (replace(block, stream=0),))[0]


def trace_ids(streams: Sequence[Stream], blocks: Iterable[Block]) -> list[bytes]:
    """The trace id of each block; what the blocks of one request share is hashed once."""
    made = []
    of = number = seed = None
    for block in blocks:
        part = block.part.number if block.part is not None else 0
        if seed is None or block.stream != of or part != number:  # the blocks of one request stand together
            of, number = block.stream, part
            seed = _seed(streams[of], part)
        hashed = seed.copy()
        hashed.update(_position(block.position % 2**64))
        made.append(hashed.digest())
    return [digest if digest != _NONE else b"\x01" * 16 for digest in made] if _NONE in made else made


def _seed(stream: Stream, part: int) -> hashlib.blake2b:
    request = stream.content or ((stream.sequence - part) % 2**64).to_bytes(8, "big")
    tenant, stream_id = stream.tenant.encode("utf-8", "surrogatepass"), stream.stream_id
    said = _length(len(tenant)), tenant, _length(len(stream_id)), stream_id, _length(len(request)), request, _POSITION_LENGTH
    return hashlib.blake2b(b"".join(said), digest_size=16, person=b"otel-bridge/1")


def place_by_row(row: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Places of events that are named by their row within the inference."""
    return np.bitwise_or(_BY_ROW, row.astype(np.uint64))


def place_by_instruction(
    instruction: NDArray[np.int32], chain: NDArray[np.uint8], occurrence: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """Places of instructions; ids are at least 0, occurrences are taken modulo `MAX_OCCURRENCES`."""
    high: NDArray[np.uint64] = chain.astype(np.uint64) << _CHAIN_SHIFT
    middle: NDArray[np.uint64] = (occurrence.astype(np.uint64) & _OCCURRENCE_MASK) << _OCCURRENCE_SHIFT
    return _BY_INSTRUCTION | high | middle | instruction.astype(np.uint64)


def span_ids(places: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """
    Span ids, uint64[n] (to be written big-endian), none of them 0.

    `keys` is uint64[n, 2]: the two big-endian halves of each span's derived trace id. For one key no two places share an id,
    but for the one place in 2^64 that would get 0.
    """
    mixed = places + keys[:, 0]
    shifted = mixed >> _S30
    mixed ^= shifted
    mixed *= _M1
    np.right_shift(mixed, _S27, out=shifted)
    mixed ^= shifted
    mixed *= _M2
    np.right_shift(mixed, _S31, out=shifted)
    mixed ^= shifted
    mixed ^= keys[:, 1]
    mixed[mixed == 0] = 1
    return mixed
