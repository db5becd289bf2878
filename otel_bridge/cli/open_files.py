"""How many files and connections the process may have open."""

import logging
import resource

_log = logging.getLogger(__name__)

OTHER_FILES = 256
"""About what the bridge has open besides its connections."""


def raise_open_files(wanted: int) -> int:
    """
    Raise the soft limit to the hard one, and warn where that is less than `wanted`; the limit.

    A soft limit is often 1,024: an old habit of programs that use select(2), which the bridge does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < wanted:
        _log.warning("the bridge may open %d files; ingress.max_connections needs %d: raise `ulimit -n`", hard, wanted)
    return hard
