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

from bench_service import CAPTURE, MODEL, SINK, _cpu_s, _put_mapping, _send, _settle
from loads import _cut, prepare, requests_of
from rounds import Figure, ratio, spread, take_turns
from support.processes import free_ports

from otel_bridge.model.events import concatenate
from otel_bridge.spool.encode import decode, encode
from otel_bridge.wire.codec import request_of

DURABILITIES = ("memory", "normal", "full")
EVENTS = 256
ROUNDS = 7
REQUESTS_A_ROUND = 300


def main() -> list[Figure]:
    """Records, then requests."""
    return measure_records() + measure_requests()


def measure_records() -> list[Figure]:
    """The encoding against the request's own, in one run."""
    print("  ns per event, median (min..max)")
    whole, _ = prepare("xnnpack", "run100.etdp")
    figures = []
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
        figures += [Figure(f"{len(batch)}/{name}", "ns/event", values) for name, values in took.items()]
    return figures


def measure_requests() -> list[Figure]:
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
        (build,) = {_put_mapping(address) for _, address, _ in bridges.values()}
        figures = _measure_rounds(bridges, requests_of(MODEL, CAPTURE, EVENTS, build))
        assert sink.poll() is None
    return figures


def _measure_rounds(bridges: dict[str, tuple[int, str, str]], requests: list[bytes]) -> list[Figure]:
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
    return [Figure(f"{durability}/cpu", "us/event", values) for durability, values in costs.items()] + [
        Figure(f"{durability}/rate", "events/s", values) for durability, values in rates.items()
    ]


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


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()
