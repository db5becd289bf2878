"""TLS at both doors: who is let in, and that rotated files count without a restart."""

import asyncio
import logging
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from support.certificates import CLIENT_DNS, CLIENT_URI, Certificates, make_certificates
from support.streams import requests
from support.tokens import ALL, Issuer, gate_of

from otel_bridge.errors import ConfigError
from otel_bridge.model.identity import Identity, Scope
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.tls import DoorTls, TlsFiles

HEALTH = "/grpc.health.v1.Health/Check"
LIST = "/otel_bridge.v1.MappingService/ListMappings"


class Files:
    """The files of a bridge, whose content is that of the certificates that were put there last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, self.key, self.client_ca = (folder / name for name in ("tls.crt", "tls.key", "clients.crt"))

    def put(self, name: str) -> Certificates:
        """Certificates of a new authority, as server's and for clients."""
        made = make_certificates(self.folder, name=name)
        self.certificate.write_bytes(made.server.read_bytes())
        self.key.write_bytes(made.server_key.read_bytes())
        self.client_ca.write_bytes(made.authority.read_bytes())
        return made

    def tls(self, *, clients: bool = False, http_needs_certificate: bool = True) -> DoorTls:
        """What the doors get."""
        files = TlsFiles(self.certificate, self.key, self.client_ca if clients else None)
        return DoorTls(files, http_needs_certificate=http_needs_certificate)


class Peer:
    """A client that trusts one authority, and shows a certificate where it is given one."""

    def __init__(self, trusted: Certificates, own: Certificates | None = None) -> None:
        self._context = ssl.create_default_context(cafile=trusted.authority)
        key = chain = None
        if own is not None:
            self._context.load_cert_chain(own.client, own.client_key)
            key, chain = own.client_key.read_bytes(), own.client.read_bytes()
        self._credentials = grpc.ssl_channel_credentials(trusted.authority.read_bytes(), key, chain)

    async def grpc(self, doors: Any, what: str = HEALTH, **metadata: str) -> str:
        """How a call on a new connection ends."""
        options = [("grpc.use_local_subchannel_pool", 1)]  # else a connection of an earlier channel is used again
        async with grpc.aio.secure_channel(doors.grpc.address, self._credentials, options) as channel:
            try:
                await channel.unary_unary(what)(b"", metadata=list(metadata.items()), timeout=20)
            except grpc.aio.AioRpcError as error:
                return error.code().name
            return "OK"

    async def http(self, doors: Any, path: str = "/healthz", **headers: str) -> str:
        """How a request on a new connection ends."""
        async with httpx.AsyncClient(verify=self._context, timeout=30, trust_env=False) as client:
            try:
                answer = await client.get(f"https://{doors.http.address}{path}", headers=headers)
            except httpx.TransportError:
                return "UNAVAILABLE"
            return str(answer.status_code)

    async def both(self, doors: Any) -> tuple[str, str]:
        """How health is answered by either door."""
        return await self.grpc(doors), await self.http(doors)


LET_IN, OUTSIDE = ("OK", "200"), ("UNAVAILABLE", "UNAVAILABLE")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_both_doors_speak_tls(files: Files, opened: Any, run: Any) -> None:
    """Who trusts the authority is answered; who trusts another one, or speaks plain text, is not."""
    right, wrong = make_certificates(files.folder, name="other"), files.put("first")
    tls, peer, stranger = files.tls(), Peer(wrong), Peer(right)

    async def check() -> None:
        async with opened(tls=tls) as doors:
            assert await peer.both(doors) == LET_IN
            assert await stranger.both(doors) == OUTSIDE
            with pytest.raises(httpx.TransportError):
                await doors.client.get("/healthz")

    run(check())


def test_a_rotated_certificate_counts(files: Files, opened: Any, run: Any) -> None:
    """A new connection gets the certificate that was read last; one that is open goes on."""
    first = files.put("first")
    tls, before = files.tls(), Peer(first)
    context = ssl.create_default_context(cafile=first.authority)

    async def check() -> None:
        async with opened(tls=tls) as doors, httpx.AsyncClient(verify=context, timeout=30, trust_env=False) as open_client:
            url = f"https://{doors.http.address}/healthz"
            await open_client.get(url)
            second = await asyncio.to_thread(files.put, "second")
            after = await asyncio.to_thread(Peer, second)
            assert await before.both(doors) == LET_IN
            await asyncio.to_thread(tls.refresh)
            assert (await after.both(doors), await before.both(doors)) == (LET_IN, OUTSIDE)
            assert (await open_client.get(url)).status_code == 200

    run(check())


@pytest.mark.parametrize("half", ["certificate", "key"])
def test_half_a_rotation_changes_nothing(
    half: str, files: Files, caplog: pytest.LogCaptureFixture, opened: Any, run: Any
) -> None:
    """While certificate and key do not fit each other the last pair goes on, which is logged once; then the new pair counts."""
    first = files.put("first")
    tls, before = files.tls(), Peer(first)
    path = getattr(files, half)
    old = path.read_bytes()
    second = files.put("second")
    new, after = path.read_bytes(), Peer(second)

    async def check() -> None:
        async with opened(tls=tls) as doors:
            path.write_bytes(old)
            for _ in range(3):
                await asyncio.to_thread(tls.refresh)
            assert await before.both(doors) == LET_IN
            path.write_bytes(new)
            await asyncio.to_thread(tls.refresh)
            assert await after.both(doors) == LET_IN

    with caplog.at_level(logging.WARNING, "otel_bridge"):
        run(check())
    assert len(caplog.records) == 1
    assert "must be a certificate and its private key" in caplog.text


def test_clients_show_a_certificate(files: Files, opened: Any, run: Any) -> None:
    """With authorities for clients a connection without their certificate, or with another's, is not let in."""
    made = files.put("first")
    other = make_certificates(files.folder, name="other")
    tls = files.tls(clients=True)
    peer, nobody, stranger = Peer(made, made), Peer(made), Peer(made, other)

    async def check() -> None:
        async with opened(tls=tls) as doors:
            assert await peer.both(doors) == LET_IN
            assert await nobody.both(doors) == OUTSIDE
            assert await stranger.both(doors) == OUTSIDE

    run(check())


def test_rotated_authorities_of_clients_count(files: Files, opened: Any, run: Any) -> None:
    """After a rotation clients of the new authority are let in, and those of the old one are not any more."""
    first = files.put("first")
    tls = files.tls(clients=True)
    before = Peer(first, first)

    async def check() -> None:
        async with opened(tls=tls) as doors:
            assert await before.both(doors) == LET_IN
            second = await asyncio.to_thread(make_certificates, files.folder, name="second")
            files.client_ca.write_bytes(second.authority.read_bytes())
            after = await asyncio.to_thread(Peer, first, second)
            await asyncio.to_thread(tls.refresh)
            assert (await after.both(doors), await before.both(doors)) == (LET_IN, OUTSIDE)

    run(check())


def test_no_session_is_resumed_where_clients_show_a_certificate(files: Files, opened: Any, run: Any) -> None:
    """Each connection shows its certificate anew: a session of yesterday would outlive the authority that vouched for it."""
    made = files.put("first")
    tls = files.tls(clients=True)
    context = ssl.create_default_context(cafile=made.authority)
    context.load_cert_chain(made.client, made.client_key)

    def ask(address: str, session: ssl.SSLSession | None = None) -> tuple[ssl.SSLSession | None, bool | None]:
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
            return connection.session, connection.session_reused

    async def check() -> None:
        async with opened(tls=tls) as doors:
            session, _ = await asyncio.to_thread(ask, doors.http.address)
            assert session is None or not session.has_ticket
            assert (await asyncio.to_thread(ask, doors.http.address, session))[1] is False

    run(check())


@pytest.mark.parametrize("name", [CLIENT_DNS, CLIENT_URI])
def test_a_name_in_a_certificate_stands_for_a_token(name: str, files: Files, opened: Any, run: Any) -> None:
    """Both doors know a client by the names in its certificate; what it may do is what is listed, for streams, too."""
    made = files.put("first")
    issuer = Issuer(files.folder / "tokens.json")
    listed = {name: Identity(name, frozenset({Scope.MAPPINGS_READ}))}
    gate = gate_of(issuer.file, certificates=listed, needs_certificate=True)
    tls = files.tls(clients=True, http_needs_certificate=False)
    peer = Peer(made, made)

    async def check() -> None:
        async with opened(tls=tls, gate=gate) as doors:
            assert await peer.grpc(doors, LIST) == "OK"
            assert await peer.http(doors, "/v1/mappings") == "200"
            assert await peer.grpc(doors, "/otel_bridge.v1.MappingService/PutMapping") == "PERMISSION_DENIED"
            reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            assert await peer.grpc(doors, reflection) == "PERMISSION_DENIED"
            assert await peer.http(doors, "/metrics") == "403"

    run(check())


def test_a_listed_name_reads_a_stream(files: Files, opened: Any, run: Any) -> None:
    """A stream of a client that is known by its certificate is answered as any other."""
    made = files.put("first")
    gate = gate_of(files.folder / "none.json", certificates={CLIENT_URI: Identity(CLIENT_URI, ALL)}, needs_certificate=True)
    tls = files.tls(clients=True, http_needs_certificate=False)
    key, chain = made.client_key.read_bytes(), made.client.read_bytes()
    credentials = grpc.ssl_channel_credentials(made.authority.read_bytes(), key, chain)

    async def check() -> None:
        async with opened(tls=tls, gate=gate) as doors, grpc.aio.secure_channel(doors.grpc.address, credentials) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")()
            for _ in range(2):
                await call.write(b"\x3a\x00")  # list_services: ""
                assert b"otel_bridge.v1.MappingService" in await call.read()
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
            events = ProfilingServiceStub(channel).StreamEvents()
            await events.write(*requests(1))
            assert (await events.read()).accepted == 1

    run(check())


def test_health_over_http_stays_open(files: Files, opened: Any, run: Any) -> None:
    """With the gate, the HTTP door answers health without a certificate, and nothing else: a good token is not enough."""
    made = files.put("first")
    issuer = Issuer(files.folder / "tokens.json")
    token = f"Bearer {issuer.issue(*ALL)}"
    gate = gate_of(issuer.file, needs_certificate=True)
    tls = files.tls(clients=True, http_needs_certificate=False)
    nobody, peer = Peer(made), Peer(made, made)

    async def check() -> None:
        async with opened(tls=tls, gate=gate) as doors:
            assert await nobody.http(doors) == "200"
            assert await nobody.http(doors, "/metrics", authorization=token) == "401"
            assert await nobody.grpc(doors) == "UNAVAILABLE"
            assert await peer.http(doors, "/metrics", authorization=token) == "200"
            assert await peer.grpc(doors, LIST, authorization=token) == "OK"
            assert await peer.http(doors, "/metrics") == "401"
            assert await peer.grpc(doors, LIST) == "UNAUTHENTICATED"

    run(check())


@pytest.mark.parametrize("wrong", ["certificate", "key", "client_ca"])
@pytest.mark.parametrize("content", [b"", b"no PEM", None])
def test_files_that_cannot_be_used(wrong: str, content: bytes | None, files: Files) -> None:
    """A file that is empty, holds something else or is gone is told at start, by the name of its setting."""
    files.put("first")
    path = getattr(files, wrong)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"server\.tls_{wrong} \({path}\)"):
        files.tls(clients=True)


def test_a_pair_that_does_not_fit(files: Files) -> None:
    """A certificate with the key of another is refused at start; so is a key under a passphrase, and nobody is asked for it."""
    files.put("first")
    own, other = files.key.read_bytes(), make_certificates(files.folder, name="other").server_key.read_bytes()
    locked = ["openssl", "pkey", "-aes256", "-passout", "pass:x"]
    for key in (other, subprocess.run(locked, input=own, capture_output=True, check=True).stdout):
        files.key.write_bytes(key)
        with pytest.raises(ConfigError, match="must be a certificate and its private key, not encrypted"):
            files.tls()
