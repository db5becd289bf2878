"""Which of the bridge's own spans are kept."""

import random
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes


class Share(Sampler):
    """
    A share of all requests, and what they cause.

    Not by trace id, and not because a parent in another process was sampled: both are the sender's to choose, and a fleet that
    asks to be traced would cost whatever it likes. A parent that was not sampled is not: its trace would hold nothing else.

    ratio   from 0 to 1
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def should_sample(  # noqa: PLR0917 - the interface's signature
        self,
        parent_context: Context | None,
        trace_id: int,  # noqa: ARG002 - the interface has it
        name: str,  # noqa: ARG002 - the interface has it
        kind: SpanKind | None = None,  # noqa: ARG002 - the interface has it
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,  # noqa: ARG002 - the interface has it
    ) -> SamplingResult:
        """Keep a span, or do not."""
        parent = get_current_span(parent_context).get_span_context()
        if not parent.is_valid:
            kept = bool(links) or self._draw()
        elif parent.is_remote:
            kept = parent.trace_flags.sampled and self._draw()
        else:
            kept = parent.trace_flags.sampled
        decision = Decision.RECORD_AND_SAMPLE if kept else Decision.DROP
        return SamplingResult(decision, attributes, parent.trace_state)

    def get_description(self) -> str:
        """What the SDK calls it."""
        return f"Share({self._ratio:g})"

    def _draw(self) -> bool:
        return random.random() < self._ratio  # noqa: S311 - no secret
