"""
The build id inside the program, so that a device can tell which mapping is its own without hashing gigabytes.

Invariants
* It is the SHA-256 of the program without it, 64 hex digits: a `.pte` that was written before, and has none, hashes to the
  same. It says nothing of a `.ptd`, whose bytes are not part of the program.
* The program changes in nothing else. ExecuTorch serialises it anew, and only where it can give, without the build id, the very
  bytes that are there; else the program is left alone, and its build id is that of its hash.
* Programs that are made later from the same edge programs do not get it: what they share is not touched.

Sources: exir/program/_program.py (`ExecutorchProgramManager`), exir/_serialize/_program.py (`serialize_pte_binary`).
"""

import hashlib
import logging
from collections.abc import Iterator
from typing import Any

from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.mapping.limits import check_label
from otel_bridge.mapping.pte_file import BUILD_ID_KEY

_log = logging.getLogger(__name__)

_PARTS = ("_emitter_output", "_named_data", "_data_serializer", "_pte_data")
"""What `ExecutorchProgramManager` of ExecuTorch 1.5 keeps of a program and is needed to serialise it anew."""


def embed_build_id(executorch_program_manager: Any, build_id: str | None = None, *, backend_config: Any = None) -> str:
    """
    Write the build id into the program, and return it; `buffer`, `write_to_file` and `save` give it from now on.

    build_id         another one than the hash: printable ASCII, at most 128 bytes
    backend_config   the `ExecutorchBackendConfig` that `to_executorch` got, needed where it sets alignments of its own

    Where this cannot be done a warning says why, and a device that has only the `.pte` finds the hash by hashing all of it.
    Raises `MalformedMapping` for a build id that is none, or where the program has another one that cannot be replaced.
    """
    if build_id is not None:
        _check(build_id)
    missing = [part for part in _PARTS if not hasattr(executorch_program_manager, part)]
    if missing:
        return _left_alone(_hash(executorch_program_manager), build_id, f"this ExecuTorch keeps no {missing[0]}")
    program = _Serialiser(executorch_program_manager)
    known = program.build_id
    if known is not None and build_id in (None, known):
        return known
    there = _hash(executorch_program_manager)
    if program.fit(there, backend_config):
        program.embed(build_id or there)
        return build_id or there
    why = "its bytes cannot be made anew; give the backend_config that to_executorch got"
    if known is not None:
        raise malformed("build_id", f"the program has the build id {quoted(known)}, and {why}", "or export it again")
    return _left_alone(there, build_id, why)


class _Hashing:
    """A file that keeps the hash of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def _hash(program: Any) -> str:
    """Of what can `write_to_file`: a program manager, or serialised bytes in pieces (`Cord`)."""
    file = _Hashing()
    program.write_to_file(file)
    return file.sha256.hexdigest()


class _Serialiser:
    """A program manager, and how its program was serialised."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._options: dict[str, Any] = {}

    @property
    def build_id(self) -> str | None:
        """The build id that the program has."""
        named = self._manager._named_data  # noqa: SLF001 - there is no public way to a program's named data
        entry = named.pte_data.get(BUILD_ID_KEY) if named else None
        return None if entry is None else str(named.buffers[entry.buffer_index], "ascii")

    def fit(self, sha256: str, backend_config: Any) -> bool:
        """Find the options that give the bytes of this hash; whether there are such."""
        for options in self._candidates(backend_config):
            self._options = options
            if _hash(self._serialise(self._manager._named_data)) == sha256:  # noqa: SLF001 - see `build_id`
                return True
        return False

    def embed(self, build_id: str) -> None:
        """Serialise the program with the build id, and have the manager give that."""
        named = self._named_with(build_id)
        self._manager._pte_data = self._serialise(named)  # noqa: SLF001 - no public way to replace what it gives
        self._manager._named_data = named  # noqa: SLF001 - so that a second call finds it
        self._manager._buffer = None  # noqa: SLF001 - a copy of the bytes before

    def _candidates(self, backend_config: Any) -> Iterator[dict[str, Any]]:
        """The options of `serialize_pte_binary`. The manager keeps one of them; the others have defaults that few change."""
        if backend_config is not None:
            names = ("extract_delegate_segments", "segment_alignment", "constant_tensor_alignment", "delegate_alignment")
            yield {name: getattr(backend_config, name) for name in names}
            return
        alignment = self._manager._data_serializer.config.segment_alignment  # noqa: SLF001 - the config itself is not kept
        yield from ({"extract_delegate_segments": each, "segment_alignment": alignment} for each in (True, False))

    def _serialise(self, named_data: Any) -> Any:
        from executorch.exir._serialize._program import PTEFile, serialize_pte_binary  # noqa: PLC0415 - needs torch

        emitted = self._manager._emitter_output  # noqa: SLF001 - see `_PARTS`
        held = named_data if named_data and named_data.pte_data else None  # as in exir/_serialize/_serialize.py
        file = PTEFile(program=emitted.program, mutable_data=emitted.mutable_data, named_data=held)
        return serialize_pte_binary(file, **self._options)

    def _named_with(self, build_id: str) -> Any:
        """The program's named data and the build id; the edge programs own what is there, so it is copied."""
        from executorch.exir._serialize._named_data_store import NamedDataStoreOutput  # noqa: PLC0415 - needs torch
        from executorch.exir._serialize.data_serializer import DataEntry  # noqa: PLC0415 - needs torch

        before = self._manager._named_data  # noqa: SLF001 - see `build_id`
        buffers = list(before.buffers) if before else []
        entries = dict(before.pte_data) if before else {}
        entries[BUILD_ID_KEY] = DataEntry(buffer_index=len(buffers), alignment=1, tensor_layout=None)
        return NamedDataStoreOutput([*buffers, build_id.encode()], entries, before.external_data if before else {})


def _check(build_id: str) -> None:
    check_label(build_id, "build_id", required=True)
    if not build_id.isascii():
        raise malformed("build_id", quoted(build_id), "use printable ASCII: devices compare bytes")


def _left_alone(there: str, build_id: str | None, why: str) -> str:
    way = "A device finds it by hashing the whole .pte" if build_id is None else "The device must be told of it"
    _log.warning("the build id %s is not in the program: %s. %s", build_id or there, why, way)
    return build_id or there
