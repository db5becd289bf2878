"""A real bridge with two tenants, by tokens of its own and of an identity provider."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.certificates import make_certificates
from support.identity_provider import AUDIENCE, ISSUER, Provider
from support.otlp_sink import OtlpSink
from support.secured import Secured
from support.service import running

from otel_bridge.model.identity import Scope
from otel_bridge.spans import attributes as at

FIXTURE = Path(__file__).parents[1] / "fixtures" / "toy_backend_int"
DUMP, RECORD = FIXTURE / "run.etdp", FIXTURE / "model.etrecord"
EVENTS = 9
HEADER = "X-Scope-OrgID"
QUOTAS = {"hasty": {"events_per_s": 0.01, "mappings": 1}}


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Secured]:
    """A bridge whose back end has tenants, too, and that takes tokens of the provider; its service has the tenant's name."""
    folder = tmp_path_factory.mktemp("secured")
    certificates = make_certificates(folder)
    secured = Secured(folder, certificates)
    with provider.publish(certificates) as place, OtlpSink() as sink:
        settings = {
            "EXPORT__TENANT_HEADER": HEADER,
            "PARKING__POLICY": "park",
            "TENANTS__OVERRIDES": json.dumps(QUOTAS),
            "JWT__JWKS_URL": place.url,
            "JWT__CA": str(certificates.authority),
            "JWT__ISSUER": ISSUER,
            "JWT__AUDIENCE": AUDIENCE,
            "JWT__TENANT_CLAIM": "tenant",
            "JWT__UNKNOWN_KEY_WAIT_S": "0.1",
        }
        with running(folder, sink, way_in=secured.way_in, **secured.settings, **settings) as secured.service:
            yield secured


def test_two_tenants_do_not_meet(secured: Secured) -> None:
    """
    The same model of two tenants is two things: one has a mapping, the other's events wait, and each sees its own.

    Spans say the tenant, no two share a trace, and each request to the back end is of one tenant, which its header names.
    """
    service = secured.service
    upload = ("mapping", "upload", RECORD, "--model", "toy", "--version", "1")
    tokens = {tenant: secured.known(f"all-{tenant}", *Scope, tenant=tenant) for tenant in ("acme", "globex")}
    assert secured.command(*upload, token=tokens["acme"]).exit_code == 0
    for tenant, token in tokens.items():
        done = secured.command("send", DUMP, "--model", "toy@1", "--resource", f"service.name={tenant}", token=token)
        assert (done.exit_code, done.stderr) == (0, "")
    service.process.wait_until(lambda: len(service.spans("acme")) == EVENTS)

    def missing(tenant: str) -> list[str]:
        done = secured.command("mapping", "missing", "--json", token=tokens[tenant])
        return [each["ref"] for each in json.loads(done.stdout)]

    service.process.wait_until(lambda: missing("globex") == ["toy@1"])
    assert missing("acme") == []
    assert secured.command("mapping", "list", "--json", token=tokens["globex"]).stdout == "[]\n"
    assert secured.command("mapping", "delete", "toy@1", token=tokens["globex"]).exit_code == 1
    assert not service.spans("globex")
    assert secured.command(*upload, token=tokens["globex"]).exit_code == 0
    service.process.wait_until(lambda: len(service.spans("globex")) == EVENTS)
    assert secured.command("mapping", "delete", "toy@1", token=tokens["globex"]).exit_code == 0
    assert len(json.loads(secured.command("mapping", "list", "--json", token=tokens["acme"]).stdout)) == 1
    traces = [{span.trace_id for span in service.spans(tenant)} for tenant in tokens]
    assert traces[0] & traces[1] == set()
    for tenant in tokens:
        assert named_by_requests(service.sink, tenant) == {tenant}


def named_by_requests(sink: OtlpSink, service_name: str) -> set[str]:
    """What requests with spans of a service say: the header, once every resource in them has been found to say the same."""
    told = set()
    for one in sink.received:
        resources = [
            {each.key: each.value.string_value for each in it.resource.attributes} for it in one.request.resource_spans
        ]
        if any(each["service.name"] == service_name for each in resources):
            (header,) = {each.get(at.TENANT, "anonymous") for each in resources} | {one.headers[HEADER.lower()]}
            told.add(header)
    return told


def test_an_identity_provider_vouches(secured: Secured, provider: Provider) -> None:
    """A signed token opens what its scope says, of its tenant; a new key is fetched, and what nobody signed is refused."""
    url = f"https://{secured.service.http}"

    def ask(token: str, path: str = "/v1/mappings") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.get(url + path, headers=headers, verify=secured.way_in.context, timeout=30, trust_env=False)

    token = secured.known("of-initech", Scope.MAPPINGS_WRITE, tenant="initech")
    assert secured.command("mapping", "upload", RECORD, "--build-id", "theirs", token=token).exit_code == 0
    good: dict[str, Any] = {"tenant": "initech", "scope": "mappings:read"}
    assert [each["build_id"] for each in ask(provider.sign(**good)).json()["mappings"]] == ["theirs"]
    assert ask(provider.sign(**good | {"tenant": "hooli"})).json()["mappings"] == []
    assert ask(provider.sign(**good), "/metrics").status_code == 403
    assert {ask(each).status_code for each in provider.bad_tokens().values()} <= {401, 503}
    provider.rotate("new")
    token = provider.sign("new", **good)
    answers: list[int] = []
    secured.service.process.wait_until(lambda: answers.append(ask(token).status_code) or answers[-1] == 200)
    assert set(answers) <= {401, 503, 200}
    foreign = Provider()
    foreign.rotate("new")
    assert ask(foreign.sign("new", **good)).status_code == 401


def test_a_hasty_tenant_waits_alone(secured: Secured) -> None:
    """Over its quotas one tenant is refused, and counted by why; another one sends at the same moment."""
    hasty, calm = (secured.known(tenant, *Scope, tenant=tenant) for tenant in ("hasty", "calm"))
    before = secured.service.counts("auth_refused_requests")

    def post(token: Path) -> httpx.Response:
        headers = {"authorization": f"Bearer {token.read_text().strip()}"}
        return httpx.post(
            f"https://{secured.service.http}/v1/etdump",
            content=DUMP.read_bytes(),
            headers=headers,
            verify=secured.way_in.context,
            trust_env=False,
            timeout=30,
        )

    assert post(hasty).json()["accepted"] == EVENTS
    refused = post(hasty)
    assert (refused.status_code, refused.json()["reason"]) == (429, "over_quota")
    assert int(refused.headers["retry-after"]) >= 60
    assert post(calm).json()["accepted"] == EVENTS
    assert secured.service.counts("auth_refused_requests") - before == {("events_quota", "http"): 1}
    for build, code in (("one", 0), ("one", 0), ("two", 1)):
        done = secured.command("mapping", "upload", RECORD, "--build-id", build, token=hasty)
        assert done.exit_code == code
    assert "FAILED_PRECONDITION: the tenant would have 2 builds, and may have 1; delete what is no longer in use" in done.stderr
    assert secured.command("mapping", "upload", RECORD, "--build-id", "two", token=calm).exit_code == 0
