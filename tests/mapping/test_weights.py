"""Weights of an entry's handles in a document."""

import pytest

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.document import canonical, digest, encode
from otel_bridge.v1 import mapping_pb2 as pb


def with_entry(handles: list[int], weights: list[int]) -> pb.Mapping:
    """One identifier with these handles and weights."""
    entry = pb.MapEntry(text="a", handles=handles, weights=weights)
    call = pb.Instruction(id=0, delegate="Toy", handles=[1, 2, 3], entries=[entry])
    return pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=[call])])


def test_a_weight_stays_with_its_handle() -> None:
    """In whatever order both come; and they are part of what the digest names."""
    (entry,) = canonical(with_entry([3, 1, 2], [30, 10, 20])).methods[0].instructions[0].entries
    assert (list(entry.handles), list(entry.weights)) == ([1, 2, 3], [10, 20, 30])
    digests = {
        digest(encode(with_entry(*each))) for each in (([3, 1], [3, 1]), ([1, 3], [1, 3]), ([1, 3], [3, 1]), ([1, 3], []))
    }
    assert len(digests) == 3


@pytest.mark.parametrize(("handles", "weights"), [([1, 2], [1]), ([1], [1, 2]), ([], [1]), ([1, 1], [1, 2]), ([1, 2], [0, 0])])
def test_weights_that_fit_no_handles_are_refused(handles: list[int], weights: list[int]) -> None:
    """One for each handle, and not all 0: else it is not known whose time it is."""
    with pytest.raises(MalformedMapping, match=r'^methods\[forward\]\.instructions\[0\]\.entries\["a"\]\.weights: '):
        canonical(with_entry(handles, weights))
