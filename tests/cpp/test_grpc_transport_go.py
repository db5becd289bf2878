"""The gRPC transport of the C++ client with a server of grpc-go: other frames, other headers, other habits than grpcio's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import require
from support.processes import Process
from support.senders import Sender

pytestmark = pytest.mark.timeout(300)  # where `make engines` was not run, the first test builds the server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """The address of a server that lets go of connections after 50 ms."""
    with Process([require("grpc_go"), "50ms"], log=tmp_path / "grpc_go.log") as process:
        process.wait_until(lambda: "\n" in process.log.read_text())
        yield process.log.read_text().strip()


def test_answers(send_grpc: Path, target: str) -> None:
    """Statuses, RetryInfo, messages beyond ASCII and counts are read as grpc-go writes them; what is too large is refused."""
    with Sender(send_grpc, target) as send:
        for round_number in range(1, 4):
            assert send(b"xyo").accepted == 3 * round_number
            later, invalid = send(b"u"), send(b"i")
            assert (later.status, later.again, later.wait_ms) == ("UNAVAILABLE", True, 1_500)
            assert later.message == f"{target} answered UNAVAILABLE: 'no room'"
            assert (invalid.status, invalid.again) == ("INVALID_ARGUMENT", False)
            assert invalid.message == f"{target} answered INVALID_ARGUMENT: 'gr\\xc3\\xb6\\xc3\\x9fer'"
        assert send(bytes(3_000_000) + b"o").accepted == 9 + 3_000_001
        large = send(bytes(20_000_000))
        assert (large.status, large.again) == ("RESOURCE_EXHAUSTED", False)
        assert send(b"o").sent


def test_no_answer(send_grpc: Path, target: str) -> None:
    """A call to which no answer comes ends with its deadline, at one end or the other."""
    with Sender(send_grpc, target, "timeout_ms=1000") as send:
        outcome = send(b"s")
        assert outcome.status in {"DEADLINE_EXCEEDED", "CANCELLED"}  # ours; or grpc-go's, which resets the stream
        assert outcome.again
        assert send(b"o").sent


def test_connections_that_are_let_go(send_grpc: Path, target: str) -> None:
    """The GOAWAYs of grpc-go for old connections lose no request, at the first attempt of the caller."""
    end_s = time.monotonic() + 0.5
    sent = 0
    with Sender(send_grpc, target) as send:
        while time.monotonic() < end_s:
            sent += 1
            assert send(b"o").accepted == sent
