"""curl at the HTTP door: the client that everybody has."""

import json
import subprocess
from pathlib import Path

import pytest
from support.service import Service

from otel_bridge.etdump.read import read
from otel_bridge.model.stream import Stream

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "toy_backend_int" / "run.etdp").read_bytes()
EVENTS = 9


pytestmark = pytest.mark.usefixtures("needs_curl")


def curl(service: Service, path: str, *arguments: str) -> tuple[int, str, str]:
    """Status, body, and what curl says of the conversation."""
    command = ["curl", "-sS", "-v", "--noproxy", "*", "-w", "\n%{http_code}", *arguments, f"http://{service.http}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body, done.stderr


def test_a_large_file_asks_first(service: Service, tmp_path: Path) -> None:
    """Before a body over 1 MB curl asks whether it may; it is told to go on, and the file arrives."""
    dump = tmp_path / "run.etdp"
    dump.write_bytes(CAPTURE + bytes(1_500_000))  # an ETDump says its length; what follows is the memory it was drained from
    path = "/v1/etdump?model=toy&resource.service.name=curl"
    status, body, said = curl(service, path, "-H", "Expect: 100-continue", "--data-binary", f"@{dump}")
    assert (status, json.loads(body)["accepted"]) == (200, EVENTS)
    assert "< HTTP/1.1 100 Continue" in said
    service.settle()
    assert len(service.spans("curl")) == len(read(CAPTURE, Stream(b"x" * 16)).batch)


def test_a_file_over_the_limit(service: Service, tmp_path: Path) -> None:
    """A file over the limit is refused while it is sent, and curl shows why."""
    dump = tmp_path / "large.etdp"
    dump.write_bytes(bytes(30 << 20))
    status, body, _ = curl(service, "/v1/etdump", "--data-binary", f"@{dump}")
    assert (status, json.loads(body)["reason"]) == (413, "too_large")


def test_weights_stay_where_they_are(service: Service, tmp_path: Path) -> None:
    """Of an ETRecord of many megabytes the first bytes are enough for curl to show what to send instead."""
    record = tmp_path / "model.etrecord"
    record.write_bytes(b"PK\x03\x04" + bytes(30 << 20))
    status, body, _ = curl(service, "/v1/mappings/build", "-T", str(record))
    assert (status, json.loads(body)["reason"]) == (400, "malformed_mapping")
    assert "`otel-bridge mapping build`" in json.loads(body)["message"]
