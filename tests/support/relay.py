"""
A relay between a client and its server, which counts what the client sends, and breaks off when it is told to.

    with Relay(server.address) as relay:
        ...    # talk to relay.address
        relay.cut()
    assert relay.sent_bytes < 1000
"""

import socket
import struct
import threading
from contextlib import suppress

from support.listener import Listener

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Relay(Listener):
    """
    Takes connections inside a `with` block, and makes one to `target` (`host:port`) for each.

    greeting     not empty: whoever connects is told this, and nothing else
    greeted      how many were
    sent_bytes   that clients sent
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.sent_bytes = self.greeted = 0
        self.greeting = b""

    def cut(self) -> None:
        """Reset every connection that there is."""
        listener, *connections = self.opened
        self.opened = [listener]
        for each in connections:
            with suppress(OSError):  # the peer was quicker
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                each.shutdown(socket.SHUT_RD)  # wakes the thread that reads it, so that the close counts
            each.close()

    def meet(self, client: socket.socket) -> None:
        """Connect it, or greet it."""
        if self.greeting:
            with client, suppress(OSError):
                client.sendall(self.greeting)
                client.recv(1 << 16)  # else the kernel would reset, and the client not read
            self.greeted += 1
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:  # nobody is there, and the client is to see that
            client.close()
            return
        self.opened += [client, server]
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=(source, sink, source is client), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_clients: bool) -> None:  # noqa: FBT001 - of a thread
        with suppress(OSError):  # either end is closed
            while data := source.recv(1 << 16):
                self.sent_bytes += len(data) if is_clients else 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
