"""Certificates and tokens that are renewed while the bridge runs."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Certificates, expired, make_certificates
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.errors import BackEndUnavailable, ConfigError
from otel_bridge.export.protocol import Exporter, Sent

Build = Callable[..., Exporter]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority."""
    return make_certificates(tmp_path_factory.mktemp("renewed"), name="renewed")


class Mounted:
    """Files as a bridge sees them: the paths stay, what they hold changes."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.certificate, self.key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.settings = {"certificate": self.authority, "client_certificate": self.certificate, "client_key": self.key}

    def hold(self, certificates: Certificates) -> None:
        """Let them be copies of these."""
        shutil.copy(certificates.authority, self.authority)
        self.hold_certificate(certificates)
        self.hold_key(certificates)

    def hold_certificate(self, certificates: Certificates) -> None:
        """The certificate alone."""
        shutil.copy(certificates.client, self.certificate)

    def hold_key(self, certificates: Certificates) -> None:
        """The key alone."""
        shutil.copy(certificates.client_key, self.key)


async def arrives(exporter: Exporter) -> None:
    """Send until the back end takes it: gRPC waits before it connects again."""
    async with asyncio.timeout(20):
        while True:
            try:
                await exporter.send(a_payload(1))
            except BackEndUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


def test_new_authority_and_client(
    build: Build, run: Run, tmp_path: Path, certificates: Certificates, renewed: Certificates
) -> None:
    """After all files of mutual TLS were replaced, on both sides, the same exporter connects with the new ones."""
    files = Mounted(tmp_path)
    files.hold(certificates)

    async def scene(sink: OtlpSink, exporter: Exporter) -> None:
        await exporter.send(a_payload(1))
        await asyncio.to_thread(sink.go_away)
        sink.tls = renewed
        await asyncio.to_thread(sink.come_back)
        with pytest.raises(BackEndUnavailable):
            await exporter.send(a_payload(1))
        await asyncio.to_thread(files.hold, renewed)
        await arrives(exporter)
        await exporter.close()

    with OtlpSink(tls=certificates, client_must_show=True) as sink:
        run(scene(sink, build(sink, **files.settings)))
        assert len(sink.spans) == 2


def test_between_two_writes(build: Build, run: Run, tmp_path: Path, certificates: Certificates, renewed: Certificates) -> None:
    """While a new certificate stands beside the old key, requests go on with the old pair; then with the new one."""
    files = Mounted(tmp_path)
    files.hold(certificates)

    async def scene(exporter: Exporter) -> None:
        await exporter.send(a_payload(1))
        await asyncio.to_thread(files.hold_certificate, renewed)
        assert await exporter.send(a_payload(1)) == Sent()
        await asyncio.to_thread(files.hold_key, renewed)
        with pytest.raises(BackEndUnavailable):  # the new pair is used, which the back end does not know yet
            await exporter.send(a_payload(1))
        await exporter.close()

    with OtlpSink(tls=certificates, client_must_show=True) as sink:
        run(scene(build(sink, **files.settings)))
        assert len(sink.spans) == 2


def test_an_expired_certificate(build: Build, run: Run, tmp_path: Path, certificates: Certificates) -> None:
    """A back end whose certificate has expired gets nothing, and everything once it has a new one."""

    async def scene(sink: OtlpSink, exporter: Exporter) -> None:
        with pytest.raises(BackEndUnavailable, match=r"(?i)expired|certificate"):
            await exporter.send(a_payload(1))
        assert sink.received == []
        await asyncio.to_thread(sink.go_away)
        sink.tls = certificates
        await asyncio.to_thread(sink.come_back)
        await arrives(exporter)
        await exporter.close()

    with OtlpSink(tls=expired(certificates, tmp_path)) as sink:
        run(scene(sink, build(sink, certificate=certificates.authority)))
        assert len(sink.spans) == 1


def test_a_token_that_is_renewed(build: Build, run: Run, tmp_path: Path) -> None:
    """Each request carries the token that the file holds then, beside the configured headers."""
    token = tmp_path / "token"
    token.write_text("first\n")

    async def scene(exporter: Exporter) -> None:
        await exporter.send(a_payload(1))
        await asyncio.to_thread(token.write_text, "second-one\n")
        await exporter.send(a_payload(1))
        await exporter.close()

    with OtlpSink() as sink:
        run(scene(build(sink, token_file=token, headers={"x-key": "k"})))
        sent = [(one.headers["authorization"], one.headers["x-key"]) for one in sink.received]
    assert sent == [("Bearer first", "k"), ("Bearer second-one", "k")]


def test_a_token_is_checked_at_start(build: Build, tmp_path: Path) -> None:
    """A file that holds no token is refused before anything is sent, by the name of the setting."""
    token = tmp_path / "token"
    token.write_text("\n")
    with OtlpSink() as sink, pytest.raises(ConfigError, match=r"export.token_file: the file .* must hold one token"):
        build(sink, token_file=token)


def test_a_token_in_plain_text_is_told(build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A token that is sent without TLS is warned of, and not shown."""
    token = tmp_path / "token"
    token.write_text("s3cret")
    with OtlpSink() as sink:
        build(sink, token_file=token)
    assert "export.token_file is sent to" in caplog.text
    assert "s3cret" not in caplog.text
