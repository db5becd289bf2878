"""Metadata parsers as delegate authors write them, good and bad: loaded by name in worker processes."""

import os
import time
from typing import Any


def parse_delegate_metadata(delegate_metadatas: list[bytes]) -> dict[str, Any]:
    """A good one: the first two bytes as numbers, and how many strings came at once."""
    return {"First": delegate_metadatas[0][0], "second byte": delegate_metadatas[0][1], "given": len(delegate_metadatas)}


def as_list(delegate_metadatas: list[bytes]) -> list[str]:
    """A good one that gives lines."""
    return [data.hex() for data in delegate_metadatas]


def raising(_delegate_metadatas: list[bytes]) -> list[str]:
    """Cannot read anything."""
    raise RuntimeError("I read \x1b[31mnothing")


def hanging(_delegate_metadatas: list[bytes]) -> list[str]:
    """Never comes back."""
    while True:
        time.sleep(0.01)


def hanging_on_z(delegate_metadatas: list[bytes]) -> list[str]:
    """Reads all but what starts with z."""
    return hanging([]) if delegate_metadatas[0][:1] == b"z" else ["read"]


def dying(_delegate_metadatas: list[bytes]) -> list[str]:
    """Takes its process with it, as a fault in a C extension does."""
    os._exit(3)


def nonsense(_delegate_metadatas: list[bytes]) -> object:
    """Keeps no contract."""
    return 42


def too_much(_delegate_metadatas: list[bytes]) -> dict[str, int]:
    """Gives more keys than a span has room for."""
    return {f"key_{number}": number for number in range(1000)}


NOT_A_FUNCTION = 7
