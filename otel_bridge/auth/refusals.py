"""
What is said of refused requests: all are counted, few are logged.

Invariant: a line at most every `QUIET_S` seconds, however many are refused, and it says how many the others were.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

_log = logging.getLogger(__name__)

QUIET_S = 10.0

Watch = Callable[[str, str], None]
"""Told the door ("grpc", "http") and the reason of a refusal."""


class Refusals:
    """Refused requests of both doors; `clock` in seconds."""

    def __init__(self, watch: Watch, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._clock = clock
        self._silent: Counter[str] = Counter()
        self._quiet_until = float("-inf")

    def note(self, door: str, reason: str, *, what: str, peer: str, who: str) -> None:
        """
        Count a refusal, and log it unless that was just done.

        what   the method or route
        peer   address of the sender
        who    name and id of the credential; "": not known
        """
        self._watch(door, reason)
        now = self._clock()
        if now < self._quiet_until:
            self._silent[reason] += 1
            return
        self._quiet_until = now + QUIET_S
        others = ", ".join(f"{count} {each}" for each, count in sorted(self._silent.items()))
        self._silent.clear()
        _log.warning(
            "refused: %s of %s%s: %s%s",
            what,
            peer,
            f" with the credential {who}" if who else "",
            reason,
            f"; since the line before this one: {others}" if others else "",
        )
