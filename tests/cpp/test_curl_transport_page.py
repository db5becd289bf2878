"""The program and the tables of docs/cpp-transports.md."""

import os
import re
import subprocess
from pathlib import Path

from support.certificates import make_certificates
from support.cpp import HEADERS, build
from support.engines import ROOT, require
from support.events_peer import counts
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.pages import table

from otel_bridge.export.otlp_grpc import VERDICTS, Verdict

PAGE = "docs/cpp-transports.md"


def test_a_file_is_forwarded(tmp_path: Path) -> None:
    """The program sends each request of a file over TLS: again after a 503, not after a 400; and says what came of it."""
    libraries = subprocess.run([require("libcurl"), "--libs"], capture_output=True, text=True, check=True).stdout.split()
    made = make_certificates(tmp_path)
    program = build(tmp_path, [ROOT / "docs" / "device" / "forward.cpp"], libraries=libraries)
    requests = [b"x" * 5, b"y" * 300, b"z"]
    events = tmp_path / "events.bin"
    events.write_bytes(b"\x05" + requests[0] + b"\xac\x02" + requests[1] + b"\x01" + requests[2])
    with OtlpSink(tls=made) as sink:
        sink.answers += [
            counts(3),
            Answer.http_failure(503, "full"),
            counts(2, "bad", unnamed=1),
            Answer.http_failure(400, "no"),
        ]
        url = sink.http_endpoint.replace("/v1/traces", "/v1/events")
        command = [program, events, url, made.authority]
        environment = {**os.environ, "BRIDGE_TOKEN": "s3cret"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "5 events taken, 1 rejected, 1 requests refused\n"
    assert done.stderr == "the bridge answered HTTP 503: 'full'\nthe bridge answered HTTP 400: 'no'\n"
    assert done.returncode == 1
    assert [one.payload for one in sink.received] == [requests[0], requests[1], requests[1], requests[2]]
    assert {one.headers["authorization"] for one in sink.received} == {"Bearer s3cret"}


def test_options() -> None:
    """The tables of options name each one with its default, and nothing else."""
    for struct, header in (("GrpcOptions", "otel_bridge_grpc.h"), ("HttpOptions", "otel_bridge_curl.h")):
        body = re.search(rf"struct {struct} {{\n(.*?)\n}};", (HEADERS / header).read_text(), re.DOTALL)
        assert body is not None
        declared = dict(re.findall(r"^  [\w ]+\*? (\w+) = (\w+);", body[1], re.MULTILINE))
        shown = {row[struct]: row["default"] for row in table(PAGE, struct, "default", "means")}
        assert shown == {name: "none" if value == "nullptr" else value for name, value in declared.items()}


def test_statuses() -> None:
    """The table of gRPC's statuses says of each whether it is sent again, as the bridge's own exporter does."""
    shown = {name: row["sent again"] for row in table(PAGE, "gRPC", "sent again") for name in row["gRPC"].split("`, `")}
    words = {Verdict.RETRY: "yes", Verdict.RETRY_IF_TOLD: "with RetryInfo", Verdict.REJECT: "no"}
    assert shown == {code.name: words[verdict] for code, verdict in VERDICTS.items()}
