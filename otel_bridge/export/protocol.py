"""
The one verb of this room: send.

Invariants
* A payload is a serialised `ExportTraceServiceRequest`. Exporters send it as it is; only `halves` and `json_lines` look inside.
* `send` returns once the back end has answered that it took the payload. What it did not take of it stands in `Sent`.
* What `send` raises answers one question: would the same bytes sent again be taken? `BackEndUnavailable`: perhaps.
  `ExportRejected`: no. Nothing else is raised, but for cancellation.
* Retry, isolation and observation are wrappers around this protocol.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

TOO_LARGE = "export_too_large"
"""Reason of an `ExportRejected`: the payload is over the size limit of the back end."""

INVALID = "export_invalid"
"""Reason of an `ExportRejected`: the back end refuses what the payload says."""

EXHAUSTED = "export_exhausted"
"""Reason of an `ExportRejected`: the back end has no room and names no time, or finds the payload too large in odd words."""

PARTIAL_SUCCESS = "partial_success"
"""Why spans are lost that the back end refused within a payload that it took."""


@dataclass(frozen=True, slots=True)
class Sent:
    """
    A payload that was taken, in whole or in part.

    rejected_spans   spans of the payload that the back end refused for good
    message          why, or a warning if none was refused; from the back end, escaped and bounded; "": nothing to say
    refused          of these spans, those whose part was refused as a request of its own: (reason, spans); all others were
                     refused by OTLP partial success
    """

    rejected_spans: int = 0
    message: str = ""
    refused: tuple[tuple[str, int], ...] = ()

    def by_reason(self) -> Iterator[tuple[str, int]]:
        """The rejected spans, by reason."""
        yield from self.refused
        if partial := self.rejected_spans - sum(spans for _, spans in self.refused):
            yield PARTIAL_SUCCESS, partial


class Exporter(Protocol):
    """A way out."""

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """
        Send one serialised `ExportTraceServiceRequest`, all of it that tenant's where the back end is told of tenants.

        Raises BackEndUnavailable where a retry helps, after `retry_after_s` if the back end named a time, else ExportRejected.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and files. Calls under way fail; `send` must not be called again."""
        ...
