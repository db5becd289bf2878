"""Whether a file has changed, without reading it. A file that is replaced has another inode, whatever its time and size."""

from pathlib import Path

FileState = tuple[int, int, int]
"""Inode, time of the last change in nanoseconds, size in bytes."""


def state_of(path: Path) -> FileState | None:
    """The state of the file that `path` leads to, through links; None: there is none that could be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
