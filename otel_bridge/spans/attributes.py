"""
Every attribute name the bridge writes, with its meaning. The names are part of the product's interface.

Names follow OpenTelemetry's rules (lower case, dots between namespaces, plural for arrays); those without `executorch.`
are of the semantic conventions 1.44.0.
"""

from collections.abc import Iterable

from otel_bridge.model.stream import AttributeValue

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the semantic conventions that the resource attributes follow."""

Value = AttributeValue | tuple[str, ...] | tuple[int, ...]
"""A value of a span attribute: a scalar, or an array of one type."""

# Resource
SERVICE_NAME = "service.name"
"""The app; else the model's name; else `unknown_service:executorch`."""
MODEL_NAME = "executorch.model.name"
MODEL_VERSION = "executorch.model.version"
MODEL_BUILD_ID = "executorch.model.build_id"
MAPPING_ID = "executorch.mapping.id"
"""First 16 hex digits of the mapping's digest; absent where there is no mapping."""
RUNTIME_VERSION = "executorch.runtime.version"
TENANT = "otel_bridge.tenant"
"""Of the credential that sent the events; absent for the default tenant."""

# Spans
METHOD_NAME = "executorch.method.name"
INSTRUCTION_ID = "executorch.instruction.id"
CHAIN_INDEX = "executorch.chain.index"
"""Absent where 0."""
DELEGATE_NAME = "executorch.delegate.name"
"""Backend id, e.g. `XnnpackBackend`."""
DELEGATE_DEBUG_ID = "executorch.delegate.debug_id"
"""The identifier as text, on delegate events and only there."""
RESOLUTION_STATUS = "executorch.resolution.status"
RESOLUTION_RULE = "executorch.resolution.rule"
DEBUG_HANDLES = "executorch.debug_handles"
DEBUG_HANDLE_COUNT = "executorch.debug_handle_count"
"""Only where `executorch.debug_handles` was cut."""
OPERATOR_NAMES = "executorch.operator.names"
OPERATOR_ID = "executorch.operator.id"
"""Fingerprint of the first operator, equal in every build that has it; absent where it is not known which one ran."""
OPERATOR_COUNT = "executorch.operator.count"
"""Only where `executorch.operator.names` was cut."""
MODULE_PATH = "executorch.module.path"
CODE_FILE_PATH = "code.file.path"
CODE_LINE_NUMBER = "code.line.number"
TIME_QUALITY = "executorch.time.quality"
TIME_DURATION_NS = "executorch.time.duration_ns"
"""True duration, where the span's own is not."""
TIME_START_TICKS = "executorch.time.start_ticks"
"""Decimal text, since ticks reach 2^64; where the span does not lie where its ticks say."""
TIME_END_TICKS = "executorch.time.end_ticks"
TIME_UNIT = "executorch.time.unit"
TIME_CLOCK = "executorch.time.clock"
"""Name of the clock that counted the ticks, beside them; absent for the host's and where the sender gives no name."""
RUN_INDEX = "executorch.run.index"
CLOCK_CORRECTION_NS = "executorch.clock.correction_ns"
"""On the root: what was added to the device's wall clock."""
CLOCK_SOURCE = "executorch.clock.source"
"""On the root: what places the inference on the time axis, where that is not the sender's anchor."""
CLOCK_FAULT = "executorch.clock.fault"
"""On the root: why the sender's word for the time was not taken."""
DELEGATE_NODE_ID = "executorch.delegate.node_id"
"""Ordinal of the node in the delegate's own graph (Vulkan); it is no debug handle."""
COUNTER_PREFIX = "executorch.delegate.counter."
"""On a delegate call: a value that its delegate logged and that is no time. The key ends with the unit, where it is known."""
COUNTERS_REPEATED = "executorch.delegate.counters_repeated"
"""Keys, without the prefix, of counters that were logged several times in the call; the last value is shown."""
COUNTERS_LEFT_OUT = "executorch.delegate.counters_left_out"
"""How many counters are not shown: there were too many, or the value has more than 63 bits."""
METADATA_PREFIX = "executorch.delegate.metadata."
METADATA_VALUES = "executorch.delegate.metadata_values"
METADATA_RAW = "executorch.delegate.metadata_raw"
"""Hex digits."""
METADATA_ERROR = "executorch.delegate.metadata_error"
ROLLUP_EVENTS = "executorch.rollup.events"
"""On the root of an inference that was rolled up (spans/rollup.py): its events. The other names of a roll-up stand on spans."""
ROLLUP_COUNT = "executorch.rollup.count"
"""How many events the span stands for; absent where it stands for one, as all others do."""
ROLLUP_DURATION_NS = "executorch.rollup.duration_ns"
"""Sum of their true durations; of `(other)` the sum over those that lay directly in the parent."""
ROLLUP_UNTIMED = "executorch.rollup.untimed"
"""How many of those have no known duration, and so no part in the sum; absent where none."""
ROLLUP_METADATA_LEFT_OUT = "executorch.rollup.metadata_left_out"
"""How many of the events had metadata that are not shown, since they differ; absent where none."""
ERROR_CODE = "executorch.error.code"
"""The code that the sender gave (`executorch::runtime::Error`), on the root."""
ERROR_TYPE = "error.type"
"""Name of `executorch::runtime::Error`, or `_OTHER`."""

OWN_PREFIXES = (
    "executorch.model.",
    "executorch.mapping.",
    "executorch.runtime.",
    "executorch.method.",
    "executorch.instruction.",
    "executorch.chain.",
    "executorch.delegate.",
    "executorch.resolution.",
    "executorch.debug_handle",
    "executorch.operator.",
    "executorch.module.",
    "executorch.time.",
    "executorch.run.",
    "executorch.clock.",
    "executorch.error.",
    "executorch.rollup.",
    "otel_bridge.",
    "code.",
    "error.",
)
"""Namespaces that only the bridge writes: a key stands once on a span, and what it says is checked."""

MAX_HANDLES = 1000
MAX_OPERATORS = 100
MAX_OPERATOR_BYTES = 256
MAX_TEXT_BYTES = 2048
"""Tempo cuts longer strings by bytes (`max_attribute_bytes`)."""


class Cut(str):
    """A text that was cut, so that it can be counted wherever it goes."""

    __slots__ = ()


def cut(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """The text within `limit` bytes of UTF-8, cut at a character."""
    if text.isascii() and len(text) <= limit:
        return text
    encoded = text.encode("utf-8", "backslashreplace")
    return Cut(encoded[:limit].decode("utf-8", "ignore")) if len(encoded) > limit else encoded.decode("utf-8")


def count_cuts(attributes: Iterable[tuple[str, Value]]) -> int:
    """How many texts of some attributes were cut; an element of an array is a text of its own."""
    cuts = 0
    for _, value in attributes:
        if isinstance(value, tuple):
            cuts += sum([isinstance(text, Cut) for text in value])
        elif isinstance(value, Cut):
            cuts += 1
    return cuts
