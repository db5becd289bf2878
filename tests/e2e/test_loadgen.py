"""`otel-bridge loadgen` against a real bridge: what it prints is what happened."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.certificates import make_certificates
from support.otlp_sink import OtlpSink
from support.secured import Secured
from support.service import Service, running

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.load.fleet import SERVICE
from otel_bridge.model.identity import Scope

TOY = Path(__file__).parents[1] / "fixtures" / "toy_backend_int" / "model.etrecord"
MIB = str(1 << 20)
SMALL = {"SERVER__MAX_REQUEST_BYTES": MIB, "SPOOL__MAX_BYTES": MIB, "SPOOL__DURABILITY": "memory"}


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end."""
    with OtlpSink() as back_end:
        yield back_end


def loadgen(server: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON that was printed, and what stands on standard error."""
    words = ["loadgen", "--json", "--server", server, *map(str, arguments)]
    done = CliRunner().invoke(commands, words, catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout or "{}"), done.stderr


def statuses(spans: list[Span]) -> set[str]:
    """The statuses of their resolution."""
    return {each.value.string_value for span in spans for each in span.attributes if each.key == "executorch.resolution.status"}


@pytest.mark.parametrize("door", ["grpc", "stream", "http"])
def test_every_event_that_it_counts_is_a_span(tmp_path: Path, sink: OtlpSink, door: str) -> None:
    """Accepted events of each door are spans at the back end, each once, resolved where a mapping is given."""
    with running(tmp_path, sink) as service:
        server, options = (service.http, ["--http"]) if door == "http" else (service.grpc, ["--connections", 2])
        options += ["--stream"] if door == "stream" else []
        code, told, _ = loadgen(server, "--events", 1000, "--batch", 64, "--mapping", TOY, "--devices", 3, *options)
        service.settle()
        spans = service.spans(SERVICE)
    assert (code, told["events"], told["accepted"], told["requests"]) == (0, 1024, 1024, 16)
    assert (told["rejected"], told["refusals"], told["retries"], told["unsent"]) == ({}, {}, 0, 0)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans) == 1024
    assert statuses(spans) == {"exact"}
    latency = told["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"] <= told["seconds"] * 1000
    assert told["cpu_s"] > 0
    assert told["events_per_s"] > 0


def test_events_of_no_model_go_on_at_once(tmp_path: Path, sink: OtlpSink) -> None:
    """Without a mapping nothing is named that could be waited for; metadata come through, each different, as hex or as text."""
    with running(tmp_path, sink, PARKING__POLICY="park") as service:
        _, told, _ = loadgen(service.grpc, "--events", 100, "--batch", 20, "--metadata-bytes", 8)
        service.settle()
        spans = service.spans(SERVICE)
    assert (told["accepted"], len(spans), statuses(spans)) == (100, 100, {"no_mapping"})
    shown = [str(each.value) for span in spans for each in span.attributes if ".metadata" in each.key]
    assert len(shown) == len(set(shown)) == 100 - 2 * told["requests"]


@pytest.mark.parametrize("door", ["grpc", "stream", "http"])
def test_a_full_spool_is_waited_for_and_then_given_up(tmp_path: Path, sink: OtlpSink, door: str) -> None:
    """While the back end is away refusals are counted by reason; what was accepted and what was not sent is all there is."""
    sink.go_away()
    with running(tmp_path, sink, **SMALL) as service:
        server, options = {
            "grpc": (service.grpc, []),
            "stream": (service.grpc, ["--stream"]),
            "http": (service.http, ["--http"]),
        }[door]
        code, told, error = loadgen(server, "--events", 500_000, "--batch", 1000, "--patience", 0, *options)
        waiting = service.ledger().waiting
        sink.come_back()
        service.settle()
    assert code == 1
    assert error.startswith("Error: ")
    assert told["refusals"].keys() - {"stream_ended"} == {"spool_full"}
    assert 0 < told["accepted"] == waiting < told["events"] == told["accepted"] + told["unsent"]


def test_a_spool_that_has_room_again_takes_the_rest(tmp_path: Path, sink: OtlpSink) -> None:
    """Refused requests are sent again when the bridge said so, until all are accepted: every event arrives once."""
    sink.go_away()
    with running(tmp_path, sink, EXPORT__RETRY_INITIAL_S="0.05", EXPORT__RETRY_MAX_S="0.1", **SMALL) as service:
        told: dict[str, Any] = {}
        sending = threading.Thread(
            target=lambda: told.update(loadgen(service.grpc, "--events", 100_000, "--batch", 1000)[1]), daemon=True
        )
        sending.start()
        service.process.wait_until(lambda: refusals(service) > 0)
        sink.come_back()
        sending.join(50)
        service.settle()
        spans = service.spans(SERVICE)
    assert (told["accepted"], told["unsent"]) == (100_000, 0)
    assert told["retries"] == told["refusals"]["spool_full"] > 0
    assert len({(span.trace_id, span.span_id) for span in spans}) == 100_000


def refusals(service: Service) -> int:
    """Requests that this bridge has refused because its spool was full."""
    return sum(number for labels, number in service.counts("receiver_requests").items() if "spool_full" in labels)


def test_it_gets_in_with_a_token(tmp_path: Path, sink: OtlpSink) -> None:
    """The options of every client count, at both doors; with too little of a scope it says what is refused."""
    secured = Secured(tmp_path, make_certificates(tmp_path))
    with running(tmp_path, sink, way_in=secured.way_in, **secured.settings) as service:
        secured.service = service
        token = secured.known("device", Scope.EVENTS_WRITE)
        access = ["--ca", secured.way_in.ca, "--token-file", token]
        for server, options in ((service.grpc, []), (service.grpc, ["--stream"]), (service.http, ["--http"])):
            code, told, _ = loadgen(server, "--events", 300, *options, *access)
            assert (code, told["accepted"]) == (0, 512)
            code, told, error = loadgen(server, "--events", 300, "--mapping", TOY, *options, *access)
            assert (code, told) == (1, {})
            assert "mappings:write" in error
            code, told, error = loadgen(server, "--events", 300, *options, "--ca", secured.way_in.ca)
            assert (code, told["accepted"], told["unsent"]) == (1, 0, 512)
            assert "--token-file" in error
        service.settle()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--events", "0"], "Invalid value for '--events'"),
        (["--events", "9", "--http", "--connections", "2"], "--connections is for gRPC"),
        (["--events", "9", "--http", "--stream"], "--stream is for gRPC"),
        (["--events", "9", "--server", "127.0.0.1:1", "--stream"], "no bridge answers at 127.0.0.1:1"),
        (["--events", "9", "--batch", "2"], "--batch: is 2"),
        (["--events", "9", "--mapping", "no/such/file"], "no/such/file: cannot be read"),
        (["--events", "9", "--server", "nowhere"], "server: 'nowhere' must be HOST:PORT"),
        (["--events", "9", "--server", "127.0.0.1:1"], "no bridge answers at 127.0.0.1:1"),
        (["--events", "9", "--server", "127.0.0.1:1", "--http"], "no bridge answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_obeyed_is_said(arguments: list[str], says: str) -> None:
    """Options that do not fit end the command with the reason, and a bridge that is not there ends it at once."""
    done = CliRunner().invoke(commands, ["loadgen", *arguments])
    assert done.exit_code != 0
    assert says in (done.stderr + str(done.exception))
