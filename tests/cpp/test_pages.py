"""The programs that docs/cpp-runtime.md and docs/microcontrollers.md show: they build, run, and are heard."""

import base64
import re
import subprocess
from pathlib import Path

import pytest
from support.cpp import HEADERS, SOURCES, build, run
from support.cpp_scripts import received
from support.engines import ROOT
from support.otlp_sink import OtlpSink
from support.pages import table
from support.service import running

from otel_bridge.v1 import profiling_pb2 as pb

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

SHOWN = ROOT / "docs" / "device"


def test_the_page_knows_every_drop() -> None:
    """The table of docs/cpp-runtime.md has the reasons of the header, in its order."""
    header = (HEADERS / "otel_bridge" / "drops.h").read_text()
    names = re.search(r"kNames\[kDropReasons\] = \{(.*?)\}", header, re.DOTALL)
    assert names
    assert [row["reason"] for row in table("docs/cpp-runtime.md", "reason", "means", "way out")] == re.findall(
        r'"(\w+)"', names[1]
    )


def test_the_app_is_heard(fixtures: Path, tmp_path: Path) -> None:
    """The app of docs/cpp-runtime.md runs a model twenty times, and each inference is a span below the app's own."""
    app = build(tmp_path, [SHOWN / "app.cpp"], wheel=True)
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        done = subprocess.run([app, fixtures / "xnnpack" / "model.pte", service.grpc], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        service.settle()
        spans = service.spans("camera")
    joined = [span for span in spans if span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"]
    assert len([span for span in joined if span.parent_span_id.hex() == "b7ad6b7169203331"]) == 20
    assert len({span.span_id for span in spans}) == len(spans)


def test_the_firmware_is_heard(tmp_path: Path) -> None:
    """The firmware of docs/microcontrollers.md, without a host's clocks, writes each inference to the UART as one block."""
    sources = [SHOWN / "firmware.cpp", SOURCES / "board.cpp"]
    log = run(build(tmp_path, sources, sanitize=("address", "undefined"))).decode("ascii")
    blocks = re.findall(r"-----BEGIN OTEL BRIDGE EVENTS-----\n(.*?)\n=", log, re.DOTALL)
    assert log.count("I inference done") == len(blocks) == 2
    bodies = [base64.b64decode(block.replace("\n", "")) for block in blocks]
    heard = received(bodies)
    assert [len(block.rows) for block in heard.blocks.values()] == [3, 3]
    clock = pb.ExportEventsRequest.FromString(bodies[0]).stream.clocks[0]
    assert (clock.numerator, clock.denominator, clock.counter_bits) == (10**9, 160 * 10**6, 32)
    assert clock.anchor_unix_ns == 0
