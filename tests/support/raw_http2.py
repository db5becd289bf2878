"""
A server of raw HTTP/2 frames, for what no server sends of its own accord: each connection is played by a script.

    def script(connection: RawConnection) -> None:
        call = connection.read_call()
        connection.send_answer(call.stream, padding=7)

    with RawPeer(script) as peer:
        ...                                         # connect to peer.target

Frames are made by `hyperframe`, blocks of headers by `hpack`, Huffman codes included: neither shares a line with the client.
"""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from support.processes import LOOPBACK

from otel_bridge.v1 import profiling_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE_S = 20.0

Fields = Sequence[tuple[str, str]]

HEAD: Fields = ((":status", "200"), ("content-type", "application/grpc"))
TRAILERS: Fields = (("grpc-status", "0"),)


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """A message as gRPC puts it on the wire."""
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


def frame_bytes(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """A frame of any kind, well formed or not."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


TAKEN = framed(pb.ExportEventsResponse(accepted=1).SerializeToString())


@dataclass
class RawCall:
    """A request that was read whole."""

    stream: int
    fields: dict[str, str]
    body: bytes

    @property
    def message(self) -> bytes:
        """The gRPC message that it carries."""
        assert self.body[0] == 0
        assert int.from_bytes(self.body[1:5], "big") == len(self.body) - 5
        return self.body[5:]


@dataclass
class RawConnection:
    """One connection, seen from the server. `frames` are all that were read but for the preface."""

    socket: socket.socket
    frames: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.encoder = Encoder()
        self.encoder.header_table_size = 0  # as the client announces; the first block says so by a size update
        self._decoder = Decoder()
        self._greeted = False

    def read(self, count: int) -> bytes:
        """Exactly that many bytes; EOFError if the client goes before."""
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def greet(self, settings: dict[int, int] | None = None) -> None:
        """Read the client's preface, and send the server's."""
        assert self.read(len(PREFACE)) == PREFACE
        self._greeted = True
        self.send(SettingsFrame(0, settings=settings or {}))

    def read_frame(self) -> Any:
        """The next frame; EOFError where there is none any more."""
        frame, length = Frame.parse_frame_header(memoryview(self.read(9)))
        frame.parse_body(memoryview(self.read(length)))
        self.frames.append(frame)
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.send(SettingsFrame(0, flags=["ACK"]))
        return frame

    def read_until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next frame that is wanted."""
        while not wanted(frame := self.read_frame()):
            pass
        return frame

    def read_call(self, credit: Callable[[int, int], Iterable[Frame]] | None = None) -> RawCall:
        """
        The next request, whole. Greets first, where that was not done.

        credit   called with a stream and the size of each DATA frame on it: the frames to send then. None: as much credit again
        """
        if not self._greeted:
            self.greet()
        call = RawCall(0, {}, b"")
        body = bytearray()
        ended = False
        while not ended:
            frame = self.read_frame()
            if isinstance(frame, HeadersFrame):
                assert "END_HEADERS" in frame.flags
                call.stream, call.fields = frame.stream_id, {str(k): str(v) for k, v in self._decoder.decode(frame.data)}
            if isinstance(frame, DataFrame):
                body += frame.data
                size = frame.flow_controlled_length
                self.send(*(_same_credit(frame.stream_id, size) if credit is None else credit(frame.stream_id, size)))
            ended = frame.stream_id == call.stream != 0 and "END_STREAM" in frame.flags
        call.body = bytes(body)
        return call

    def send(self, *frames: Frame) -> None:
        """Send frames as they are."""
        self.send_raw(b"".join(frame.serialize() for frame in frames))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that may be no frames."""
        self.socket.sendall(data)

    def send_fields(
        self, stream: int, fields: Fields, *, end: bool = False, huffman: bool = True, parts: int = 1, padding: int = 0
    ) -> None:
        """Send a block of headers, in `parts` frames, the first of them padded."""
        block = self.encoder.encode(fields, huffman=huffman)
        cuts = [len(block) * part // parts for part in range(parts + 1)]
        pieces = [block[start:stop] for start, stop in itertools.pairwise(cuts)]
        flags = ["END_STREAM"] if end else []
        first = HeadersFrame(stream, pieces[0], flags=[*flags, *(["PADDED"] if padding else [])], pad_length=padding)
        frames = [first, *(ContinuationFrame(stream, piece) for piece in pieces[1:])]
        frames[-1].flags.add("END_HEADERS")
        self.send(*frames)

    def send_answer(
        self,
        stream: int,
        body: bytes = TAKEN,
        *,
        trailers: Fields = TRAILERS,
        head: Fields = HEAD,
        padding: int = 0,
        **how: Any,
    ) -> None:
        """Send a whole answer."""
        self.send_fields(stream, head, padding=padding, **how)
        self.send(DataFrame(stream, body, flags=["PADDED"] if padding else [], pad_length=padding))
        self.send_fields(stream, trailers, end=True, padding=padding, **how)

    def answer_all(self) -> None:
        """Take every request until the client goes."""
        while True:
            self.send_answer(self.read_call().stream)

    def ping(self, opaque: bytes = b"12345678") -> None:
        """Send a PING and wait for its acknowledgement."""
        self.send(PingFrame(0, opaque))
        self.read_until(lambda frame: isinstance(frame, PingFrame) and "ACK" in frame.flags and frame.opaque_data == opaque)

    def reset(self, stream: int, code: int) -> None:
        """Send RST_STREAM."""
        self.send(RstStreamFrame(stream, code))


def _same_credit(stream: int, size: int) -> list[Frame]:
    return [WindowUpdateFrame(number, size) for number in (0, stream)] if size else []


Script = Callable[[RawConnection], None]


class RawPeer:
    """
    The server. The n-th connection is played by the n-th script, further ones by the last; it is closed when its script ends.

    An AssertionError of a script fails the `with` block; that the client went away does not.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.connections = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.target = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._accepting.join(PATIENCE_S)
        self._listener.close()
        for thread, each in zip(self._threads, self._sockets, strict=True):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
        if kind is None and self._failures:
            raise self._failures[0]

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.settimeout(PATIENCE_S)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._play, args=(script, accepted))
            self._threads.append(thread)
            self._sockets.append(accepted)
            thread.start()

    def _play(self, script: Script, accepted: socket.socket) -> None:
        try:
            with accepted:
                script(RawConnection(accepted))
        except (EOFError, ConnectionError):
            pass
        except BaseException as failure:  # noqa: BLE001  # told by the thread of the test
            self._failures.append(failure)
