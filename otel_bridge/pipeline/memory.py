"""
What the C library does with memory that a pass has given back, and how often the interpreter looks for cycles.

A pass writes some megabytes and frees them. glibc returns blocks of that size to the kernel at once, and takes them again for
the next pass: the kernel then clears each page anew, which costs more than writing the spans (docs/performance.md). So the
process is asked to keep what it frees, up to a bound; and, where memory is short, to give back all of it.

The interpreter looks for cycles each time that 700 objects more are there than went: with each few requests, and in vain, since
neither requests nor passes make any that hold much (wire/call.py). So it is asked to look less often, and not among what is
there for good.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

# malloc.h of glibc; both are part of its interface.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

KEPT_BYTES = 64 << 20
"""How much freed memory at the end of a heap is kept; what is beyond goes back to the kernel."""
_HEAP_BYTES = 32 << 20
"""Blocks up to this come from a heap, not from the kernel: the most that glibc takes."""
_OBJECTS_PER_LOOK = 20_000
"""Some hundred bytes each: what waits to be looked at is some megabytes."""


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed; whether it does. To be called once, when the process starts to serve."""
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))


def look_for_cycles_less() -> None:
    """Let the interpreter collect less often, and leave out what is there now. To be called once, when all is started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_LOOK)


def give_back_memory() -> None:
    """Let go of what only cycles hold, and ask the C library to give back what it keeps. Takes some milliseconds."""
    gc.collect()
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., Any] | None:
    """A function of glibc; None on musl and macOS, which have their own ways, and no such calls."""
    try:
        function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
