"""What keeps a bridge from starting is told all at once, also what no look at the settings finds."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK
from support.service import ANY_PORT, otel_bridge, running

from otel_bridge.app.data_dir import FILE_NAME, Claim


def test_parts_are_tried_all(tmp_path: Path) -> None:
    """A converter, a parser, an authority and a data directory that are wrong are four lines of one error."""
    (tmp_path / "file").write_text("")
    (tmp_path / "ca.pem").write_text("no certificate")
    started = otel_bridge(
        "serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", tmp_path / "file",
        OTEL_BRIDGE_CLOCK__CONVERTERS="Toy=nowhere:at_all", OTEL_BRIDGE_METADATA__PARSERS="Toy=nothing:here",
        OTEL_BRIDGE_EXPORT__ENDPOINT="https://127.0.0.1:1", OTEL_BRIDGE_EXPORT__CERTIFICATE=str(tmp_path / "ca.pem"),
    )  # fmt: skip
    assert (started.returncode, started.stdout) == (1, "")
    head, *lines = started.stderr.splitlines()
    assert head == "Error: 4 things keep the bridge from starting:"
    assert len(lines) == 4
    for setting in ("file) cannot be used: File exists", "nowhere", "nothing", "ca.pem"):
        assert sum(setting in line for line in lines) == 1, (setting, lines)


def test_addresses_are_tried_both(tmp_path: Path) -> None:
    """Where both addresses are taken, both are told, and the data directory is free again."""
    with ExitStack() as taken:
        ports = [taken.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1] for _ in range(2)]
        grpc, http = (f"{LOOPBACK}:{port}" for port in ports)
        started = otel_bridge("serve", "--grpc", grpc, "--http", http, "--data-dir", tmp_path / "data")
    assert (started.returncode, started.stdout) == (1, "")
    assert "Error: 2 things keep the bridge from starting:" in started.stderr.splitlines()
    assert f"server.grpc_address ({grpc}) cannot be listened on" in started.stderr
    assert f"server.http_address ({http}) cannot be listened on" in started.stderr
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        assert service.stop() == 0


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    """What another process has is neither opened nor made anew: that process may be putting a copy in its place."""
    claim = Claim(tmp_path)
    started = otel_bridge("serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", tmp_path)
    claim.release()
    assert (started.returncode, started.stdout) == (1, "")
    assert f"is in use by process {os.getpid()}" in started.stderr
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
