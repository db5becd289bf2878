"""
A delegate that does nothing but what profiling needs: its ahead-of-time half, with our builder inside a real `preprocess`.

Usage: toy_delegate.py FOLDER [int|str]
Writes FOLDER/model.pte, model.etrecord and model.mapping: `forward` with two instances of the delegate and a kernel between
them, `other` with one.

The payload, in UTF-8, says what the run-time half logs, in the order of execution:

    str
    toy::conv_relu#0<TAB>conv_relu
    toy::exp#1<TAB>exp
    toy::silu#2<TAB>silu

Invariants
* An instance has one input and one output, so its arguments at run time are these two; the weights are its own.
* Convolution and ReLU run as one (one identifier, two handles); sigmoid and the multiplication behind it as two operators that
  share the sigmoid (many to many); tan as two (two identifiers, one handle); all else one to one.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_partitions_from_list_of_nodes
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch.fx.passes.operator_support import OperatorSupportBase

from otel_bridge.aot import DelegateMappingBuilder, mapping_from_program
from otel_bridge.mapping.source import write_file

SHAPE = (1, 3, 8, 8)
"""Of the input of every method."""

_TAKEN = ("convolution", "relu", "sigmoid", "mul", "tan", "add")
_KIND = "identifiers"


@final
class BridgeToyBackend(BackendDetails):
    """Compiles to the list of what will be logged."""

    @staticmethod
    def preprocess(edge_program: torch.export.ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """The payload and the debug handle map."""
        kind = next(spec.value.decode() for spec in compile_specs if spec.key == _KIND)
        builder = DelegateMappingBuilder(generated_identifiers=kind == "int")
        lines = [kind]
        for number, (name, nodes) in enumerate(_schedule(edge_program)):
            chosen = None if kind == "int" else f"toy::{name}#{number}"
            identifier = builder.insert_delegate_mapping_entry(nodes=nodes, identifier=chosen)
            lines.append(f"{identifier}\t{name}")
        payload = "\n".join(lines) + "\n"
        return PreprocessResult(processed_bytes=payload.encode(), debug_handle_map=builder.get_delegate_mapping())


def _schedule(program: torch.export.ExportedProgram) -> Iterator[tuple[str, list[torch.fx.Node]]]:
    """What runs, in order: its name, and the operators that it does or takes part in."""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        before = [each for each in node.all_input_nodes if each.op == "call_function"]
        match _operator(node):
            case "convolution":
                continue
            case "relu":
                yield "conv_relu", [*before, node]
            case "sigmoid":
                yield "exp", [node]
            case "mul":
                yield "silu", [each for each in before if _operator(each) == "sigmoid"] + [node]
            case "tan":
                yield "sin", [node]
                yield "cos", [node]
            case name:
                yield name, [node]


def _operator(node: torch.fx.Node) -> str:
    """The operator without its namespace and overload: "add" of `aten.add.Tensor`."""
    return str(node.target).rpartition("aten.")[2].partition(".")[0]


class _Taken(OperatorSupportBase):
    def is_node_supported(self, _submodules: Any, node: torch.fx.Node) -> bool:
        return node.op == "call_function" and _operator(node) in _TAKEN


class BridgeToyPartitioner(Partitioner):
    """Gives the toy whatever it takes; `kind` is that of its identifiers: "int" or "str"."""

    def __init__(self, kind: str = "str") -> None:
        self._given = DelegationSpec(BridgeToyBackend.__name__, [CompileSpec(_KIND, kind.encode())])

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        """Each connected stretch is an instance, with the weights that it uses."""
        tags = {}
        for partition in generate_partitions_from_list_of_nodes(exported_program.graph_module, op_support=_Taken()):
            tag = f"toy{partition.id}"
            tags[tag] = self._given
            for node in partition.nodes:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


class Forward(torch.nn.Module):
    """Two stretches for the toy, and a kernel between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An image."""
        y = torch.relu(self.stem(x))
        y = y * torch.sigmoid(y)
        y = torch.relu(self.head(torch.cumsum(y, 1)))
        return torch.tan(y) + y


class Other(torch.nn.Module):
    """One stretch for the toy, behind a kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An image."""
        y = torch.cumsum(x, 1)
        return torch.tan(y) + y


def lower(kind: str = "str") -> EdgeProgramManager:
    """The model in the edge dialect, lowered to the toy, with an ETRecord in the making."""
    torch.manual_seed(0)
    example = (torch.ones(SHAPE),)
    methods = {
        name: torch.export.export(module.eval(), example) for name, module in (("forward", Forward()), ("other", Other()))
    }
    return to_edge_transform_and_lower(methods, partitioner=[BridgeToyPartitioner(kind)], generate_etrecord=True)


def export(folder: Path, kind: str = "str") -> ExecutorchProgramManager:
    """Lower the model and write its files; the alias in the mapping is toy@1.0."""
    folder.mkdir(parents=True, exist_ok=True)
    program = lower(kind).to_executorch()
    mapping = mapping_from_program(program, model="toy", version="1.0")
    (folder / "model.mapping").write_bytes(write_file(mapping, "model.mapping"))
    (folder / "model.pte").write_bytes(program.buffer)
    program.get_etrecord().save(folder / "model.etrecord")
    return program


if __name__ == "__main__":
    export(Path(sys.argv[1]), *sys.argv[2:])
