"""
An app with a client that has a buffer on disk, to be killed or crowded by a test.

Usage: buffered_app.py SERVER BUFFER INFERENCES [MAX_FILE_BYTES]
It records inferences, prints "buffered EVENTS" once all of them are in the buffer or accepted, and then waits to be ended.
With MAX_FILE_BYTES no file of it grows beyond that, as on a full disk.
"""

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from support.inferences import QUICK, infer

from otel_bridge.client import BridgeClient, EventTracer


def main(server: str, buffer: str, inferences: str, max_file_bytes: str = "") -> None:
    """Record, and wait."""
    if max_file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_file_bytes), resource.RLIM_INFINITY))
    settings = replace(QUICK, buffer=Path(buffer), batch_events=8, retry_max_s=0.05)
    client = BridgeClient(server, resource={"service.name": "app"}, settings=settings)
    tracer = EventTracer(client)
    recorded = sum(infer(tracer) for _ in range(int(inferences)))
    while client._sender.intake.events or client._sender._sealing_events:
        time.sleep(0.005)
    print("buffered", recorded, flush=True)  # noqa: T201 - the test reads it
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
