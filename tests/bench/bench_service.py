"""
What a span costs end to end: CPU of a real `otel-bridge serve` process, from gRPC request to OTLP request, per span.

A sink process takes the spans and counts bytes; this process sends pre-serialised requests, a few in flight. CPU is user and
system time of the bridge process over the spans that it was given, after a warm-up. The spread is over rounds of one run.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
from bench_spans import FIXTURES, prepare
from rounds import spread
from support.processes import free_ports

from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import EventBatch, concatenate
from otel_bridge.model.stream import Anchor, Clock
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc, profiling_pb2
from otel_bridge.wire.codec import request_of

EVENTS = (64, 256, 1024)
ROUNDS = 5
IN_FLIGHT = 8
SPANS_A_ROUND = 100_000
SINK = """
import sys, grpc
from concurrent import futures
class Sink(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda body, context: b"")
server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 1 << 26)])
server.add_generic_rpc_handlers((Sink(),))
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
"""


def requests_of(events: int) -> list[bytes]:
    """Sixteen distinct requests of about so many events each, of real inferences, one device each."""
    whole, _ = prepare("xnnpack", "run100.etdp")
    made = []
    for device in range(16):
        batch = _cut(concatenate([whole, whole]), events)
        clock = Clock(anchor=Anchor(0, 10**18))
        stream = replace(batch.streams[0], stream_id=bytes([device + 1]) * 16, clocks=(clock,))
        batch = replace(batch, streams=(stream,), blocks=tuple(replace(block, stream=0) for block in batch.blocks))
        made.append(request_of(batch).SerializeToString())
    return made


def _cut(batch: EventBatch, events: int) -> EventBatch:
    """The first blocks that hold about so many events."""
    blocks = int((batch.bounds <= events).sum()) - 1
    rows = int(batch.bounds[blocks])
    names = ("kind", "instruction", "chain", "name", "start", "duration", "clock", "metadata")
    columns = {name: getattr(batch, name)[:rows] for name in names}
    blocks_kept = tuple(replace(block, position=position) for position, block in enumerate(batch.blocks[:blocks]))
    return replace(batch, blocks=blocks_kept, bounds=batch.bounds[: blocks + 1], **columns)


async def _send(address: str, requests: list[bytes], count: int) -> int:
    """Send `count` requests; events accepted."""
    accepted = 0
    left = iter(range(count))
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/otel_bridge.v1.ProfilingService/ExportEvents")

        async def worker() -> None:
            nonlocal accepted
            for number in left:
                while True:
                    try:
                        answer = await call(requests[number % len(requests)])
                    except grpc.aio.AioRpcError as error:  # the spool is full: come back, as a device would
                        if error.code() is not grpc.StatusCode.UNAVAILABLE:
                            raise
                        await asyncio.sleep(0.05)
                    else:
                        break
                accepted += profiling_pb2.ExportEventsResponse.FromString(answer).accepted

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return accepted


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _settle(http: str, events: int) -> None:
    """Wait until the bridge has emitted so many events."""
    while True:
        for line in httpx.get(f"http://{http}/metrics").text.splitlines():
            if line.startswith("otel_bridge_pipeline_emitted_events_total") and float(line.split()[-1]) >= events:
                return
        time.sleep(0.02)


def main() -> None:
    """CPU per span at several sizes of a request."""
    print(
        "us of CPU per span in the bridge process, median (min..max) of",
        ROUNDS,
        "rounds; 8 requests in flight; gRPC in and out",
    )
    with tempfile.TemporaryDirectory() as directory:
        grpc_port, http_port, sink_port = free_ports(3)
        sink = subprocess.Popen([sys.executable, "-c", SINK, str(sink_port)])
        bridge = subprocess.Popen(
            [
                sys.executable, "-m", "otel_bridge.cli.main", "serve", "--grpc", f"127.0.0.1:{grpc_port}", "--http",
                f"127.0.0.1:{http_port}", "--otlp-endpoint", f"http://127.0.0.1:{sink_port}", "--data-dir", directory,
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _measure(bridge.pid, f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}")
        finally:
            for process in (bridge, sink):
                process.terminate()
                process.wait()


def _measure(pid: int, address: str, http: str) -> None:
    file = read_source((FIXTURES / "xnnpack" / "model.etrecord").read_bytes())
    file.name, file.version = "xnnpack", "1"
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        mapping_pb2_grpc.MappingServiceStub(channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))
    sent = 0
    for events in EVENTS:
        requests = requests_of(events)
        size = sum(map(len, requests)) / len(requests)
        sent += asyncio.run(_send(address, requests, 32))
        _settle(http, sent)
        costs, rates = [], []
        for _ in range(ROUNDS):
            cpu, begin = _cpu_s(pid), time.perf_counter()
            accepted = asyncio.run(_send(address, requests, SPANS_A_ROUND // events))
            sent += accepted
            _settle(http, sent)
            costs.append((_cpu_s(pid) - cpu) / accepted * 1e6)
            rates.append(accepted / (time.perf_counter() - begin))
        print(f"  {events:5} events a request ({size:,.0f} B)   {spread(costs, '.2f')} us   {spread(rates, ',.0f')} spans/s")
