"""
What is made of files, made again when they change: certificates and tokens are rotated while the bridge runs.

Invariants
* The first reading raises; later ones do not. While the files cannot be used, what was made last is used: a moment between two
  writes is no outage, and neither is a certificate that has its new key a second later.
* A change is noticed when somebody asks, whether a file was written, replaced, or is reached by another link (as Kubernetes
  does it). Nothing runs in between.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from otel_bridge.errors import ConfigError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Reloaded(Generic[T]):
    """
    What `read` makes of `paths`. May be used from several threads.

    read   raises ConfigError where the files cannot be used

    Raises ConfigError.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        self._paths = paths
        self._read = read
        self._lock = Lock()
        self._is_stale = False
        self._seen = self._look()  # before reading: what is written meanwhile is seen the next time
        self._value = read()

    @property
    def is_fixed(self) -> bool:
        """Whether there are no files, so that nothing ever changes."""
        return not self._paths

    @property
    def value(self) -> T:
        """What the files held when they were last asked for."""
        return self._value

    def refresh(self) -> T:
        """What the files hold now. Asks the file system, and reads the files if they changed: not for an event loop."""
        with self._lock:
            seen = self._look()
            if seen == self._seen:
                self._is_stale = False
                return self._value
            try:
                self._value = self._read()
            except ConfigError as error:
                if not self._is_stale:
                    _log.warning("%s; what was read before is used", error)
                self._is_stale = True
            else:
                self._seen = seen
                self._is_stale = False
                _log.info("%s changed, and was read again", " and ".join(map(str, self._paths)))
            return self._value

    def _look(self) -> tuple[object, ...]:
        return tuple(_look(path) for path in self._paths)


def _look(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
