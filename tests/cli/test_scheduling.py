"""A bridge is not stopped for whatever wakes beside it; who chooses another policy has it."""

import os
import subprocess
import sys

import pytest

ASK = """
import os, threading
from otel_bridge.cli.scheduling import run_on_when_others_wake
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
{before}
run_on_when_others_wake()
found = [os.sched_getscheduler(0)]
thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(*found)
"""
DENIED = """
def deny(*_):
    raise PermissionError
os.sched_setscheduler = deny
"""


def policies(before: str = "") -> list[int]:
    """Of a process, and of a thread that it starts afterwards."""
    done = subprocess.run([sys.executable, "-c", ASK.format(before=before)], check=True, capture_output=True, text=True)
    return [int(each) for each in done.stdout.split()]


@pytest.mark.parametrize(
    ("before", "policy"),
    [
        ("", os.SCHED_BATCH),
        ("os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))", os.SCHED_IDLE),
        (DENIED, os.SCHED_OTHER),
    ],
    ids=["usual", "chosen", "denied"],
)
def test_policy(before: str, policy: int) -> None:
    """It is SCHED_BATCH, in threads too, but where another was chosen, or the system allows none; that is no error."""
    assert policies(before) == [policy] * 2
