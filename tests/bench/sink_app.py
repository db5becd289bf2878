"""
The process behind `Sink` (sink.py): a back end that takes OTLP over gRPC and over HTTP, and counts spans.

    sink_app.py PORT HTTP_PORT

Each request is parsed by protobuf with a schema in which a span is bytes, so that the sink costs a machine as little as it can
where it shares it with what is measured. A span is counted when a whole request that holds it has arrived.
"""

import gzip
import json
import struct
import sys
import threading
import time
from concurrent import futures
from typing import Any

import grpc
import uvicorn
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MOST_BYTES = 1 << 30
KEPT = struct.Struct("<QI")
"""In front of each request that is kept: when it came, nanoseconds since 1970, and its size."""
_OPTIONS = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", MOST_BYTES)]
_UNAVAILABLE, _TAKEN = 503, 200


def _schema() -> Any:
    """ExportTraceServiceRequest, but for what is not counted: resource_spans = 1, in it scope_spans = 2, in it spans = 2."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sink.proto", package="sink", syntax="proto3")
    for name, number, inner in (("Scope", 2, ""), ("Resource", 2, ".sink.Scope"), ("Request", 1, ".sink.Resource")):
        kind = field.TYPE_MESSAGE if inner else field.TYPE_BYTES
        file.message_type.add(name=name).field.add(
            name="inner", number=number, label=field.LABEL_REPEATED, type=kind, type_name=inner or None
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sink.Request"))


_Request = _schema()


def count_spans(data: bytes) -> int:
    """Spans of an `ExportTraceServiceRequest`."""
    return sum(len(scope.inner) for resource in _Request.FromString(data).inner for scope in resource.inner)


class _Handler(grpc.GenericRpcHandler):
    """Takes exports, and does what `Sink` asks by the last part of a method's name."""

    def __init__(self) -> None:
        self.spans = self.bytes = self.requests = 0
        self.keeping = self.holding = False
        self.kept: list[tuple[int, bytes]] = []
        self.last = b""
        self.lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The function for a method."""
        return grpc.unary_unary_rpc_method_handler(getattr(self, details.method.rpartition("/")[2].lower()))

    def export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        """A request of OTLP over gRPC."""
        if self.holding:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the back end of this benchmark is away")
        self._take(body)
        return b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """A request of OTLP over HTTP, as ASGI gives it."""
        chunks, more = [], True
        while more:
            message = await receive()
            chunks.append(message["body"])
            more = message["more_body"]
        if not self.holding:
            body = b"".join(chunks)
            self._take(gzip.decompress(body) if (b"content-encoding", b"gzip") in scope["headers"] else body)
        headers = [(b"content-type", b"application/x-protobuf"), (b"content-length", b"0")]
        status = _UNAVAILABLE if self.holding else _TAKEN
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _take(self, body: bytes) -> None:
        spans = count_spans(body)
        with self.lock:
            self.last = body
            if self.keeping:
                self.kept.append((time.time_ns(), body))
            self.requests += 1
            self.bytes += len(body)
            self.spans += spans

    def count(self, _body: bytes, _context: grpc.ServicerContext) -> bytes:
        return json.dumps({"spans": self.spans, "bytes": self.bytes, "requests": self.requests}).encode()

    def take(self, _body: bytes, _context: grpc.ServicerContext) -> bytes:
        return self.last

    def keep(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        """Keep what comes, or say what was kept and keep no more."""
        kept, self.kept, self.keeping = self.kept, [], body == b"1"
        return b"".join(KEPT.pack(at, len(each)) + each for at, each in kept)

    def hold(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        self.holding = body == b"1"
        return b""


def main() -> None:
    """Serve until somebody ends it."""
    port, http_port = map(int, sys.argv[1:])
    handler = _Handler()
    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    uvicorn.run(handler, port=http_port, http="httptools", lifespan="off", log_config=None, access_log=False)


if __name__ == "__main__":
    main()
