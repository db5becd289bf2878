"""The HTTPS transport of the C++ client with a real bridge that has TLS and tokens."""

from pathlib import Path

from support.certificates import make_certificates
from support.otlp_sink import OtlpSink
from support.requests import a_request
from support.scenes import call, runtime
from support.senders import Sender
from support.service import WayIn, running
from support.tokens import Issuer

from otel_bridge.model.identity import Scope

EVENTS = (call("DELEGATE_CALL", 0, 900, 2_100), runtime("Method::execute", 800, 2_200))


def test_a_device_gets_in_with_its_token(send_curl: Path, tmp_path: Path) -> None:
    """A device that has a token is let in over TLS; without one, or with one for something else, its request is given up."""
    made = make_certificates(tmp_path)
    issuer = Issuer(tmp_path / "data" / "tokens.json")
    device, reader = issuer.issue(Scope.EVENTS_WRITE), issuer.issue(Scope.MAPPINGS_READ)
    everything = tmp_path / "everything"
    everything.write_text(issuer.issue(*Scope))
    way_in = WayIn(made.authority, everything)
    settings = {"SERVER__TLS_CERTIFICATE": str(made.server), "SERVER__TLS_KEY": str(made.server_key), "AUTH__ENABLED": "true"}
    body = a_request(*EVENTS).SerializeToString()
    with OtlpSink() as sink, running(tmp_path, sink, way_in=way_in, **settings) as service:
        url = f"https://{service.http}/v1/events"
        outcomes = {}
        for token in (device, reader, ""):
            with Sender(send_curl, url, f"ca={made.authority}", *([f"token={token}"] if token else [])) as send:
                outcomes[token] = send(body)
        assert (outcomes[device].status, outcomes[device].accepted) == ("200", len(EVENTS))
        for token, status, told in ((reader, "403", "it lacks the scope events:write"), ("", "401", "has no credential")):
            answer = outcomes[token]
            assert (answer.status, answer.sent, answer.again) == (status, False, False)
            assert told in answer.message
        service.settle()
        assert len(sink.spans) == len(EVENTS)
