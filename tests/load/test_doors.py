"""The doors of a bridge, as a load generator uses them: connections, and what an answer means."""

import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler

import grpc
import pytest

from otel_bridge.client.connection import UNREACHABLE, Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable, ConfigError
from otel_bridge.export.tls import TlsFiles
from otel_bridge.load import doors
from otel_bridge.load.doors import GrpcDoor, HttpDoor
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb

EMPTY = mapping_pb2.MappingFile(mapping=mapping_pb2.Mapping(format=1, methods=[mapping_pb2.Method(name="forward")]))
TAKEN = pb.ExportEventsResponse(accepted=3).SerializeToString()


@contextmanager
def grpc_bridge() -> Iterator[tuple[str, set[str]]]:
    """Something that takes events, and the peers that it has seen."""
    peers: set[str] = set()

    def take(_body: bytes, context: grpc.ServicerContext) -> bytes:
        peers.add(context.peer())
        return TAKEN

    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {"ExportEvents": grpc.unary_unary_rpc_method_handler(take)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("otel_bridge.v1.ProfilingService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", peers
    finally:
        server.stop(None).wait()


@contextmanager
def http_bridge(answer: bytes) -> Iterator[str]:
    """Something that gives one answer on each connection, and hangs up without a word."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline()
            (length,) = (
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            self.rfile.read(length)
            self.wfile.write(answer)

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def serving(listening: socketserver.TCPServer) -> Iterator[str]:
    """The address of a server, while it serves."""
    with listening as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield "{}:{}".format(*server.server_address)
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def http_door(answer: bytes) -> Iterator[HttpDoor]:
    """A door of something that gives always the same answer."""
    with http_bridge(answer) as server, closing(HttpDoor(server, TlsFiles(), None)) as door:
        yield door


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    """An answer by HTTP/1.1."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in {"content_length": str(len(body)), **headers}.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


@pytest.mark.parametrize(("alone", "connections"), [(True, 2), (False, 1)])
def test_connections_are_as_many_as_asked_for(alone: bool, connections: int) -> None:  # noqa: FBT001 - a parameter
    """Channels to one address share a TCP connection, unless they are to be alone."""
    with grpc_bridge() as (address, peers):
        opened = [Connection(address, alone=alone) for _ in range(2)]
        for connection in opened:
            assert GrpcDoor(connection).send(b"").accepted == 3
        for connection in opened:
            connection.close()
    assert len(peers) == connections


def test_a_connection_that_was_let_go_is_opened_again() -> None:
    """A bridge hangs up on idle connections: the next attempt does not fail for it."""
    with http_bridge(response("200 OK", TAKEN)) as server:
        door = HttpDoor(server, TlsFiles(), None)
        assert [door.send(b"").accepted for _ in range(3)] == [3, 3, 3]
        door.close()


def test_an_answer_that_does_not_come_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was open is no reason to think that the bridge let it go: an attempt is one, and a wait is one."""
    monkeypatch.setattr(doors, "CALL_TIMEOUT_S", 0.2)
    came = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal came
            came += 1
            self.rfile.read(int(self.headers["content-length"]))
            if came == 1:
                self.send_response(200)
                self.send_header("content-length", str(len(TAKEN)))
                self.end_headers()
                self.wfile.write(TAKEN)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with (
        serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as server,
        closing(HttpDoor(server, TlsFiles(), None)) as door,
    ):
        assert door.send(b"").accepted == 3
        with pytest.raises(BridgeUnavailable, match="timed out"):
            door.send(b"")
    assert came == 2


def test_what_an_answer_means() -> None:
    """A retry helps for what OTLP says; reason and wait are the bridge's own, in either form of an error."""
    fault = b'{"code": "UNAVAILABLE", "reason": "quota", "message": "later"}'
    with http_door(response("503 Busy", fault, content_type="application/json", retry_after="7")) as door:
        with pytest.raises(BridgeUnavailable, match="answered HTTP 503: later") as busy:
            door.put_mapping(EMPTY)
        assert (busy.value.reason, busy.value.retry_after_s) == ("quota", 7)
    with http_door(response("404 Not Found", b"?")) as door, pytest.raises(BridgeRefused, match="answered HTTP 404"):
        door.send(b"")
    with http_door(response("200 OK", b"<html>")) as door:
        with pytest.raises(BridgeRefused, match="6 bytes that no bridge would"):
            door.send(b"")
        with pytest.raises(BridgeRefused, match="6 bytes that no bridge would"):
            door.put_mapping(EMPTY)


def test_nobody_is_there() -> None:
    """An address where nobody listens."""
    with http_bridge(b"") as server:
        pass
    with pytest.raises(BridgeUnavailable) as away:
        HttpDoor(server, TlsFiles(), None).send(b"")
    assert away.value.reason == UNREACHABLE


def test_a_token_stays_inside_tls() -> None:
    """It is not sent to another machine in plain text, unless that was asked for."""
    with pytest.raises(ConfigError, match="--plain-token"):
        HttpDoor("http://bridge.example:4418", TlsFiles(), lambda: "secret")
    HttpDoor("http://bridge.example:4418", TlsFiles(), lambda: "secret", plain_token=True)
    HttpDoor("127.0.0.1:4418", TlsFiles(), lambda: "secret")
