"""`otel-bridge demo`: the first thing that anybody runs."""

import re

from support.otlp_sink import OtlpSink
from support.service import otel_bridge

from otel_bridge.app.demo import DEVICES


def test_it_prints_trees() -> None:
    """Each device's inferences are printed with identifiers, operators and decoded metadata, without a bridge or a back end."""
    done = otel_bridge("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(device.hardware in done.stdout for device in DEVICES)
    for shown in (
        "aten.convolution.default",
        "exact",
        "unmapped_identifier",
        "delegate ToyProfBackend",
        "delegate XnnpackBackend",
    ):
        assert shown in done.stdout
    assert re.search(rf"^\d+ events of {len(DEVICES)} devices, resolved", done.stdout, re.MULTILINE)


def test_it_sends_to_a_back_end() -> None:
    """With an endpoint every event goes there as a span, and nothing is printed but where they went."""
    with OtlpSink() as sink:
        done = otel_bridge("demo", "--otlp-endpoint", sink.grpc_endpoint)
        assert (done.returncode, done.stderr) == (0, "")
        found = re.fullmatch(rf"(\d+) events of {len(DEVICES)} devices went to {sink.grpc_endpoint}\n", done.stdout)
        assert found
        assert len(sink.spans) == int(found[1]) > 0
