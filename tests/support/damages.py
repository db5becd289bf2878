"""
What a disk does to the files of a bridge that is not running, and what the next start makes of it: a table in docs/outages.md.

tests/e2e/test_damaged_disk.py does it; where in a file is drawn.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HEAD_BYTES = 4096
"""The first page of a database: what the file is, and where its tables are."""

Damage = Callable[[Path, random.Random], None]
"""Done to a data directory."""


@dataclass(frozen=True)
class Case:
    """
    Damage that costs something.

    end   of the bridge before: after a kill much is in the log of the database, after a stop there is none
    """

    end: Literal["stopped", "killed"]
    damage: Damage


@dataclass(frozen=True)
class Refusal:
    """Damage that a start is refused for; `told` is in its words."""

    damage: Damage
    told: str


def flip(name: str, first: int = HEAD_BYTES, count: int = 1) -> Damage:
    """Some bits of a file fall over."""

    def damage(data_dir: Path, chance: random.Random) -> None:
        data = bytearray((data_dir / name).read_bytes())
        for _ in range(count):
            data[chance.randrange(min(first, len(data) - 1), len(data))] ^= 1 << chance.randrange(8)
        (data_dir / name).write_bytes(data)

    return damage


def cut(name: str) -> Damage:
    """A file ends sooner than it did."""

    def damage(data_dir: Path, chance: random.Random) -> None:
        data = (data_dir / name).read_bytes()
        (data_dir / name).write_bytes(data[: chance.randrange(len(data))])

    return damage


def halve(name: str) -> Damage:
    """A file ends in its middle."""

    def damage(data_dir: Path, _: random.Random) -> None:
        data = (data_dir / name).read_bytes()
        (data_dir / name).write_bytes(data[: len(data) // 2])

    return damage


def garble(name: str) -> Damage:
    """Some of a file is random."""

    def damage(data_dir: Path, chance: random.Random) -> None:
        data = bytearray((data_dir / name).read_bytes())
        start = chance.randrange(len(data))
        data[start : start + 200] = chance.randbytes(len(data[start : start + 200]))
        (data_dir / name).write_bytes(data)

    return damage


def overwrite(name: str, at: int, content: bytes) -> Damage:
    """Some of a file is something else."""

    def damage(data_dir: Path, _: random.Random) -> None:
        data = bytearray((data_dir / name).read_bytes())
        data[at : at + len(content)] = content
        (data_dir / name).write_bytes(data)

    return damage


def block(data_dir: Path, _: random.Random) -> None:
    """Where the spool should be there is a directory: not even root may write that as a file."""
    (data_dir / "spool.db").unlink()
    (data_dir / "spool.db").mkdir()


CASES = {
    "a bit of `spool.db` falls over": Case("stopped", flip("spool.db")),
    "many bits of `spool.db` fall over": Case("stopped", flip("spool.db", count=40)),
    "`spool.db` is cut": Case("stopped", cut("spool.db")),
    "`spool.mark` is garbled": Case("stopped", garble("spool.mark")),
    "`spool.db-wal` is cut": Case("killed", cut("spool.db-wal")),
    "a bit of `spool.db-wal` falls over": Case("killed", flip("spool.db-wal", 0)),
    "`spool.db-wal` is garbled": Case("killed", garble("spool.db-wal")),
}

REFUSED = {
    "`spool.db` is something else": Refusal(overwrite("spool.db", 0, b"PK\3\4"), "is no spool"),
    "`spool.db` is of a later format": Refusal(overwrite("spool.db", 60, bytes([0, 0, 0, 9])), "has format 9"),
    "`spool.db` cannot be written": Refusal(block, "spool"),
    "`mappings.db` has lost its second half": Refusal(halve("mappings.db"), "registry of mappings"),
    "`mappings.db` is something else": Refusal(overwrite("mappings.db", 0, b"PK\3\4"), "registry of mappings"),
}
