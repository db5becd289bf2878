"""What is said of refused requests: all are counted; each reason has its own share of the log."""

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

Watch = Callable[[str, str], None]
"""Told the door ("grpc", "http") and the reason of a refusal."""


class Refusals:
    """Refused requests of both doors."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def note(self, door: str, reason: str, *, what: str, peer: str, who: str) -> None:
        """
        Count a refusal, and log it.

        what   the method or route
        peer   address of the sender
        who    name and id of the credential; "": not known
        """
        self._watch(door, reason)
        credential = f" with the credential {who}" if who else ""
        _log.warning("refused: %s of %s%s: %s", what, peer, credential, reason, extra={"kind": reason})
