"""What a reader of ETDumps returns, and the ledger of the events that it could not take."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from otel_bridge.etdump.limits import MAX_NAME_BYTES
from otel_bridge.model.events import EventBatch


@dataclass(frozen=True, slots=True)
class ETDump:
    """
    A file that has been read.

    batch             its profiling events; one block for each `RunData`, in file order, with or without events
    rejected          events that are not in `batch`, by reason (`Rejection`); with `batch` they are all events of the file
    first_rejection   the first of them in words, for the sender; None: there is none
    """

    batch: EventBatch
    rejected: Mapping[str, int]
    first_rejection: str | None


class Rejection(StrEnum):
    """Why an event is not in the batch."""

    DEBUG_EVENT = "debug_event"
    """A logged tensor or value: no profiling event."""
    ALLOCATION_EVENT = "allocation_event"
    """A tracked allocation: no profiling event."""
    EMPTY_EVENT = "empty_event"
    """An event of no type at all."""
    UNNAMED = "unnamed"
    """Neither a name nor a delegate debug identifier."""
    NOT_UTF8 = "not_utf8"
    """The name, or the identifier, is not UTF-8."""
    NAME_TOO_LONG = "name_too_long"
    """The name, or the identifier, is longer than `MAX_NAME_BYTES`."""
    CHAIN_OUT_OF_RANGE = "chain_out_of_range"
    """The chain index is below -1 or above 255."""


NO_PROFILING_EVENT = frozenset({Rejection.DEBUG_EVENT, Rejection.ALLOCATION_EVENT})
"""Nothing is wrong with these: they are counted, and described only where there is nothing worse."""


class Rejections:
    """The ledger of one file: events by reason, and the first one in words."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._fault: str | None = None
        self._other: str | None = None

    def add(self, reason: Rejection, block: int, event: int, found: int = 0) -> None:
        """Count event number `event` of block number `block`; `found` is the number of bytes, or the chain index."""
        self.counts[reason.value] = self.counts.get(reason.value, 0) + 1
        if reason in NO_PROFILING_EVENT:
            self._other = self._other or f"block {block}, event {event}: {_describe(reason, found)}"
        else:
            self._fault = self._fault or f"block {block}, event {event}: {_describe(reason, found)}"

    @property
    def first(self) -> str | None:
        """The first event with a fault; where there is none, the first that is no profiling event."""
        return self._fault or self._other


def _describe(reason: Rejection, found: int) -> str:
    """What was found, and the way out."""
    match reason:
        case Rejection.DEBUG_EVENT | Rejection.ALLOCATION_EVENT:
            return f"a {reason.value} gives no span; ExecuTorch's own tools read it"
        case Rejection.EMPTY_EVENT:
            return "it has no content; set one of profile_event, allocation_event and debug_event"
        case Rejection.UNNAMED:
            return "it has neither a name nor a delegate debug identifier; log it under one of them"
        case Rejection.NOT_UTF8:
            return f"its name or identifier ({found} bytes) is not UTF-8; log UTF-8 text, or an int identifier"
        case Rejection.NAME_TOO_LONG:
            return f"its name or identifier has {found} bytes; shorten it to {MAX_NAME_BYTES}, details belong in the metadata"
        case Rejection.CHAIN_OUT_OF_RANGE:
            return f"its chain index is {found}; write -1 (outside any instruction) or 0 to 255"
