"""How the kernel shares out the processor among the threads of the process."""

import contextlib
import os
import sys
import threading
from pathlib import Path

_AWAITED = frozenset({"MainThread", "spool"})
"""Names of the threads that each request waits for: the event loop, and the spool's (spool/commits.py)."""


def let_the_loop_run_on() -> None:
    """
    Ask the kernel not to stop the event loop because a thread of gRPC wakes: SCHED_BATCH of Linux, sched(7).

    To be called once these threads are there. Each message wakes some of them, and what was stopped for it goes on with cold
    caches. The share of each thread stays as it is. Threads that requests wait for keep the usual policy: beside programs that
    compute they would have their turn later, twice for each commit of the spool. A policy that somebody has chosen stays, too.
    Without effect where the system has no such policy, or allows none.
    """
    if sys.platform != "linux":
        return
    awaited = {thread.native_id for thread in threading.enumerate() if thread.name in _AWAITED}
    with contextlib.suppress(OSError):  # no /proc is here
        for task in Path("/proc/self/task").iterdir():
            if int(task.name) not in awaited:
                _let_wait(int(task.name))


def _let_wait(thread: int) -> None:
    with contextlib.suppress(OSError):  # it has ended meanwhile, or it is not allowed
        if os.sched_getscheduler(thread) == os.SCHED_OTHER:
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
