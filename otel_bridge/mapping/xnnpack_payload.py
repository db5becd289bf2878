"""
What the XNNPACK delegate is given to run: its graph inside the `.pte`, read as nodes.

    [4 bytes]["XH00"][length of this header: u16][where the graph is: u32][its bytes: u32][where the weights are: u32][...]
    ... the graph, a FlatBuffer ["XN01" at its byte 4] ... the weights

Sources: backends/xnnpack/serialization/schema.fbs (`XNNGraph`, `XNode`, `XNodeUnion`) and xnnpack_graph_serialize.py
(`XNNHeader`); older programs hold the bare graph, as backends/xnnpack/runtime/XNNCompiler.cpp still takes it.

Invariants
* The weights are never looked at.
* Nodes stand in the order of the graph, in which XNNCompiler defines them.
"""

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.faults import malformed
from otel_bridge.mapping.pte_tables import U8, U32, Allowance, Buffer
from otel_bridge.v1 import mapping_pb2 as pb

BACKEND = "XnnpackBackend"

KINDS = (
    "Add",
    "FullyConnected",
    "Softmax",
    "Sigmoid",
    "StaticTranspose",
    "Clamp",
    "Conv2d",
    "Div",
    "StaticResizeBilinear2D",
    "StaticConstantPad",
    "AvgPooling2d",
    "Minimum",
    "DepthwiseConv2d",
    "MaxPooling2d",
    "Multiply",
    "Subtract",
    "Floor",
    "Convert",
    "GlobalAvgPooling2d",
    "StaticReshape",
    "ArgMaxPooling2d",
    "SquareRoot",
    "Ceiling",
    "Hardswish",
    "LeakyReLU",
    "Maximum",
    "Negate",
    "Square",
    "ELU",
    "Abs",
    "PReLU",
    "Concatenate2",
    "Concatenate3",
    "Concatenate4",
    "StaticSlice",
    "ScaledDotProductAttention",
    "BatchMatrixMultiply",
    "Concatenate5",
    "ConvTranspose2d",
    "ReciprocalSquareRoot",
    "Log",
    "Gelu",
    "Tanh",
    "Exp",
    "Sin",
    "Copy",
    "Cos",
)
"""The members of `XNodeUnion` without their `XNN`, from 1 on."""

_HEADER, _GRAPHS = b"XH00", (b"XN00", b"XN01")
_HEADER_BYTES = 22
_GRAPH_OFFSET, _GRAPH_BYTES = 10, 14
_NODES = 1
_KIND, _HANDLE = 0, 2
_NO_HANDLE = (0, 65535)  # 65535: `DEFAULT_DEBUG_HANDLE`, for nodes that a pass inserted; 0: ExecuTorch's word for "none"
NODE_BYTES = 128
"""What a node takes in memory, about: claimed from the allowance."""


def read_nodes(payload: memoryview, where: str, allowance: Allowance) -> list[pb.DelegateNode]:
    """
    The nodes of a payload in order; none where it is of a form that is not known.

    Raises `MalformedMapping` where it is of a known form and cannot be read.
    """
    graph = _graph(payload, where)
    if graph is None:
        return []
    nodes = graph.root().tables(_NODES)
    allowance.claim(NODE_BYTES * len(nodes), where)
    return [
        pb.DelegateNode(kind=_kind(node.number(_KIND, U8)), handle=0 if handle in _NO_HANDLE else handle)
        for node in nodes
        for handle in [node.number(_HANDLE, U32)]
    ]


def _graph(payload: memoryview, where: str) -> Buffer | None:
    magic = payload[4:8]
    if magic in _GRAPHS:
        return Buffer(payload, where)
    if magic != _HEADER:
        return None
    head = Buffer(payload[:_HEADER_BYTES], where)
    begin = head.number(U32, _GRAPH_OFFSET)
    end = begin + head.number(U32, _GRAPH_BYTES)
    if end > len(payload) or payload[begin + 4 : begin + 8] not in _GRAPHS:
        raise _no_graph(begin, end, len(payload), where)
    return Buffer(payload[begin:end], where)


def _no_graph(begin: int, end: int, size: int, where: str) -> MalformedMapping:
    found = f"a header that promises a graph in bytes {begin} to {end} of {size}, and there is none"
    return malformed(where, found, "it was cut or damaged: copy or export it again")


def _kind(number: int) -> str:
    """The name of a member of the union; those of a later version go by their number."""
    return KINDS[number - 1] if 0 < number <= len(KINDS) else f"XNode{number}"
