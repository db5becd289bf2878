"""The HTTPS transport of the C++ client with a real bridge, at its HTTP door."""

from pathlib import Path

from support.otlp_sink import OtlpSink
from support.requests import a_request
from support.scenes import call, delegated, runtime
from support.senders import Sender
from support.service import running

EVENTS = (
    delegated("conv", 0, 1_000, 2_000),
    call("DELEGATE_CALL", 0, 900, 2_100),
    runtime("Method::execute", 800, 2_200),
)


def test_a_bridge_takes_events(send_curl: Path, tmp_path: Path) -> None:
    """A real bridge takes what the transport carries, its counts come back, and the spans reach the back end."""
    request = a_request(*EVENTS)
    with OtlpSink() as sink, running(tmp_path, sink) as service, Sender(send_curl, f"http://{service.http}/v1/events") as send:
        first = send(request.SerializeToString())
        assert (first.status, first.sent, first.accepted, first.rejected, first.message) == ("200", True, len(EVENTS), 0, "")
        request.stream.sequence += 1
        request.events.kind[0] = 0
        second = send(request.SerializeToString())
        assert (second.accepted, second.rejected) == (2 * len(EVENTS) - 1, 1)
        assert second.message.startswith("1 rejected, the first: 'events.kind[0]")
        refused = send(b"\xff\xff")
        assert (refused.status, refused.sent, refused.again) == ("400", False, False)
        service.settle()
        assert len(sink.spans) == 2 * len(EVENTS) - 1
