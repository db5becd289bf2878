"""
A batch with all that is known of it: what the two ways to build spans start from.

Invariants
* A scene is whole: whoever builds spans from it looks nothing up and asks no clock.
* One span a row, but for counters that stand on their calls (spans/counters.py), and one root of the bridge's making for each
  block that has events and no root row (in a split inference: for its last part). `Scene.has_root_span` says which.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventBatch
from otel_bridge.spans import attributes as at
from otel_bridge.spans.compile import Template
from otel_bridge.spans.counters import Counters
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.inference import Inference
from otel_bridge.spans.place import Timeline
from otel_bridge.spans.resource import Resource
from otel_bridge.spans.sheet import Sheet
from otel_bridge.spans.tree import NOWHERE, Tree


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded metadata as attributes, the same as a fragment of a serialised `Span`, and how many of its texts were cut."""

    attributes: tuple[tuple[str, at.Value], ...]
    encoded: bytes
    cuts: int = 0


class Metadata:
    """
    All that a scene's rows say of their metadata, by entry: those that were decoded one by one, then those of each sheet.

    forms   fragments of a `Span`, in those of sheets zeros in place of the values (`fill`); the last is b""
    form    int64[entries + 1]   index into `forms`; that of -1, no entry, is the last
    """

    def __init__(self, single: Sequence[Decoded] = (), sheets: Sequence[Sheet] = ()) -> None:
        self._single = tuple(single)
        self._sheets = tuple(sheets)
        self._edges = list(accumulate(map(len, sheets), initial=len(single)))
        self.forms = [each.encoded for each in single]
        numbers = [np.arange(len(single))]
        for sheet in sheets:
            numbers.append(sheet.form + len(self.forms))
            self.forms += sheet.forms
        self.form = np.concatenate((*numbers, [len(self.forms)]))
        self.forms.append(b"")

    def __len__(self) -> int:
        return self._edges[-1]

    def __getitem__(self, entry: int) -> Decoded:
        """One entry as if it had been decoded alone."""
        if entry < len(self._single):
            return self._single[entry]
        number = bisect_right(self._edges, entry) - 1
        attributes = self._sheets[number].attributes(entry - self._edges[number])
        return Decoded(attributes, span_attributes(attributes))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """int64[entries + 1]: bytes of each fragment."""
        return np.array([*map(len, self.forms)], np.int64)[self.form]

    @property
    def cuts(self) -> NDArray[np.int64]:
        """int64[entries + 1]: texts of each that were cut; in sheets there are none."""
        cuts = np.zeros(len(self) + 1, np.int64)
        cuts[: len(self._single)] = [each.cuts for each in self._single]
        return cuts

    def fill(self, data: NDArray[np.uint8], at: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Write the values of entries into their forms, which begin at these positions of `data`; entries may be -1."""
        for sheet, begin in zip(self._sheets, self._edges[:-1], strict=True):
            rows = np.flatnonzero((entries >= begin) & (entries < begin + len(sheet)))
            sheet.fill(data, at[rows], entries[rows] - begin)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """
    n rows of m blocks, resolved.

    inference    int64[m]   index into `inferences`
    derived      per block, the derived trace id: it keys the span ids, also where the spans go into an app's trace
    template     int64[n]   index into `templates`
    decoded      int64[n]   index into `metadata`; -1: the row has none
    resources    per stream
    """

    batch: EventBatch
    tree: Tree
    timeline: Timeline
    inferences: tuple[Inference, ...]
    inference: NDArray[np.int64]
    derived: Sequence[bytes]
    templates: tuple[Template, ...]
    template: NDArray[np.int64]
    metadata: Metadata
    decoded: NDArray[np.int64]
    counters: Counters
    resources: tuple[Resource, ...]

    @property
    def has_root_span(self) -> NDArray[np.bool_]:
        """bool[m]: whether the block's root is emitted with this batch."""
        filled = self.batch.bounds[1:] > self.batch.bounds[:-1]
        if self.batch.occurrence is None:  # no block is a part
            return filled
        complete = np.array([block.part is None or block.part.last for block in self.batch.blocks], np.bool_)
        emitted: NDArray[np.bool_] = filled & ((self.tree.root != NOWHERE) | complete)
        return emitted

    def inference_at(self, block: int) -> Inference:
        """What the spans of one block share."""
        return self.inferences[int(self.inference[block])]
