"""
A relay between a client and its server, which counts what the client sends.

    with Relay(server.address) as relay:
        ...    # talk to relay.address
    assert relay.sent_bytes < 1000
"""

import socket
import threading
from contextlib import suppress
from typing import Self

from support.processes import LOOPBACK


class Relay:
    """Takes connections inside a `with` block, and makes one to `target` (`host:port`) for each."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server((LOOPBACK, 0))
        self._open = [self._listener]
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            with suppress(OSError):  # the peer was quicker
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink, source is client), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_clients: bool) -> None:  # noqa: FBT001 - of a thread
        with suppress(OSError):  # either end is closed
            while data := source.recv(1 << 16):
                self.sent_bytes += len(data) if is_clients else 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
