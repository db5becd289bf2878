"""
Run models with ExecuTorch's own runtime and write what it profiled.

Usage: run_models.py TIMES FOLDER MODEL.pte...
For the model DIR/model.pte, FOLDER/DIR.etdp is the ETDump as the runtime writes it, and FOLDER/DIR.json what ExecuTorch's
own deserializer says of it: a list of [block name, events]; an event is a list, see FIELDS, then its metadata.

A program of its own, because the runtime aborts the process where something is wrong, and importing it takes seconds.
"""

import json
import sys
from pathlib import Path

import torch
from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
from executorch.runtime import Runtime

FIELDS = (
    "name",
    "delegate_debug_id_int",
    "delegate_debug_id_str",
    "chain_index",
    "instruction_id",
    "start_time",
    "end_time",
)
FLOAT = 6  # ScalarType::Float (runtime/core/portable_type/scalar_type.h)


def run(model: Path, times: int, etdump: Path) -> None:
    """Execute every method `times` times, in turn, with inputs of ones, and write the ETDump."""
    program = Runtime.get().load_program(model, enable_etdump=True)
    for _ in range(times):
        for name in sorted(program.method_names):
            method = program.load_method(name)
            inputs = [method.metadata.input_tensor_meta(index) for index in range(method.metadata.num_inputs())]
            if any(each.dtype() != FLOAT for each in inputs):
                sys.exit(f"{model}: {name} takes something other than floats")
            method.execute([torch.ones(each.sizes()) for each in inputs])
    program.write_etdump_result_to_file(str(etdump), str(etdump.with_suffix(".debug")))


def describe(etdump: Path) -> list[object]:
    """What ExecuTorch's deserializer says of the file."""
    return [
        [
            block.name,
            [[*(getattr(event, field) for field in FIELDS), list(event.delegate_debug_metadata or ())] for event in events],
        ]
        for block in deserialize_from_etdump_flatcc(etdump.read_bytes()).run_data
        for events in [[each.profile_event for each in block.events]]
    ]


def main(times: str, folder: str, *models: str) -> None:
    """One dump and one description for each model."""
    for model in map(Path, models):
        etdump = Path(folder) / f"{model.parent.name}.etdp"
        run(model, int(times), etdump)
        etdump.with_suffix(".json").write_text(json.dumps(describe(etdump)))


if __name__ == "__main__":
    main(*sys.argv[1:])
