"""
What durability costs.

* record      an event batch as bytes, and back: ns per event, bytes per event
* requests    a real `otel-bridge serve` for each `spool.durability`, fed in turns with requests of 256 events, 8 in flight
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import grpc
from bench_service import FIXTURES, SINK, _cpu_s, _cut, _send, _settle, requests_of
from bench_spans import prepare
from rounds import ratio, spread, take_turns
from support.processes import free_ports

from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import concatenate
from otel_bridge.spool.encode import decode, encode
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc
from otel_bridge.wire.codec import request_of

DURABILITIES = ("memory", "normal", "full")
EVENTS = 256
ROUNDS = 7
REQUESTS_A_ROUND = 300


def main() -> None:
    """Records, then requests."""
    measure_records()
    measure_requests()


def measure_records() -> None:
    """The encoding against the request's own, in one run."""
    print("  ns per event, median (min..max)")
    whole, _ = prepare("xnnpack", "run100.etdp")
    for events in (64, 256, 1024):
        batch = _cut(concatenate([whole, whole]), events)
        batch = replace(batch, streams=batch.streams[:1], blocks=tuple(replace(block, stream=0) for block in batch.blocks))
        body, request = encode(batch), request_of(batch).SerializeToString()
        subjects = {
            "encode": lambda batch=batch: encode(batch),
            "decode": lambda body=body: decode(body),
            "as a request": lambda batch=batch: request_of(batch).SerializeToString(),
        }
        took = take_turns(subjects, len(batch))
        shown = "   ".join(f"{name} {spread(values)}" for name, values in took.items())
        print(f"  {len(batch):5} events   {shown}   {len(body) / len(batch):.1f} B (request {len(request) / len(batch):.1f} B)")


def measure_requests() -> None:
    """One bridge for each durability, fed in turns."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        sink_port, *ports = free_ports(1 + 2 * len(DURABILITIES))
        stack.callback(_end, sink := subprocess.Popen([sys.executable, "-c", SINK, str(sink_port)]))
        bridges = {}
        for number, durability in enumerate(DURABILITIES):
            grpc_port, http_port = ports[2 * number : 2 * number + 2]
            process = _serve(Path(directory) / durability, durability, grpc_port, http_port, sink_port)
            stack.callback(_end, process)
            bridges[durability] = (process.pid, f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}")
        for _, address, _ in bridges.values():
            _upload(address)
        _print_rounds(bridges)
        assert sink.poll() is None


def _print_rounds(bridges: dict[str, tuple[int, str, str]]) -> None:
    requests = requests_of(EVENTS)
    sent = dict.fromkeys(bridges, 0)
    rates: dict[str, list[float]] = {durability: [] for durability in bridges}
    costs: dict[str, list[float]] = {durability: [] for durability in bridges}
    for turn in range(ROUNDS + 1):
        for durability, (pid, address, http) in bridges.items():
            cpu, begin = _cpu_s(pid), time.perf_counter()
            accepted = asyncio.run(_send(address, requests, REQUESTS_A_ROUND))
            sent[durability] += accepted
            _settle(http, sent[durability])
            if turn:  # the first one warms up
                rates[durability].append(accepted / (time.perf_counter() - begin))
                costs[durability].append((_cpu_s(pid) - cpu) / accepted * 1e6)
    print(f"  {EVENTS} events a request, {ROUNDS} rounds in turns, median (min..max)")
    for durability in bridges:
        slower = ratio(rates["memory"], rates[durability])
        print(
            f"  {durability:7} {spread(rates[durability], ',.0f')} events/s ({1 / slower:.2f} of memory)   "
            f"{spread(costs[durability], '.2f')} us of CPU an event "
            f"({statistics.median(costs[durability]) / statistics.median(costs['memory']):.2f})"
        )


def _serve(directory: Path, durability: str, grpc_port: int, http_port: int, sink_port: int) -> "subprocess.Popen[bytes]":
    directory.mkdir()
    (directory / "bridge.toml").write_text(f'[spool]\ndurability = "{durability}"\n')
    return subprocess.Popen(
        [
            sys.executable, "-m", "otel_bridge.cli.main", "serve", "--config", directory / "bridge.toml",
            "--grpc", f"127.0.0.1:{grpc_port}", "--http", f"127.0.0.1:{http_port}",
            "--otlp-endpoint", f"http://127.0.0.1:{sink_port}", "--data-dir", directory / "data",
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _upload(address: str) -> None:
    file = read_source((FIXTURES / "xnnpack" / "model.etrecord").read_bytes())
    file.name, file.version = "xnnpack", "1"
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        mapping_pb2_grpc.MappingServiceStub(channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()
