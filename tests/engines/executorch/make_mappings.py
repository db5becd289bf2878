"""
Export models, and make the mapping of each from its live objects in every way that there is.

Usage: make_mappings.py FOLDER
For each model, FOLDER/NAME/ has

    plain.pte          the program as `to_executorch` gives it
    model.pte          with its build id
    model.etrecord     as `generate_etrecord=True` makes it: the graphs are from before the lowering
    lowered.etrecord   as `generate_etrecord()` makes it: the graphs are from after the lowering
    WAY.binpb          the `MappingFile` of: recorded (the ETRecord's graphs), copied (a copy of the edge programs),
                       consumed (the edge programs that `to_executorch` has rewritten, and the ETRecord), alone (nothing else)
    facts.json         maps as the program manager has them (as `repr`), what is refused, whether inference stays equal

and FOLDER/toy/ what toy_delegate.py writes.
"""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import generate_etrecord
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_partitions_from_list_of_nodes
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.test.backend_with_delegate_mapping_demo import BackendWithDelegateMappingDemo
from executorch.runtime import Runtime
from torch._higher_order_ops.map import map as map_rows
from torch.fx.passes.operator_support import OperatorSupportBase
from toy_delegate import SHAPE, Forward, Other, export, lower

from otel_bridge.aot import embed_build_id, mapping_from_program
from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.pte_file import BUILD_ID_KEY


class _All(OperatorSupportBase):
    def is_node_supported(self, _submodules: Any, node: torch.fx.Node) -> bool:
        return node.op == "call_function"


class DemoPartitioner(Partitioner):
    """Gives everything to ExecuTorch's own demonstration of a delegate with a map."""

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        """One instance."""
        (partition,) = generate_partitions_from_list_of_nodes(exported_program.graph_module, op_support=_All())
        for node in partition.nodes:
            node.meta["delegation_tag"] = "demo"
        given = DelegationSpec(BackendWithDelegateMappingDemo.__name__, [])
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={"demo": given})


class Awkward(torch.nn.Module):
    """Operators with several results, a buffer that is written, a loop whose body is in no map, a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 1)
        self.register_buffer("state", torch.zeros(SHAPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An image."""
        self.state.add_(x)
        y = torch.cond(x.sum() > 0, lambda y: torch.tan(y) + y, lambda y: torch.relu(y) * y, [self.stem(self.state)])
        first, second = torch.split(map_rows(lambda row: torch.atan2(row, row) * row, y), 2, 1)
        values, _ = torch.topk(first, 1)
        return values * second


def demo_model() -> torch.nn.Module:
    """The model that the demonstration is for."""
    return BackendWithDelegateMappingDemo.get_test_model_and_inputs()[0]


def lower_to(partitioners: list[Partitioner], modules: dict[str, Callable[[], torch.nn.Module]], **options: Any) -> Any:
    """Modules by method, made with the weights of every time, and lowered."""
    torch.manual_seed(0)
    methods = {name: torch.export.export(module().eval(), (torch.ones(SHAPE),)) for name, module in modules.items()}
    return to_edge_transform_and_lower(methods, partitioner=partitioners, generate_etrecord=True, **options)


CONFIGURED = ExecutorchBackendConfig(extract_delegate_segments=False, segment_alignment=4096, constant_tensor_alignment=64)
CONFIGS = {"configured": CONFIGURED, "external": ExecutorchBackendConfig(external_constants=True)}
MODELS = {
    "toy_str": lambda: lower("str"),
    "toy_int": lambda: lower("int"),
    "xnnpack": lambda: lower_to([XnnpackPartitioner()], {"forward": Forward, "other": Other}),
    "demo": lambda: lower_to([DemoPartitioner()], {"forward": demo_model}),
    "awkward": lambda: lower_to([XnnpackPartitioner()], {"forward": Awkward}, constant_methods={"get_dim": 4}),
    "portable": lambda: lower_to([], {"forward": Other}),
    "configured": lambda: lower_to([], {"forward": Forward}),
    "external": lambda: lower_to([], {"forward": Forward}),
}
RUNNABLE = ("xnnpack", "portable")


def attempt(call: Callable[[], object]) -> str:
    """What is said where a call is refused."""
    try:
        call()
    except MalformedMapping as refused:
        return str(refused)
    return ""


def make(name: str, folder: Path) -> None:
    """The files of one model."""
    folder.mkdir(parents=True)
    config = CONFIGS.get(name, ExecutorchBackendConfig())
    edge = MODELS[name]()
    copied = copy.deepcopy(edge)
    program = edge.to_executorch(config)
    (folder / "plain.pte").write_bytes(program.buffer)
    tensors = tensor_data(program)
    program.get_etrecord().save(folder / "model.etrecord")
    generate_etrecord(str(folder / "lowered.etrecord"), copied, program)
    facts: dict[str, Any] = {"delegate_map": repr(program.delegate_map)}
    if name == "configured":
        facts["not_embedded"] = embed_build_id(program)
        write(folder / "unfit.binpb", program)
        (folder / "unfit.pte").write_bytes(program.buffer)
    for way, managers in {"recorded": (program,), "copied": (program, copied), "consumed": (program, edge)}.items():
        write(folder / f"{way}.binpb", *managers, backend_config=config if name == "configured" else None)
    (folder / "model.pte").write_bytes(program.buffer)
    program.save(str(folder / "saved.pte"))
    facts["equal_tensors"] = [len(tensors), tensor_data(program) == tensors]
    facts["kept"] = BUILD_ID_KEY in edge._named_data_store.get_named_data_store_output().pte_data
    record, program._etrecord = program._etrecord, None  # as if made without
    write(folder / "alone.binpb", program)
    for case, other in {"consumed": edge, "foreign": foreign_to(program)}.items():
        facts[case] = attempt(lambda other=other: mapping_from_program(program, other, model="m", version="1"))
    program._etrecord = record
    if name in RUNNABLE:
        facts["equal_outputs"] = outputs(folder / "plain.pte") == outputs(folder / "model.pte")
    if name == "toy_str":
        facts["renamed"] = embed_build_id(program, "camera 7")
        (folder / "renamed.pte").write_bytes(program.buffer)
        other = ExecutorchBackendConfig(segment_alignment=4096)
        facts["unfit"] = attempt(lambda: embed_build_id(program, "camera 8", backend_config=other))
    (folder / "facts.json").write_text(json.dumps(facts))


def write(path: Path, *managers: Any, backend_config: ExecutorchBackendConfig | None = None) -> None:
    """Make a mapping and write it."""
    file = mapping_from_program(*managers, model="m", version="1", backend_config=backend_config)
    path.write_bytes(file.SerializeToString(deterministic=True))


def tensor_data(program: Any) -> dict[str, bytes]:
    """The weights outside the program, by file (`.ptd`)."""
    return {name: bytes(data) for name, data in program._tensor_data.items()}


def foreign_to(program: Any) -> Any:
    """Edge programs with another method."""

    class Foreign:
        methods = program.methods | {"foreign"}

    return Foreign()


def outputs(path: Path) -> list[list[float]]:
    """What each method gives for one input."""
    program = Runtime.get().load_program(path)
    torch.manual_seed(1)
    given = torch.randn(SHAPE)
    return [
        output.flatten().tolist()
        for name in sorted(program.method_names)
        for output in program.load_method(name).execute([given])
    ]


if __name__ == "__main__":
    for each in MODELS:
        make(each, Path(sys.argv[1]) / each)
    export(Path(sys.argv[1]) / "toy", "str")
