"""A real bridge with TLS and tokens: every client gets in with the right one, and nobody else does."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from support.access import bad_credentials, by_grpc, by_http
from support.certificates import make_certificates
from support.inferences import infer
from support.otlp_sink import OtlpSink
from support.secured import Secured, invoke
from support.service import otel_bridge, running
from support.tokens import Issuer

from otel_bridge.client import BridgeClient, EventTracer
from otel_bridge.model.identity import Scope
from otel_bridge.wire.access import ACCESS

DUMP = Path(__file__).parents[1] / "fixtures" / "toy_backend_int" / "run.etdp"
RECORD = DUMP.with_name("model.etrecord")
EVENTS = 9
NO_TOKEN = {"OTEL_BRIDGE_TOKEN": "not-a-token"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One for the tests of this module; tokens have the names of their tests."""
    folder = tmp_path_factory.mktemp("secured")
    secured = Secured(folder, make_certificates(folder))
    with OtlpSink() as sink, running(folder, sink, way_in=secured.way_in, **secured.settings) as secured.service:
        yield secured


def test_a_release_and_its_devices(secured: Secured) -> None:
    """A build pipeline uploads with its token, devices send with theirs, and the spans arrive, resolved."""
    pipeline, device = secured.known("pipeline", Scope.MAPPINGS_WRITE), secured.known("device", Scope.EVENTS_WRITE)
    done = secured.command("mapping", "upload", RECORD, "--model", "toy", "--version", "1", token=pipeline)
    assert (done.exit_code, done.stderr) == (0, "")
    done = secured.command("send", DUMP, "--model", "toy@1", "--resource", "service.name=files", token=device)
    assert (done.exit_code, done.stdout) == (0, f"{DUMP}: {EVENTS} events accepted\n")
    done = secured.command(
        "send", DUMP, "--model", "toy@1", "--resource", "service.name=variable", OTEL_BRIDGE_TOKEN=device.read_text().strip()
    )
    assert done.exit_code == 0
    secured.service.settle()
    assert len(secured.service.spans("files")) == len(secured.service.spans("variable")) == EVENTS


def test_the_python_client_gets_in(secured: Secured) -> None:
    """The Python client sends with a token from a file; with a token that lacks the scope it drops, and counts."""
    device, reader = secured.known("app", Scope.EVENTS_WRITE), secured.known("reader", Scope.MAPPINGS_READ)
    sent = []
    for token in (device, reader):
        resource = {"service.name": f"app {token.stem}"}
        with BridgeClient(f"https://{secured.service.grpc}", token=token, ca=secured.way_in.ca, resource=resource) as client:
            infer(EventTracer(client, model="toy@1"))
        sent.append((client.stats.accepted, sum(client.stats.dropped.values())))
    assert sent[0][0] > 0 == sent[0][1]
    assert sent[1] == (0, sent[0][0])
    secured.service.settle()
    assert secured.service.spans("app app")
    assert not secured.service.spans("app reader")


@pytest.mark.usefixtures("needs_curl")
def test_curl_gets_in(secured: Secured) -> None:
    """With the authority and a token curl is answered; without a token it is told by which header to show one."""
    device = secured.known("curl", Scope.EVENTS_WRITE)
    url = f"https://{secured.service.http}"

    def curl(path: str, *arguments: str) -> tuple[str, str]:
        command = ["curl", "-sS", "--noproxy", "*", "--cacert", str(secured.way_in.ca), "-i", *arguments, f"{url}{path}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
        head, _, body = done.stdout.replace("\r", "").partition("\n\n")
        return head.lower(), body

    bearer = ("-H", f"Authorization: Bearer {device.read_text().strip()}")
    head, body = curl("/v1/etdump?model=toy", "--data-binary", f"@{DUMP}", *bearer)
    assert (head.splitlines()[0], json.loads(body)["accepted"]) == ("http/1.1 200 ok", EVENTS)
    head, body = curl("/v1/etdump?model=toy", "--data-binary", f"@{DUMP}")
    assert head.startswith("http/1.1 401 unauthorized")
    assert 'www-authenticate: bearer realm="otel-bridge"' in head
    assert json.loads(body) == {
        "code": "UNAUTHENTICATED",
        "reason": "unauthenticated",
        "message": "the request has no credential; send a token: `authorization: Bearer TOKEN`",
    }
    head, body = curl("/v1/mappings", *bearer)
    assert head.startswith("http/1.1 403 forbidden")
    assert json.loads(body)["reason"] == "permission_denied"
    assert curl("/healthz")[1] == "ok\n"
    assert curl("/readyz")[1].splitlines()[0] == "ready"


def test_a_device_sees_no_mapping(secured: Secured) -> None:
    """With a device's token every command about mappings ends with 1 and the scope that is missing; nothing is changed."""
    secured.service.command("mapping", "upload", RECORD, "--build-id", "kept")
    before = secured.service.command("mapping", "list", "--json")
    device = secured.known("nosy", Scope.EVENTS_WRITE)
    reads, writes = "mappings:read", "mappings:write"
    for arguments, scope in (
        (("mapping", "upload", RECORD, "--build-id", "new"), writes),
        (("mapping", "delete", "kept"), writes),
        (("mapping", "alias", "toy@2", "kept"), writes),
        (("mapping", "show", "kept"), reads),
        (("mapping", "list"), reads),
        (("mapping", "missing"), reads),
    ):
        done = secured.command(*arguments, token=device)
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"PERMISSION_DENIED: the credential does not allow this: it lacks the scope {scope}" in done.stderr
    assert secured.service.command("mapping", "list", "--json") == before


def test_without_a_way_in(secured: Secured) -> None:
    """A command without token, without TLS, or without the authority ends with 1 and one line that says what to do."""
    done = secured.command("mapping", "list")
    assert done.exit_code == 1
    assert done.stderr.endswith("(--token-file FILE, or OTEL_BRIDGE_TOKEN)\n")
    server = secured.service.grpc
    for written, told in (
        (server, f"{server} hangs up; where it speaks TLS, write https://HOST:PORT"),
        (f"https://{server}", f"TLS with https://{server}: no authority that is trusted vouches for its certificate"),
    ):
        done = invoke("mapping", "list", "--server", written, **NO_TOKEN)
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, line.startswith(f"Error: {told}")) == (1, True)


def test_a_token_stays_at_home() -> None:
    """To another machine a command shows no token without TLS, unless that is said; what it says has no token in it."""
    done = otel_bridge("mapping", "list", "--server", "192.0.2.1:4417", **NO_TOKEN)
    assert done.returncode == 1
    assert "would travel to 192.0.2.1:4417 in plain text" in done.stderr
    assert "--plain-token" in done.stderr
    assert NO_TOKEN["OTEL_BRIDGE_TOKEN"] not in done.stderr


def test_tokens_come_and_go(secured: Secured) -> None:
    """A running bridge notices tokens that are created, rotated and revoked."""
    wait = secured.service.process.wait_until
    first = secured.known("rotated", Scope.MAPPINGS_READ)
    second = secured.folder / "second.token"
    rotate = ("create", "rotated", "--scope", "mappings:read", "--overlap", "1h", "--output", second)
    assert secured.token_command(*rotate).exit_code == 0
    wait(lambda: secured.knows(second))
    for token in (first, second):
        assert secured.command("mapping", "list", token=token).exit_code == 0
    assert secured.token_command("revoke", first.read_text().split("_")[1]).exit_code == 0
    wait(lambda: not secured.knows(first))
    assert secured.command("mapping", "list", token=first).exit_code == 1
    assert secured.command("mapping", "list", token=second).exit_code == 0
    assert secured.token_command("revoke", "rotated").exit_code == 0
    wait(lambda: not secured.knows(second))


def test_bad_credentials_open_nothing(secured: Secured, run: Any) -> None:
    """At the running process, too, everything but health is refused to bad credentials, and to a device all but its own."""
    tokens = Issuer(secured.folder / "data" / "tokens.json", datetime.now(UTC))
    shown = list(bad_credentials(tokens).values())
    device = [f"Bearer {secured.known('matrix', Scope.EVENTS_WRITE).read_text().strip()}"]
    before = secured.service.command("mapping", "list", "--json")
    events = secured.service.ledger().accepted

    async def answer(channel: grpc.aio.Channel, client: httpx.AsyncClient, what: str, authorizations: list[str]) -> str:
        if what.startswith("/"):
            return (await by_grpc(channel, what, authorizations)).name
        return str((await by_http(client, what, authorizations)).status_code)

    async def check() -> None:
        url = f"https://{secured.service.http}"
        async with (
            grpc.aio.secure_channel(secured.service.grpc, credentials) as channel,
            httpx.AsyncClient(base_url=url, verify=context, timeout=30, trust_env=False) as client,
        ):
            for what, scope in ACCESS.items():
                for authorizations in shown:
                    assert (await answer(channel, client, what, authorizations) in ("UNAUTHENTICATED", "401")) is (
                        scope is not None
                    ), what
                told = await answer(channel, client, what, device)
                assert (told in ("PERMISSION_DENIED", "403")) is (scope not in (None, Scope.EVENTS_WRITE)), what

    context = secured.way_in.context
    credentials = grpc.ssl_channel_credentials(secured.way_in.ca.read_bytes())
    run(check())
    assert secured.service.command("mapping", "list", "--json") == before
    assert secured.service.ledger().accepted == events


def test_refusals_are_counted_and_told(secured: Secured) -> None:
    """Refusals are counted by door and reason; the log names reason and credential, and never holds a token."""
    device = secured.known("counted", Scope.EVENTS_WRITE)
    before = secured.service.counts("auth_refused_requests")
    secured.command("mapping", "list", token=device)
    secured.command("mapping", "list")
    assert secured.service.counts("auth_refused_requests") - before == {("scope", "grpc"): 1, ("no_credential", "grpc"): 1}
    log = secured.service.process.log.read_text()
    assert " refused: " in log
    secrets = [path.read_text().strip().split("_", 2)[2] for path in secured.folder.glob("*.token")]
    assert len(secrets) > 1
    assert [secret for secret in secrets if secret in log] == []


def test_an_open_door_is_refused_at_start(tmp_path: Path) -> None:
    """`serve` on every address without TLS and tokens ends with 1 before a port is open; with files that are wrong, too."""
    everywhere = ("serve", "--grpc", "0.0.0.0:0", "--http", "0.0.0.0:0", "--data-dir", tmp_path)
    done = otel_bridge(*everywhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("can be reached by others: set server.tls_certificate and server.tls_key and auth.enabled") == 2
    (tmp_path / "tokens.json").write_text("{}}")
    done = otel_bridge("serve", "--grpc", "127.0.0.1:0", "--data-dir", tmp_path, OTEL_BRIDGE_AUTH__ENABLED="true")
    assert done.returncode == 1
    assert "holds no tokens as `otel-bridge token create` writes them" in done.stderr
