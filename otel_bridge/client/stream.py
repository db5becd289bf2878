"""
A stream: one run of one model in this process, and the numbers that name its traces.

Invariants
* The id is drawn once, at random. Positions are given to blocks in the order in which they end or are drained; sequence numbers
  to requests in the order in which they are made. Both only grow, so no two blocks have the same trace.
* Numbers are drawn under a lock that is held for an addition.
"""

import secrets
import threading
from collections.abc import Iterable, Mapping

from otel_bridge.model.stream import Anchor, Attributes, AttributeValue, Clock, ModelRef, Stream


class EventStream:
    """
    One run of one model.

    model            what ran; nothing known: its events are resolved by nobody
    resource         OpenTelemetry resource attributes of app and device
    clocks           clock 0 is the host's; its anchor comes with each recording
    runtime_version  version of ExecuTorch
    """

    def __init__(
        self,
        *,
        model: ModelRef,
        resource: Attributes = (),
        clocks: tuple[Clock, ...] = (Clock(),),
        runtime_version: str | None = None,
    ) -> None:
        self.stream_id = secrets.token_bytes(15) + b"\x01"  # never all zero
        self._model = model
        self._resource = resource
        self._clocks = clocks
        self._runtime_version = runtime_version
        self._lock = threading.Lock()
        self._next_position = self._next_sequence = 0

    def take_position(self) -> int:
        """The position of one more block."""
        return self.take_positions(1)

    def take_positions(self, count: int) -> int:
        """The position of the first of `count` more blocks."""
        with self._lock:
            first = self._next_position
            self._next_position += count
        return first

    def take_sequences(self, count: int) -> int:
        """The number of the first of `count` consecutive requests."""
        with self._lock:
            first = self._next_sequence
            self._next_sequence += count
        return first

    def model_stream(self, anchor: Anchor | None = None) -> Stream:
        """The stream as `model` has it, with the anchor of the host's clock."""
        clocks = self._clocks
        if anchor is not None:
            host = clocks[0]
            clocks = (Clock(host.numerator, host.denominator, host.counter_bits, anchor, host.name), *clocks[1:])
        return Stream(
            stream_id=self.stream_id,
            model=self._model,
            resource=self._resource,
            runtime_version=self._runtime_version,
            clocks=clocks,
        )


def model_of(model: str | None, build_id: str | None) -> ModelRef:
    """What ran, as NAME@VERSION, as build id, or both; the build id wins."""
    name, _, version = (model or "").partition("@")
    return ModelRef(sound_text(name) or None, sound_text(version), sound_text(build_id or "") or None)


def attributes_of(attributes: Mapping[str, object] | Iterable[tuple[str, object]]) -> Attributes:
    """Attributes in their order; a value that OpenTelemetry does not know is written as text: it costs no inference."""
    items = attributes.items() if isinstance(attributes, Mapping) else attributes
    return tuple((sound_text(str(key)), _value_of(value)) for key, value in items)


def _value_of(value: object) -> AttributeValue:
    match value:
        case bool() | float():
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case str():
            return sound_text(value)
        case _:
            try:
                return sound_text(str(value))
            except Exception:  # noqa: BLE001 - the object is the app's, and not worth an inference
                return f"<{type(value).__name__}>"


def sound_text(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates, as of file names, come out escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
