"""The event loop is not stopped for threads of gRPC; who chooses another policy has it."""

import os
import subprocess
import sys

import pytest

ASK = """
import os, threading
from otel_bridge.cli.scheduling import let_the_loop_run_on
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
{before}
done = threading.Event()
threads = [threading.Thread(target=done.wait, name=name) for name in ("spool", "_poll_wrapper")]
for thread in threads:
    thread.start()
{after}
let_the_loop_run_on()
print(*(os.sched_getscheduler(each) for each in (0, *(thread.native_id for thread in threads))))
done.set()
"""
DENIED = """
def deny(*_):
    raise PermissionError
os.sched_setscheduler = deny
"""


def policies(before: str = "", after: str = "") -> list[int]:
    """Of the event loop, the spool's thread and one of gRPC's, in a process of their own."""
    asked = ASK.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    return [int(each) for each in done.stdout.split()]


def test_usually() -> None:
    """Whom no request waits for is woken without stopping others."""
    assert policies() == [os.SCHED_OTHER, os.SCHED_OTHER, os.SCHED_BATCH]


@pytest.mark.parametrize(("policy", "after"), [("SCHED_IDLE", ""), ("SCHED_OTHER", DENIED)], ids=["chosen", "denied"])
def test_otherwise(policy: str, after: str) -> None:
    """Where another policy was chosen, or the system allows no change, all stay with theirs; that is no error."""
    assert policies(f"os.sched_setscheduler(0, os.{policy}, os.sched_param(0))", after) == [getattr(os, policy)] * 3
