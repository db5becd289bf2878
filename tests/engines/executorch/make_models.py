"""
Export models with ExecuTorch, and run those that its wheel can run.

Usage: make_models.py FOLDER
For each model: FOLDER/NAME/model.etrecord, model.pte and maps.json, as in tests/fixtures; and run.etdp for those that run.

    numbers, texts   a delegate of our own, whose identifiers are 112, 12, 1 or texts; two instances of it
    methods          XNNPACK twice in `forward`, once in `other`
    loop             `map`: its body runs once for each row
    buffer           a buffer that every inference changes
"""

import json
import sys
from pathlib import Path
from typing import Any, final

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_partitions_from_list_of_nodes
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import DelegateMappingBuilder
from executorch.runtime import Runtime
from torch._higher_order_ops.map import map as map_rows
from torch.fx.passes.operator_support import OperatorSupportBase

IDENTIFIERS: dict[str, list[Any]] = {"numbers": [112, 12, 1], "texts": ["conv #12", "conv #1", "conv"]}
TIMES = 2


@final
class CountingBackend(BackendDetails):
    """Does nothing but give each of its operators the next identifier of its list."""

    @staticmethod
    def preprocess(edge_program: torch.export.ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """A blob of no meaning, and the map."""
        builder = DelegateMappingBuilder()
        nodes = [node for node in edge_program.graph.nodes if node.op == "call_function" and "debug_handle" in node.meta]
        for node, identifier in zip(nodes, json.loads(compile_specs[0].value), strict=False):
            builder.insert_delegate_mapping_entry(nodes=node, identifier=identifier)
        return PreprocessResult(processed_bytes=b"counting", debug_handle_map=builder.get_delegate_mapping())


class Arithmetic(OperatorSupportBase):
    """What `CountingBackend` takes."""

    def is_node_supported(self, _submodules: Any, node: torch.fx.Node) -> bool:
        """Whether the node adds, multiplies or subtracts."""
        return node.op == "call_function" and any(f"aten.{name}.Tensor" in str(node.target) for name in ("add", "mul", "sub"))


class CountingPartitioner(Partitioner):
    """Gives all arithmetic to `CountingBackend`."""

    def __init__(self, identifiers: list[Any]) -> None:
        self._given = DelegationSpec(CountingBackend.__name__, [CompileSpec("identifiers", json.dumps(identifiers).encode())])

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        """Each connected stretch of arithmetic is an instance."""
        tags = {}
        for partition in generate_partitions_from_list_of_nodes(exported_program.graph_module, op_support=Arithmetic()):
            tag = f"counting{partition.id}"
            tags[tag] = self._given
            for node in partition.nodes:
                node.meta["delegation_tag"] = tag
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


class Twice(torch.nn.Module):
    """Two stretches of arithmetic with a kernel between."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any values."""
        y = (x + x) * x - x
        z = torch.cumsum(y, 0)
        return (z * z - x) + z


class Chain(torch.nn.Module):
    """Linear layers, with a kernel between each two."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any values."""
        for layer in self.layers:
            x = torch.cumsum(torch.relu(layer(x)), 0)
        return x


class Rows(torch.nn.Module):
    """A loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any values."""
        return torch.cumsum(map_rows(lambda row: torch.atan2(row, row), x), 0)


class Counter(torch.nn.Module):
    """A buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("state", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any values."""
        self.state.add_(x)
        return self.linear(self.state)


def export(modules: dict[str, torch.nn.Module], partitioner: Partitioner, folder: Path) -> None:
    """The files of one model."""
    folder.mkdir(parents=True)
    programs = {name: torch.export.export(module.eval(), (torch.ones(2, 4),)) for name, module in modules.items()}
    program = to_edge_transform_and_lower(programs, partitioner=[partitioner], generate_etrecord=True).to_executorch()
    program.get_etrecord().save(folder / "model.etrecord")
    (folder / "model.pte").write_bytes(program.buffer)
    maps = {"debug_handle_map": program.debug_handle_map, "delegate_map": program.delegate_map}
    (folder / "maps.json").write_text(json.dumps(maps))


def run(folder: Path) -> None:
    """Execute every method, in turn, some times."""
    program = Runtime.get().load_program(folder / "model.pte", enable_etdump=True)
    for _ in range(TIMES):
        for name in sorted(program.method_names):
            program.load_method(name).execute([torch.ones(2, 4)])
    program.write_etdump_result_to_file(str(folder / "run.etdp"), str(folder / "run.debug"))


def main(folder: str) -> None:
    """Every model."""
    torch.manual_seed(0)
    for name, identifiers in IDENTIFIERS.items():
        export({"forward": Twice()}, CountingPartitioner(identifiers), Path(folder) / name)
    runnable = {
        "methods": {"forward": Chain(2), "other": Chain(1)},
        "loop": {"forward": Rows()},
        "buffer": {"forward": Counter()},
    }
    for name, modules in runnable.items():
        export(modules, XnnpackPartitioner(), Path(folder) / name)
        run(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
