"""Three readers of ETDumps, held to one another."""

import re
from collections.abc import Callable

from support.batches import differences

from otel_bridge.errors import MalformedETDump
from otel_bridge.etdump.bulk import read_at_once
from otel_bridge.etdump.limits import open_frame
from otel_bridge.etdump.read import read
from otel_bridge.etdump.reference import read_reference
from otel_bridge.etdump.result import ETDump
from otel_bridge.model.stream import Stream

STREAM = Stream(stream_id=bytes(range(16)))


def agreed_outcome(data: bytes) -> ETDump | MalformedETDump:
    """What both readers make of a file, after the check that they do agree."""
    fast, reference = _outcome(read, data), _outcome(read_reference, data)
    _check_at_once(data, fast)
    if isinstance(fast, ETDump):
        assert isinstance(reference, ETDump), f"only the fast reader accepts it; the other says: {reference}"
        assert differences(fast.batch, reference.batch) == []
        assert fast.rejected == reference.rejected
        assert fast.first_rejection == reference.first_rejection
    elif isinstance(reference, ETDump):
        # In this alone the fast reader is stricter: it reads a table in one go, and a vtable whole.
        assert re.search("its fields overlap|a vtable, byte [0-9]+: it passes the end", str(fast))
    return fast


def _check_at_once(data: bytes, fast: ETDump | MalformedETDump) -> None:
    """The reader of large files, which takes files of any size, leaves this one alone or makes the same of it."""
    try:
        at_once = read_at_once(open_frame(data), STREAM)
    except MalformedETDump:
        return
    if at_once is not None:
        assert isinstance(fast, ETDump), f"only the reader of large files accepts it; the other says: {fast}"
        assert differences(at_once.batch, fast.batch) == []
        assert (at_once.rejected, at_once.first_rejection) == (fast.rejected, fast.first_rejection)
        assert list(at_once.rejected) == list(fast.rejected)


def _outcome(reader: Callable[[bytes, Stream], ETDump], data: bytes) -> ETDump | MalformedETDump:
    try:
        return reader(data, STREAM)
    except MalformedETDump as refusal:
        return refusal
