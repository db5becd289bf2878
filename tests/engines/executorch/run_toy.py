"""
Ship the toy delegate's model as a build pipeline does, and run it as a Python app does.

Usage: run_toy.py ship SERVER FOLDER KIND               its mapping to the bridge, its program to FOLDER/model.pte
       run_toy.py run SERVER MODEL LIBRARY TIMES FILE   runs it with `profile_program`, as the app "python"; then another one
                                                        with ExecuTorch alone, whose ETDump it writes to FILE

LIBRARY is the run-time half of the delegate (tests/engines/cpp/toy_backend.cpp); KIND is that of its identifiers.
Prints the build id.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch

from otel_bridge.mapping.pte import build_id_of


def ship(server: str, folder: Path, kind: str) -> str:
    """Lower, upload the mapping, write the program; the build id."""
    from toy_delegate import lower  # noqa: PLC0415 - it takes seconds, and an app has none of it

    from otel_bridge.aot import upload_mapping  # noqa: PLC0415 - see above

    program = lower(kind).to_executorch()
    uploaded = upload_mapping(program, model=f"toy-{kind}", version="1.0", server=server)
    program.save(str(folder / "model.pte"))
    return uploaded.build_id


def load(model: Path, library: str) -> Any:
    """The program in a runtime that has the delegate: its library is loaded before the runtime, whose symbols it shares."""
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    from executorch.runtime import Runtime  # noqa: PLC0415 - see above

    return Runtime.get().load_program(model, enable_etdump=True)


def execute(program: Any, times: int) -> None:
    """Run `forward`."""
    method = program.load_method("forward")
    for _ in range(times):
        method.execute([torch.ones(1, 3, 8, 8)])


def profile(server: str, model: Path, library: str, times: int) -> None:
    """Run it, profiled; two executions a drain, so that there is more than one."""
    from otel_bridge.client import BridgeClient, profile_program  # noqa: PLC0415 - needed here alone

    program = load(model, library)
    with BridgeClient(server, resource={"service.name": "python"}) as client:
        with profile_program(program, client, build_id=build_id_of(model.read_bytes()), every=2) as profiled:
            execute(profiled, times)
        assert client.flush(30.0), client.stats


def dump(file: Path, model: Path, library: str, times: int) -> None:
    """Run it, and have the runtime write what it has."""
    program = load(model, library)
    execute(program, times)
    program.write_etdump_result_to_file(str(file), str(file.with_suffix(".debug")))


def main(command: str, target: str, model: str, *rest: str) -> None:
    """What the command line says."""
    match command:
        case "ship":
            print(ship(target, Path(model), rest[0]))  # noqa: T201 - its answer
        case "run":
            library, times, file = rest
            profile(target, Path(model), library, int(times))
            dump(Path(file), Path(model), library, int(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
