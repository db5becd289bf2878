"""
What a span costs end to end: CPU of a real `otel-bridge serve` process, from gRPC request to OTLP request, per span.

A sink process takes the spans; this process sends pre-serialised requests, a few in flight. CPU is user and system time of the
bridge process over the spans that it was given, after a warm-up. Sizes take turns in every round. What the sink last took in a
round is compared, span by span, with what the same requests give when they are resolved here.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import httpx
from loads import RULES, mapping_file, prepare, requests_of
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rounds import Figure, ratio, spread
from support.processes import free_ports

from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc, profiling_pb2
from otel_bridge.wire.admission import Receipt, admit_events
from otel_bridge.wire.frame import Frame

MODEL, CAPTURE = "xnn_transformer", "run10.etdp"
EVENTS = (16, 64, 256, 1024, 8192)
ROUNDS = 5
IN_FLIGHT = 8
SPANS_A_ROUND = 60_000
SINK = """
import sys, grpc
from concurrent import futures
class Sink(grpc.GenericRpcHandler):
    last = b""
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.tell if details.method == "/bench/Last" else self.take)
    def take(self, body, context):
        self.last = body
        return b""
    def tell(self, body, context):
        return self.last
server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 1 << 26)])
server.add_generic_rpc_handlers((Sink(),))
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
"""


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
            if line.startswith("otel_bridge_emitted_events_total") and float(line.split()[-1]) >= events:
                return
        time.sleep(0.02)


def main() -> list[Figure]:
    """CPU per span at several sizes of a request."""
    print(
        f"  us of CPU a span in the bridge process, median (min..max) of {ROUNDS} rounds; {IN_FLIGHT} requests in flight; gRPC"
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
            addresses = [f"127.0.0.1:{port}" for port in (grpc_port, http_port, sink_port)]
            return _measure(bridge.pid, *addresses)
        finally:
            for process in (bridge, sink):
                process.terminate()
                process.wait()


def _measure(pid: int, address: str, http: str, sink: str) -> list[Figure]:
    build = _put_mapping(address)
    requests = {events: requests_of(MODEL, CAPTURE, events, build) for events in EVENTS}
    expected = {events: _spans_of(requests[events], build) for events in EVENTS}
    sent = 0
    for events in EVENTS:
        sent += asyncio.run(_send(address, requests[events], 32))
        _settle(http, sent)
    costs: dict[int, list[float]] = {events: [] for events in EVENTS}
    rates: dict[int, list[float]] = {events: [] for events in EVENTS}
    for _ in range(ROUNDS):
        for events in EVENTS:
            cpu, begin = _cpu_s(pid), time.perf_counter()
            accepted = asyncio.run(_send(address, requests[events], SPANS_A_ROUND // events))
            sent += accepted
            _settle(http, sent)
            costs[events].append((_cpu_s(pid) - cpu) / accepted * 1e6)
            rates[events].append(accepted / (time.perf_counter() - begin))
            _check_sample(sink, expected[events])
    for events in EVENTS:
        size = sum(map(len, requests[events])) / len(requests[events])
        print(
            f"    {events:5} events a request ({size:,.0f} B)   {spread(costs[events], '.2f')} us   "
            f"{spread(rates[events], ',.0f')} spans/s   {ratio(costs[events], costs[EVENTS[-1]]):.1f}x the largest request's"
        )
    return [Figure(f"{events}/cpu", "us/span", costs[events]) for events in EVENTS] + [
        Figure(f"{events}/rate", "spans/s", rates[events]) for events in EVENTS
    ]


def _put_mapping(address: str) -> str:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        put = mapping_pb2_grpc.MappingServiceStub(channel).PutMapping(mapping_pb2.PutMappingRequest(file=mapping_file(MODEL)))
    return put.build_id


def _spans_of(requests: list[bytes], build: str) -> set[bytes]:
    """The spans that these requests give, serialised."""
    _, stages = prepare(MODEL, CAPTURE)
    receipt = Receipt(time.time_ns())
    batches = [admit_events(Frame.FromString(body), body, receipt, RULES, lambda *_: build).batch for body in requests]
    return {span for batch in batches for payload in assemble(stages.run(batch), 1 << 20) for span in _spans(payload.data)}


def _spans(data: bytes) -> list[bytes]:
    request = ExportTraceServiceRequest.FromString(data)
    scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
    return [span.SerializeToString(deterministic=True) for scope in scopes for span in scope.spans]


def _check_sample(sink: str, expected: set[bytes]) -> None:
    with grpc.insecure_channel(sink, options=[("grpc.max_receive_message_length", 1 << 26)]) as channel:
        arrived = _spans(channel.unary_unary("/bench/Last")(b"", timeout=10))
    if not arrived or not expected.issuperset(arrived):
        raise SystemExit("the sink took spans that these requests do not give")
