"""What the bridge's process costs. Safe to ask from the event loop: nothing here waits for a disk."""

import os
import time


def cpu_seconds() -> float:
    """Processor time of this process in user and system mode, all threads, in seconds."""
    return time.process_time()


def memory_rss_bytes() -> int | None:
    """Physical memory of this process in bytes; None where there is no /proc (proc(5), `statm`: second field, in pages)."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return int(os.pread(descriptor, 128, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(descriptor)
