"""Whether there is room for one more batch, and what its sender is told where there is none."""

from dataclasses import dataclass

from otel_bridge.errors import Draining, SpoolFull

RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    How much waits for the pipeline, and how long.

    max_bytes      on disk, as records are written
    memory_bytes   of these also in memory, as batches
    max_age_s      in line, since admission or since the lot let go; an older record is given up when its turn comes
    """

    max_bytes: int
    memory_bytes: int
    max_age_s: float


def check_room(held_bytes: int, size_bytes: int, max_bytes: int, *, closed: bool) -> None:
    """
    Return if a batch fits. One that is larger than the spool does when nothing else is there: the request limit bounds it.

    Raises `SpoolFull`, or `Draining` where the spool is closed.
    """
    if closed:
        raise Draining("the bridge is stopping; send to another instance, or try again when it is back")
    if held_bytes and held_bytes + size_bytes > max_bytes:
        raise SpoolFull(
            f"the spool holds {held_bytes} of {max_bytes} bytes and {size_bytes} more do not fit (spool.max_bytes); "
            "try again later",
            retry_after_s=RETRY_AFTER_S,
        )
