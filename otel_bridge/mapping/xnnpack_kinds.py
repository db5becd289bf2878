"""
What XNNPACK calls the operators that it makes of a node, and which nodes may leave no operator behind.

Sources
    kinds     backends/xnnpack/serialization/schema.fbs; what each becomes: backends/xnnpack/runtime/XNNCompiler.cpp
    names     XNNPACK src/operator-utils.c (`xnn_operator_type_to_string_v2`), src/xnnpack/operator-type-defs.inc; those that
              the library of ExecuTorch 1.5.1 holds are the same
    the rest  XNNPACK src/subgraph.c, function by function below; `xnn_get_runtime_profiling_info` (src/runtime.c) gives one
              entry for each node that is left, with the name of its first operator, in the order of the nodes

Invariants
* A name is the operator's without what stands in brackets and behind them: data types and microkernels.
* A name that stands nowhere here fits no node, so the call it occurs in is not aligned.
* Too many possibilities cost certainty, too few cost truth: whatever a known version of XNNPACK may do is allowed for.
"""

from otel_bridge.mapping.align import Step

_ELEMENTWISE = {
    # xnn_define_binary
    "Add": ("Add",),
    "Div": ("Divide",),
    "Maximum": ("Maximum", "Clamp"),  # optimize_common_subgraphs_min_max_to_clamp
    "Minimum": ("Minimum", "Clamp"),
    "Multiply": ("Multiply", "Square"),  # optimize_common_subgraphs_mul_to_sqr
    "PReLU": ("PReLU",),
    "Subtract": ("Subtract",),
    # xnn_define_unary
    "Abs": ("Abs",),
    "Ceiling": ("Ceiling",),
    "Clamp": ("Clamp", "Copy"),  # optimize_common_subgraphs_spurious_clamps
    "Convert": ("Convert",),
    "Cos": ("Cosine",),
    "ELU": ("ELU",),
    "Exp": ("Exp",),
    "Floor": ("Floor",),
    "Gelu": ("GELU",),
    "Hardswish": ("HardSwish",),
    "LeakyReLU": ("LeakyReLU",),
    "Log": ("Log",),
    "Negate": ("Negate",),
    "ReciprocalSquareRoot": ("Reciprocal Square Root",),
    "Sigmoid": ("Sigmoid",),
    "Sin": ("Sine",),
    "Square": ("Square",),
    "SquareRoot": ("Square Root",),
    "Tanh": ("TanH",),
}
"""Chains of these on 8-bit values become one table look-up (`xnn_subgraph_fuse_unary_quantized_into_lut`)."""

LOOK_UP = "Invalid Unary Op"
"""The name of such a look-up, which is none of XNNPACK's unary operators. It stands for two nodes or more."""

_CONVOLUTION = ("Convolution", "Fully Connected")
"""A convolution of one pixel runs as a matrix multiplication; one of one channel a group is a depthwise one by size only."""

_OTHERS = {
    "ArgMaxPooling2d": ("ArgMax Pooling",),
    "AvgPooling2d": ("Average Pooling",),
    "BatchMatrixMultiply": ("Batch Matrix Multiply",),
    "Concatenate2": ("Copy",),  # src/subgraph/concatenate.c: a copy for each input, of which the first gives the name
    "Concatenate3": ("Copy",),
    "Concatenate4": ("Copy",),
    "Concatenate5": ("Copy",),
    "Conv2d": _CONVOLUTION,
    "ConvTranspose2d": ("Deconvolution",),
    "Copy": ("Copy",),
    "DepthwiseConv2d": _CONVOLUTION,
    "FullyConnected": ("Fully Connected", "Dynamic Fully Connected"),
    "GlobalAvgPooling2d": ("Mean", "Mean Squared"),  # src/subgraph/deprecated.c; optimize_common_subgraphs_reduce_sum_to_square
    "MaxPooling2d": ("Max Pooling",),
    "Softmax": ("Softmax",),
    "StaticConstantPad": ("Constant Pad",),
    "StaticReshape": ("Static Reshape",),
    "StaticResizeBilinear2D": ("Resize Bilinear",),
    "StaticSlice": ("Slice",),
    "StaticTranspose": ("Transpose",),
}

_VANISHING = frozenset(
    {
        *_ELEMENTWISE,  # see there; Clamp also into the node before it (optimize_common_subgraphs_merge_clamps)
        "Copy",  # xnn_subgraph_fusion: into the node before or after it
        "StaticConstantPad",  # xnn_subgraph_fusion: into a convolution
        "StaticReshape",  # optimize_common_subgraphs_merge_reshapes, optimize_common_subgraphs_static_reshapes
        "StaticTranspose",  # optimize_common_subgraphs_gemm_rhs_transpose
    }
)

_UNKNOWN = Step(frozenset())

STEPS = {
    kind: Step(frozenset(names), kind in _VANISHING)
    for kind, names in {**{kind: (*names, LOOK_UP) for kind, names in _ELEMENTWISE.items()}, **_OTHERS}.items()
}
"""By the kind of a node; those that are not here, such as of later versions, fit no event."""


def step_of(kind: str) -> Step:
    """What is known of a kind of node."""
    return STEPS.get(kind, _UNKNOWN)
