"""
A clock for how long records have waited: it goes on over restarts, and does not follow a wall clock that is set.

While the process runs it is the monotonic clock. At a start, the time that the wall clock says has passed since the last
note is added (file.py), unless that cannot be: a wall clock that went back, or that skipped more than `MAX_GAP_NS`, was set.
"""

import time
from collections.abc import Callable

MAX_GAP_NS = 7 * 86_400 * 10**9
"""A longer time between two processes is not believed, and counts as none."""


class AgeClock:
    """
    Counts on from the last note.

    age_ns, noted_ns   what this clock and the wall clock said then; both 0: there was none
    """

    def __init__(
        self,
        age_ns: int,
        noted_ns: int,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        gap = wall_ns() - noted_ns
        self.is_believed = not noted_ns or 0 <= gap <= MAX_GAP_NS
        self._offset_ns = (age_ns + gap if self.is_believed else age_ns) - monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since some moment that is the same for all processes on one file."""
        return self._monotonic_ns() + self._offset_ns

    def wall_ns(self) -> int:
        """What the wall clock says, for the note of a commit."""
        return self._wall_ns()
