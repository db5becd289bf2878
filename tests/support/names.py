"""
A name server of one name, for tests of a back end that moves.

    with NameServer("back-end.test", "127.0.0.1") as names:
        target = f"dns://{names.address}/back-end.test:4317"    # gRPC asks this server
        names.now = "127.0.0.2"
"""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_HEADER = struct.Struct(">HHHHHH")
_ADDRESS, _INTERNET = 1, 1


class NameServer:
    """
    Answers over UDP, on loopback, in a thread of its own.

    now      what address the name has; it may be asked again at once (time to live 0)
    asked    how often the address was asked for
    """

    def __init__(self, name: str, now: str) -> None:
        self.now = now
        self.asked = 0
        self._name = name.lower()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            question, peer = self._socket.recvfrom(512)
            if not question:
                return
            self._socket.sendto(self._answer(question), peer)

    def _answer(self, question: bytes) -> bytes:
        """The address, where that is asked for; else that there is nothing of the kind."""
        number, *_ = _HEADER.unpack_from(question)
        labels, position = [], _HEADER.size
        while length := question[position]:
            labels.append(question[position + 1 : position + 1 + length].decode())
            position += 1 + length
        asked = question[_HEADER.size : position + 5]
        kind, _ = struct.unpack_from(">HH", question, position + 1)
        if ".".join(labels).lower() != self._name or kind != _ADDRESS:
            return _HEADER.pack(number, 0x8180, 1, 0, 0, 0) + asked
        self.asked += 1
        record = struct.pack(">HHHIH", 0xC00C, _ADDRESS, _INTERNET, 0, 4) + socket.inet_aton(self.now)
        return _HEADER.pack(number, 0x8180, 1, 1, 0, 0) + asked + record
