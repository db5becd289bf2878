"""
What the C library does with memory that a pass has given back.

A pass writes some megabytes and frees them. glibc returns blocks of that size to the kernel at once, and takes them again for
the next pass: the kernel then clears each page anew, which costs more than writing the spans (docs/performance.md). So the
process is asked to keep what it frees, up to a bound.
"""

import ctypes

# malloc.h of glibc; both are part of its interface.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

KEPT_BYTES = 64 << 20
"""How much freed memory at the end of a heap is kept; what is beyond goes back to the kernel."""
_HEAP_BYTES = 32 << 20
"""Blocks up to this come from a heap, not from the kernel: the most that glibc takes."""


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed; whether it does. To be called once, when the process starts to serve."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc: musl and macOS have their own ways, and no such call
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
