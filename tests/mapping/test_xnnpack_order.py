"""The rule `xnnpack.node_order` by itself: names, numbers, kinds, and every capture."""

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import CAPTURES, Capture
from support.engines import ROOT
from support.mappings import capture

from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.xnnpack_kinds import LOOK_UP, STEPS, step_of
from otel_bridge.mapping.xnnpack_order import Node, handles_of
from otel_bridge.mapping.xnnpack_payload import KINDS
from otel_bridge.model.events import Identifier

# What is known of the kinds in the captures, written down a second time: how the event of a node begins.
BEGINS = {
    "Add": ("Add",),
    "BatchMatrixMultiply": ("Batch Matrix",),
    "Conv2d": ("Convolution", "Fully Connected"),
    "DepthwiseConv2d": ("Convolution",),
    "FullyConnected": ("Fully Connected",),
    "Gelu": ("GELU",),
    "GlobalAvgPooling2d": ("Mean",),
    "Hardswish": ("HardSwish", "Invalid Unary"),
    "MaxPooling2d": ("Max Pooling",),
    "Sigmoid": ("Sigmoid",),
    "Softmax": ("Softmax",),
    "StaticReshape": ("Static Reshape",),
    "StaticTranspose": ("Transpose",),
}
FUSED_AWAY = {"Clamp", "Convert", "Copy", "Hardswish"}


def every_reading(nodes: Sequence[Node], identifiers: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The handle of each event, in every way in which the nodes can have logged them."""
    if not nodes:
        if not identifiers:
            yield ()
        return
    (kind, handle), rest = nodes[0], nodes[1:]
    if kind in FUSED_AWAY:
        yield from every_reading(rest, identifiers)
    if identifiers and identifiers[0].startswith(BEGINS[kind]):
        for reading in every_reading(rest, identifiers[1:]):
            yield (handle, *reading)


def nodes_of(model: str) -> dict[tuple[str, int], list[Node]]:
    """XNNPACK's nodes by method and instruction."""
    return {
        (method.name, each.id): [(node.kind, node.handle) for node in each.nodes]
        for method in read_program(capture(model, "model.pte")).mapping.methods
        for each in method.instructions
        if each.delegate == "XnnpackBackend"
    }


def calls_of(run: Capture) -> dict[tuple[int, str, int], list[str]]:
    """The identifiers that each call of XNNPACK logged, by block, method and instruction. Here no call is run twice in one."""
    calls: dict[tuple[int, str, int], list[str]] = {}
    for event in run.events:
        if event.identifier is not None and run.delegate_of(event) == "XnnpackBackend":
            key = event.block, run.method_of(event) or "", event.instruction or 0
            calls.setdefault(key, []).append(str(event.identifier))
    return calls


def test_captures() -> None:
    """In every capture each call has exactly one reading, and the rule finds it."""
    events = 0
    for run in CAPTURES.values():
        nodes = nodes_of(run.model)
        for (_, method, instruction), identifiers in calls_of(run).items():
            (reading,) = every_reading(nodes[method, instruction], identifiers)
            assert handles_of(nodes[method, instruction], identifiers) == reading
            events += len(identifiers)
    assert events > 1000


MOBILE = nodes_of("xnn_mobile")["forward", 0]


def test_mobile() -> None:
    """18 nodes, 18 events, each of its own node; the two transposes that ExecuTorch put in are of no operator."""
    (identifiers,) = {tuple(identifiers) for identifiers in calls_of(CAPTURES["xnn_mobile/run10"]).values()}
    found = handles_of(MOBILE, identifiers)
    assert found == tuple(handle for _, handle in MOBILE)
    assert [identifiers[index] for index, handle in enumerate(found) if not handle] == [
        "Transpose (ND, X32) #1",
        "Transpose (ND, X32) #2",
    ]


NODES: list[Node] = [("Conv2d", 1), ("Clamp", 2), ("Conv2d", 3), ("Hardswish", 4), ("Convert", 5), ("Add", 6)]
CONV, GEMM = "Convolution (NHWC, F32) IGEMM", "Fully Connected (NC, F32) GEMM"


@pytest.mark.parametrize(
    ("identifiers", "handles"),
    [
        (
            [f"{CONV} #1", "Clamp (NC) #1", f"{CONV} #2", "HardSwish (NC) #1", "Convert (NC) #1", "Add (ND) #1"],
            (1, 2, 3, 4, 5, 6),
        ),
        ([f"{GEMM} #1", f"{CONV} #1", "Add (ND) #1"], (1, 3, 6)),
        ([f"{CONV} #1", f"{CONV} #2", "Convert (NC, F32, QD8) #1", "Add (ND) #1"], (1, 3, 5, 6)),
        ([f"{CONV} #1", f"{CONV} #2", "Invalid Unary Op #1", "Add (ND) #1"], (1, 3, 0, 6)),
        ([f"{CONV} #1", f"{CONV} #2", "Invalid Unary Op #1", "Invalid Unary Op #2", "Add (ND) #1"], (1, 3, 0, 0, 6)),
        ([f"{CONV} #1", f"{CONV} #2", "Pack LH (X32) #1", "Add (ND) #1"], (0, 0, 0, 0)),
        ([f"{CONV} #1", "Add (ND) #1"], (0, 0)),
        ([f"{CONV} #1", f"{CONV} #3", "Add (ND) #1"], (0, 0, 0)),
        ([f"{CONV} #1", f"{CONV} #1", "Add (ND) #1"], (0, 0, 0)),
        ([f"{CONV} #1", f"{CONV} #02", "Add (ND) #1"], (0, 0, 0)),
        ([f"{CONV} #1", f"{CONV}", "Add (ND) #1"], (0, 0, 0)),
        ([f"{CONV} #1", 2, "Add (ND) #1"], (0, 0, 0)),
        ([f"{CONV} #2", f"{CONV} #1", "Add (ND) #1"], (0, 0, 0)),
        ([], ()),
    ],
)
def test_examples(identifiers: list[Identifier], handles: tuple[int, ...]) -> None:
    """
    What may be fused may be missing; what two nodes may have logged is of none, and so is a table look-up, which stands for
    several; a name that is not known, and numbers that do not count up from 1, spoil their call.
    """
    assert handles_of(NODES, identifiers) == handles


def test_every_kind_is_known() -> None:
    """Each kind that the runtime can define has names; attention, which it cannot, and later kinds fit no event."""
    unknown = {"ScaledDotProductAttention"}
    assert set(KINDS) - unknown == set(STEPS)
    assert all(step.fits for step in STEPS.values())
    assert not step_of("XNode48").fits
    assert not any(step_of(kind).fits for kind in unknown)


@settings(max_examples=200)
@given(st.data(), st.lists(st.sampled_from(sorted(STEPS)), max_size=14))
def test_never_of_another_node(data: st.DataObject, kinds: list[str]) -> None:
    """Whatever XNNPACK fuses and however it names the rest, no event gets the handle of a node that did not log it."""
    nodes = [(kind, index + 1) for index, kind in enumerate(kinds)]
    identifiers, truth = [], []
    counted: dict[str, int] = {}
    for kind, handle in nodes:
        if not step_of(kind).may_vanish or data.draw(st.booleans()):
            name = f"{data.draw(st.sampled_from(sorted(step_of(kind).fits, key=str)))} (ND)"
            counted[name] = counted.get(name, 0) + 1
            identifiers.append(f"{name} #{counted[name]}")
            truth.append(handle)
    found = handles_of(nodes, identifiers)
    assert all(said in (0, handle) for said, handle in zip(found, truth, strict=True))
    if len(truth) == len(nodes):
        looked_up = ["Invalid Unary Op" in identifier for identifier in identifiers]
        assert found == tuple(0 if table else handle for table, handle in zip(looked_up, truth, strict=True))


def test_the_documented_table() -> None:
    """The table for users is the one that the rule uses."""
    rows = [
        (kind, frozenset(names.split(", ")), vanishes == "yes")
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for kind, names, vanishes in re.findall(r"^\| `(\w+)` \| ([^|]+) \| (yes|no) \|$", page.read_text(), re.MULTILINE)
        if kind in KINDS
    ]
    used = [
        (kind, {"look-up" if name == LOOK_UP else name for name in step.fits}, step.may_vanish) for kind, step in STEPS.items()
    ]
    assert sorted(rows, key=lambda row: row[0]) == sorted(used, key=lambda row: row[0])
