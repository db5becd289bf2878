"""
What the C library does with memory that a pass has given back.

A pass writes some megabytes and frees them. glibc returns blocks of that size to the kernel at once, and takes them again for
the next pass: the kernel then clears each page anew, which costs more than writing the spans (docs/performance.md). So the
process is asked to keep what it frees, up to a bound; and, where memory is short, to give back all of it.
"""

import ctypes
from collections.abc import Callable
from typing import Any

# malloc.h of glibc; both are part of its interface.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

KEPT_BYTES = 64 << 20
"""How much freed memory at the end of a heap is kept; what is beyond goes back to the kernel."""
_HEAP_BYTES = 32 << 20
"""Blocks up to this come from a heap, not from the kernel: the most that glibc takes."""


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed; whether it does. To be called once, when the process starts to serve."""
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))


def give_back_memory() -> None:
    """Ask the C library to give what it keeps back to the kernel. Takes some milliseconds."""
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
