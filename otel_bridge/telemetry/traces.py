"""
The bridge's own spans: what rooms open them with.

Invariants
* Off, nothing is made: opening costs a comparison, and the way in and out is not longer by a frame.
* What is traced is decided once, where a request comes in. What that request causes in this process follows: its children, and
  the haul that takes its events to the back end, which links to it, since a haul holds the events of many.
* A request's `traceparent` parents its span and nothing else: it cannot make the bridge trace more than the settings say
  (sampling.py), and one that is not W3C's is as good as none.
* Nothing is traced of how these spans leave.
* What is remembered between the two halves is bounded, and only ids.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACEPARENT = "traceparent"
"""Header and metadata key (https://www.w3.org/TR/trace-context-2/)."""

MAX_REMEMBERED = 4096
"""Requests whose spans are linked to once their events leave; of more, the oldest are not."""

_NOTHING: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)
_PROPAGATOR = TraceContextTextMapPropagator()

Attributes = Mapping[str, str | int]


class Traces:
    """
    Opens spans. For one event loop, and threads that it starts by `asyncio.to_thread`.

    tracer   makes them; None: there are none
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        self._requests: OrderedDict[Hashable, SpanContext] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether any request may be traced."""
        return self._tracer is not None

    def request(self, name: str, traceparent: str | None, attributes: Attributes) -> AbstractContextManager[Span]:
        """A request that came in, from here to its answer."""
        if self._tracer is None:
            return _NOTHING
        parent = _PROPAGATOR.extract({TRACEPARENT: traceparent} if traceparent else {}, Context())
        return self._tracer.start_as_current_span(
            name,
            parent,
            SpanKind.SERVER,
            attributes,
            record_exception=False,  # whoever answers says how it ended
            set_status_on_exception=False,
        )

    def step(self, name: str, attributes: Attributes | None = None) -> AbstractContextManager[Span]:
        """A part of what the current span is about; nothing where that is not traced."""
        if self._tracer is None or not trace.get_current_span().get_span_context().trace_flags.sampled:
            return _NOTHING
        return self._tracer.start_as_current_span(name, attributes=attributes)

    def remember(self, keys: Iterable[Hashable]) -> None:
        """The events of these keys came by the current request: the haul that has them links to it, if it is traced."""
        if self._tracer is None:
            return
        context = trace.get_current_span().get_span_context()
        if not context.trace_flags.sampled:
            return
        for key in keys:
            self._requests[key] = context
            self._requests.move_to_end(key)
            if len(self._requests) > MAX_REMEMBERED:
                self._requests.popitem(last=False)

    def haul(self, name: str, keys: Iterable[Hashable], attributes: Attributes) -> AbstractContextManager[Span]:
        """The way of events to the back end: traced where a traced request brought some of them, and linked to each."""
        if self._tracer is None or not self._requests:
            return _NOTHING
        found = {context.span_id: context for key in keys if (context := self._requests.get(key)) is not None}
        if not found:
            return _NOTHING
        links = [Link(context) for context in found.values()]
        return self._tracer.start_as_current_span(name, Context(), SpanKind.INTERNAL, attributes, links)


SILENT = Traces()
"""Opens nothing."""
