"""How many files and connections the process may have open."""

import logging
import resource

_log = logging.getLogger(__name__)

OTHER_FILES = 256
"""About what the bridge has open besides its connections."""


def raise_open_files(wanted: int) -> None:
    """
    Raise the soft limit to `wanted`, or as far as the hard one allows, and warn where that is less.

    A soft limit is often 1,024: an old habit of programs that use select(2), which the bridge does not. It is raised no further
    than is of use: macOS refuses a limit without a bound.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < wanted:
        _log.warning("the bridge may open %d files; ingress.max_connections needs %d: raise `ulimit -n`", limit, wanted)
