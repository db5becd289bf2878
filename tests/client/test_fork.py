"""Processes that fork: the child's copy of a client is inert, and the parent's works on."""

import subprocess
import sys
import textwrap
from pathlib import Path

from support.engines import ROOT
from support.faulty_bridge import FaultyBridge
from support.inferences import positions_of

PROGRAM = """
import os
import sys
from dataclasses import replace
from pathlib import Path

from support.inferences import QUICK, infer

from otel_bridge.client import BridgeClient, ClientStats, EventTracer

settings = replace(QUICK, buffer=Path(sys.argv[2]))
client = BridgeClient(sys.argv[1], settings=settings)
tracer = EventTracer(client)
infer(tracer)
assert client.flush(30)
tracer.create_event_block("Execute")  # open while the process forks
tracer.log_profiling_delegate("x", None, 1, 2)
{hold}
child = os.fork()
if child == 0:
    for _ in range(3):
        infer(tracer)
    tracer.close()
    assert client.flush(30)  # waits for nothing
    assert client.stats == ClientStats()
    with BridgeClient(sys.argv[1], settings=replace(QUICK, buffer=None)) as own:
        infer(EventTracer(own))
        done = own.flush(30)
    client.close()
    sys.exit(0 if done else 1)
{release}
assert os.waitpid(child, 0)[1] == 0
infer(tracer)
assert client.flush(30)
assert client.stats.accepted == client.stats.recorded == 9, client.stats
client.close()
"""


def run_program(bridge: FaultyBridge, tmp_path: Path, *, hold: str = "", release: str = "") -> None:
    """Run it, with something that is held while it forks."""
    program = textwrap.dedent(PROGRAM).format(hold=hold, release=release)
    command = [sys.executable, "-c", program, bridge.address, tmp_path / "buffer"]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "GRPC_ENABLE_FORK_SUPPORT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_the_childs_copy_is_inert(bridge: FaultyBridge, tmp_path: Path) -> None:
    """The child loses nothing of the parent's and sends nothing of it; a client that it makes itself sends its own."""
    run_program(bridge, tmp_path)
    streams = [stream for stream, _ in positions_of(bridge.taken)]
    assert sorted(streams.count(stream) for stream in set(streams)) == [1, 3]


def test_locks_that_were_held(bridge: FaultyBridge, tmp_path: Path) -> None:
    """A lock that another thread held when the process forked stops nobody in the child."""
    hold = "client._sender.intake._lock.acquire(); client._counters._lock.acquire()"
    release = "client._sender.intake._lock.release(); client._counters._lock.release()"
    run_program(bridge, tmp_path, hold=hold, release=release)
