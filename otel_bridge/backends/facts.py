"""
What is known of ExecuTorch backends: how their identifiers are shortened, and what their times are worth.

Invariants
* A fact stands here with its source, or it is not known; an unknown backend is treated as `UNKNOWN`, never guessed at.
* Nothing here resolves: a rule says how to show an identifier or a time, not which operator it is.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from otel_bridge.model.events import Identifier


class TimeQuality(StrEnum):
    """What the times of a delegate's events are worth: the value of `executorch.time.quality`, left out when `MEASURED`."""

    MEASURED = "measured"
    LAID_OUT = "laid_out"
    """Durations are real, starts are laid end to end by the backend."""
    ESTIMATED = "estimated"
    """Both come from a cost model."""
    DURATION_ONLY = "duration_only"
    """There is a duration and no start."""
    FOREIGN_CLOCK = "foreign_clock"
    """Ticks of another clock than the host's."""
    UNKNOWN = "unknown"
    """The backend is not known: its ticks are believed only inside its call."""


_ORDINAL = re.compile(r"\s*#\d+$")


@dataclass(frozen=True, slots=True)
class Backend:
    """
    One backend.

    map_holds_handles   False: the values of its debug handle map are not debug handles, and are never read as such
    """

    time_quality: TimeQuality
    map_holds_handles: bool = True


BACKENDS = {
    # backends/xnnpack/runtime/profiling/XNNProfiler.cpp: whole microseconds, laid end to end from the start of the call
    "XnnpackBackend": Backend(TimeQuality.LAID_OUT),
    # backends/apple/coreml/runtime/sdk/model_event_logger_impl.mm: total time shared out by cost weights
    "CoreMLBackend": Backend(TimeQuality.ESTIMATED),
    # backends/qualcomm/runtime/backends/QnnProfiler.cpp: start 0, end the value
    "QnnBackend": Backend(TimeQuality.DURATION_ONLY),
    # backends/vulkan/runtime/vk_api/QueryPool.cpp: GPU ticks. Its map holds node ordinals (vulkan_preprocess.py)
    "VulkanBackend": Backend(TimeQuality.FOREIGN_CLOCK, map_holds_handles=False),
    # backends/nxp/runtime/NeutronBackend.cpp: ticks of the NPU
    "NeutronBackend": Backend(TimeQuality.FOREIGN_CLOCK),
    # backends/arm/runtime/VGFBackend.cpp: start_profiling_delegate and end_profiling_delegate around each phase
    "VgfBackend": Backend(TimeQuality.MEASURED),
}
"""By backend id, as `delegate_map[...]["name"]` gives it."""

UNKNOWN = Backend(TimeQuality.UNKNOWN)


def backend_of(delegate: str | None) -> Backend:
    """What is known of the backend of this id; None: not even the id is known."""
    return BACKENDS.get(delegate or "", UNKNOWN)


def shorten(identifier: Identifier) -> str:
    """
    An identifier as the name of a span: without the ordinal that makes it unique (`Conv #3` -> `Conv`).

    XNNPACK and delegates that follow `name#n` number equal names within one call; the number stays in
    `executorch.delegate.debug_id`. An integer has no other name than its number.
    """
    if isinstance(identifier, int):
        return f"id {identifier}"
    return _ORDINAL.sub("", identifier) or identifier
