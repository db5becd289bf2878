"""Comparing batches of events: `EventBatch` holds arrays, which `==` does not compare as one."""

from dataclasses import fields, replace

import numpy as np

from otel_bridge.model.events import EventBatch


def differences(a: EventBatch, b: EventBatch) -> list[str]:
    """Names of the fields in which two batches differ: values, order, dtype or shape. Empty: they are equal."""
    return [
        field.name
        for field in fields(EventBatch)
        if field.compare and not _equal(getattr(a, field.name), getattr(b, field.name))
    ]


def equal_batches(a: EventBatch, b: EventBatch) -> bool:
    """Whether all tables and columns are equal, also in order, dtype and shape."""
    return not differences(a, b)


def timeless(batch: EventBatch) -> EventBatch:
    """The batch without the moment of its receipt."""
    return replace(batch, streams=tuple(replace(each, received_ns=0, ended_ns=0, latest_ns=0) for each in batch.streams))


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    # Types, too: in the table of names 1 == True.
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a == b and [type(item) for item in a] == [type(item) for item in b]
    return a == b
