"""How the kernel shares out the processor among the threads of the process, and of others."""

import contextlib
import os
import sys


def run_on_when_others_wake() -> None:
    """
    Ask the kernel not to stop a thread of the process because another thread wakes: SCHED_BATCH of Linux, sched(7).

    Each request wakes threads of gRPC, of the spool and of other programs; whatever was stopped for them goes on with cold
    caches. The share of each thread stays as it is, and so does a policy that somebody has chosen. Threads and processes that
    start later have the policy too. Without effect where the system has no such policy, or allows none.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
