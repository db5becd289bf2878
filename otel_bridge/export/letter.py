"""
A refused request on disk.

Invariants
* A letter is two files: `NAME.pb`, the serialised `ExportTraceServiceRequest` as it was sent, and `NAME.json`, which says why,
  when, and of which tenant. Names sort by time.
* A letter is there once its `.pb` is, whole: a crash leaves no half of one.
* Only the owner reads them: spans may say what nobody else is to know.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_bridge.export.isolate import Refused
from otel_bridge.files import PART, replace_file, sync_folder

_MAX_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class Letter:
    """
    One letter; what its `.json` does not say is empty.

    path        of the `.pb`
    spans       that it holds; its events are counted as the ledger does, one a span
    size_bytes  of both files
    """

    path: Path
    reason: str
    message: str
    time: str
    spans: int
    size_bytes: int
    tenant: str = ""

    def read(self) -> bytes:
        """The request. Raises OSError where it is gone."""
        return self.path.read_bytes()

    def remove(self) -> None:
        """Take it out, if it is still there. Raises OSError where that cannot be."""
        for path in (self.path, _about_path(self.path)):  # in this order: a .json alone is no letter
            path.unlink(missing_ok=True)

    def keep_only(self, refused: Sequence[Refused], now_ns: int) -> None:
        """Let it hold these parts of its request and no others. Raises OSError."""
        first = refused[0]
        payload = b"".join(part.payload for part in refused)  # one message: repeated fields of joined ones add up
        rest = Refused(payload, sum(part.spans for part in refused), first.reason, first.message, first.tenant)
        _write(self.path, payload, about(rest, now_ns))


def write_letter(directory: Path, refused: Refused, now_ns: int) -> Path:
    """Write a letter; its path. Raises OSError, and then there is none."""
    path = directory / f"{now_ns:020d}-{hashlib.sha256(refused.payload).hexdigest()[:12]}.pb"
    _write(path, refused.payload, about(refused, now_ns))
    return path


def read_letter(path: Path) -> Letter:
    """What is told of the letter with this `.pb`."""
    told: Any = None
    with suppress(OSError, ValueError):
        told = json.loads(_about_path(path).read_bytes())
    if not isinstance(told, dict):
        told = {}
    reason, message, time, tenant = (str(told.get(key, "")) for key in ("reason", "message", "time", "tenant"))
    spans = told.get("spans")
    return Letter(path, reason, message, time, spans if isinstance(spans, int) else 0, size_of(path), tenant)


def letters_in(directory: Path) -> Iterator[Letter]:
    """All letters, the oldest first; none where there is no such directory."""
    yield from map(read_letter, paths_in(directory))


def paths_in(directory: Path) -> list[Path]:
    """The `.pb` of all letters, the oldest first."""
    return sorted(directory.glob("*.pb"))


def move_letter(path: Path, directory: Path) -> None:
    """Move the letter with this `.pb` to another directory of the same file system. Raises OSError."""
    for each in (_about_path(path), path):  # in this order: whoever finds a .pb finds both
        with suppress(FileNotFoundError):
            each.rename(directory / each.name)


def size_of(path: Path) -> int:
    """Bytes of both files of the letter with this `.pb`."""
    size = 0
    for each in (path, _about_path(path)):
        with suppress(OSError):
            size += each.stat().st_size
    return size


def remove_halves(directory: Path) -> None:
    """Remove what a crash left half-way. Raises OSError."""
    for path in [*directory.glob(f"*{PART}"), *directory.glob("*.json")]:
        if path.suffix == PART or not path.with_suffix(".pb").exists():
            path.unlink(missing_ok=True)


def about(refused: Refused, now_ns: int) -> bytes:
    """What the `.json` says."""
    told: dict[str, str | int] = {
        "reason": refused.reason,
        "message": refused.message[:_MAX_MESSAGE],
        "time": datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat(timespec="milliseconds"),
        "spans": refused.spans,
        "events": refused.spans,
    }
    if refused.tenant:
        told["tenant"] = refused.tenant
    return json.dumps(told, indent=1).encode() + b"\n"


def _about_path(path: Path) -> Path:
    return path.with_suffix(".json")


def _write(path: Path, payload: bytes, told: bytes) -> None:
    """The `.json` first: whoever finds a `.pb` finds both."""
    try:
        replace_file(_about_path(path), told)
        replace_file(path, payload)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            if not path.exists():
                _about_path(path).unlink(missing_ok=True)
        raise
