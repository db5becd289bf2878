"""
The metadata of a batch: what its byte strings say, as attributes of spans.

Invariants
* Byte strings of a declared layout are read together, a field at a time, and say what each of them says alone. All others, and
  few of them, are read one by one, and remembered.
* A byte string is read once for each template that has it; a request has its own byte strings, so none is of two tenants.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from otel_bridge.metadata.layout import Layout
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch
from otel_bridge.pipeline.shown import Shown
from otel_bridge.spans import attributes as at
from otel_bridge.spans.compile import Template
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.scene import Metadata
from otel_bridge.spans.sheet import Sheet
from otel_bridge.spans.withholding import Withhold, show_all

_FEW = 16
"""Byte strings that are read one by one in less time than their columns take."""

_NONE = Metadata()

DeclaredAt = Callable[[int, str | None], bytes]
"""(row, delegate) -> the serialised `MetadataFormat` that the row's mapping has for the delegate; b"": none."""


class Readings:
    """
    What metadata say. One thread uses it at a time.

    decoders      how they are read
    shown_bytes   how much of what is shown is remembered
    withhold      what is shown of what they say: of a key all values, or none
    """

    def __init__(self, decoders: Decoders, shown_bytes: int, withhold: Withhold = show_all) -> None:
        self._decoders = decoders
        self._shown = Shown(shown_bytes, withhold)
        self._withhold = withhold

    def read(
        self, batch: EventBatch, templates: Sequence[Template], template: NDArray[np.int64], declared: DeclaredAt
    ) -> tuple[Metadata, NDArray[np.int64]]:
        """What the metadata of a batch say, and int64[n] the entry of each row; -1: it has none."""
        decoded = np.full(len(batch), -1)
        rows = batch.metadata.nonzero()[0] if len(batch.payloads) > 1 else decoded[:0]
        if not len(rows):
            return _NONE, decoded
        first, number = _distinct(template[rows], batch.metadata[rows])
        found = rows[first]  # a row of each entry
        tenants, tenant = _tenants(batch, found)
        sheets, order = [], []
        alone = np.ones(len(found), np.bool_)
        layout_of, layouts = self._layouts(batch, found, templates, template, declared, of_tenants=(tenants, tenant))
        for index, layout in enumerate(layouts):
            entries = np.flatnonzero(layout_of == index)
            columns, good = layout.read(_payloads_of(batch, found[entries]))
            if not good.any():
                continue
            keys = [at.METADATA_PREFIX + key for key in layout.types]
            visible = {key for key, _ in self._withhold(tuple((key, 0) for key in keys))}
            values = {key: column[good] for key, column in zip(keys, columns, strict=True) if key in visible}
            sheets.append(Sheet(values, int(good.sum())))
            order.append(entries[good])
            alone[entries[good]] = False
        single = []
        for row, whose in zip(found[alone].tolist(), tenant[alone].tolist(), strict=True):
            face = templates[template[row]].face
            delegate = face.resolution.delegate
            data = batch.payloads[batch.metadata[row]]
            content = self._decoders.decode(delegate, data, declared(row, delegate), tenants[whose])
            single.append(self._shown.of(content, face))
        entry = np.empty(len(found), np.int64)
        entry[np.concatenate((np.flatnonzero(alone), *order))] = np.arange(len(found))
        decoded[rows] = entry[number]
        return Metadata(single, sheets), decoded

    def _layouts(
        self,
        batch: EventBatch,
        rows: NDArray[np.int64],
        templates: Sequence[Template],
        template: NDArray[np.int64],
        declared: DeclaredAt,
        *,
        of_tenants: tuple[list[str], NDArray[np.int64]],
    ) -> tuple[NDArray[np.int64], list[Layout]]:
        """Of each row the index of the layout by which it is read with others; -1: it is read alone."""
        layouts: dict[Layout, int] = {}
        if len(rows) < _FEW:
            return np.full(len(rows), -1), []
        tenants, tenant = of_tenants
        first, kind = distinct([template[rows], tenant])  # a template is of one mapping, which several tenants may have
        of_kind = []
        known: dict[tuple[str | None, bytes, int], Layout | None] = {}
        for row, whose in zip(rows[first].tolist(), tenant[first].tolist(), strict=True):
            face = templates[template[row]].face
            layout = None
            if not any(key.startswith(at.METADATA_PREFIX) for key, _ in face.attributes):  # else it says some itself (Vulkan)
                delegate = face.resolution.delegate
                said = delegate, declared(row, delegate), whose
                if said not in known:
                    known[said] = self._decoders.layout(delegate, said[1], tenants[whose])
                layout = known[said]
            of_kind.append(-1 if layout is None else layouts.setdefault(layout, len(layouts)))
        layout_of = np.array(of_kind, np.int64)[kind]
        wanted = np.array([*(layout.size for layout in layouts), -1], np.int64)[layout_of]
        size = np.fromiter(map(len, _payloads_of(batch, rows)), np.int64, len(rows))
        return np.where(size == wanted, layout_of, -1), list(layouts)


def _payloads_of(batch: EventBatch, rows: NDArray[np.int64]) -> Sequence[bytes]:
    """The byte strings of rows. Mostly they stand in the order of the rows, and are cut out at once."""
    numbers = batch.metadata[rows]
    if len(numbers) and (numbers[1:] - numbers[:-1] == 1).all():
        return batch.payloads[numbers[0] : numbers[-1] + 1]
    return list(map(batch.payloads.__getitem__, numbers.tolist()))


def _tenants(batch: EventBatch, rows: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """The tenants of a batch, and int64[k] whose each of these rows is."""
    numbers = {tenant: number for number, tenant in enumerate(dict.fromkeys(stream.tenant for stream in batch.streams))}
    if len(numbers) == 1:
        return list(numbers), np.zeros(len(rows), np.int64)
    of_block = np.array([numbers[batch.streams[block.stream].tenant] for block in batch.blocks])
    return list(numbers), of_block[np.searchsorted(batch.bounds, rows, "right") - 1]


def _distinct(template: NDArray[np.int64], payload: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each template and payload, and which of them each row is like; mostly each row has its own payload."""
    if np.bincount(payload).max() == 1:
        every = np.arange(len(payload))
        return every, every
    return distinct([template, payload.astype(np.int64)])
