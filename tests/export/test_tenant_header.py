"""A back end with tenants of its own is told whose spans a request holds."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_answers import Answer
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.config.egress import ExportConfig
from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError
from otel_bridge.export.build import build_exporter
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import letters_in, write_letter
from otel_bridge.export.protocol import Exporter
from otel_bridge.export.tenant_header import TenantHeader

HEADER = "x-scope-orgid"
WITH_HEADER = {"tenant_header": "X-Scope-OrgID"}


def send_as(exporter: Exporter, *tenants: str, spans: int = 1) -> None:
    """Send a payload for each tenant."""

    async def main() -> None:
        try:
            for tenant in tenants:
                await exporter.send(a_payload(spans), tenant)
        finally:
            await exporter.close()

    asyncio.run(main())


def told(sink: OtlpSink) -> list[str | None]:
    """What the header said, request by request."""
    return [one.headers.get(HEADER) for one in sink.received]


@pytest.mark.parametrize(
    ("nameless", "expected"), [({}, "anonymous"), ({"default_tenant": "shared"}, "shared"), ({"default_tenant": ""}, None)]
)
def test_each_request_names_its_tenant(build: Callable[..., Exporter], nameless: dict[str, str], expected: str | None) -> None:
    """Over either protocol the header says the tenant, beside other headers; for the default one, as it is set."""
    with OtlpSink() as sink:
        send_as(build(sink, headers={"x-key": "k"}, **WITH_HEADER, **nameless), "acme", "", "globex")
        assert told(sink) == ["acme", expected, "globex"]
        assert {one.headers["x-key"] for one in sink.received} == {"k"}


def test_nobody_is_told_unasked(build: Callable[..., Exporter]) -> None:
    """Without the setting there is no header."""
    with OtlpSink() as sink:
        send_as(build(sink), "acme")
        assert told(sink) == [None]


def test_halves_are_of_the_same_tenant(tmp_path: Path) -> None:
    """A refused request is halved, and kept in the end, under its tenant."""
    kept: list[Refused] = []

    async def keep(refused: Refused) -> None:
        kept.append(refused)

    with OtlpSink() as sink:
        refuse = Answer.http_failure(400, "bad")
        sink.answers += [refuse, refuse, Answer()]
        config = ExportConfig(protocol="http/protobuf", endpoint=sink.http_endpoint, **WITH_HEADER)
        send_as(build_exporter(config, keep=keep), "acme", spans=2)
        assert told(sink) == ["acme"] * 3
    assert [(each.tenant, each.spans) for each in kept] == [("acme", 1)]
    write_letter(tmp_path, kept[0], 1)
    assert [each.tenant for each in letters_in(tmp_path)] == ["acme"]


def test_header_names() -> None:
    """The header is written as one likes and sent in lower case; one that the protocol or `headers` sets is refused."""
    config = load(None, {"export.tenant_header": "X-Scope-OrgID"}).export
    assert config.tenant_header == HEADER
    assert TenantHeader(config.tenant_header, config.default_tenant).of("acme") == {HEADER: "acme"}
    for wrong in ({"tenant_header": "content-type"}, {"tenant_header": "a b"}, {"default_tenant": "é"}):
        with pytest.raises(ConfigError, match="export"):
            load(None, {f"export.{name}": value for name, value in wrong.items()})
    with pytest.raises(ConfigError, match="are one: give one of them"):
        load(None, {"export.tenant_header": "X-Key", "export.headers": {"x-key": "k"}})
