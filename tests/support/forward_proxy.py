"""
A proxy of HTTP/1.1 on loopback, as companies have them: a tunnel for `CONNECT`, else requests go on to the host of their URL.

    with ForwardProxy() as proxy:
        ...    # ask by way of http://{proxy.address}
    assert proxy.heads[0].startswith(b"CONNECT ")
"""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from support.listener import Listener


class ForwardProxy(Listener):
    """
    Takes connections inside a `with` block.

    refusal   what it answers every request, and hangs up; None: it does what it is asked
    heads     of the first request on each connection, up to the empty line
    """

    def __init__(self, refusal: bytes | None = None) -> None:
        self.refusal = refusal
        self.heads: list[bytes] = []

    def meet(self, client: socket.socket) -> None:
        """Do what it asks, in a thread."""
        self.opened.append(client)
        threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with suppress(OSError):
            begun = b""
            while b"\r\n\r\n" not in begun:
                if not (more := near.recv(65_536)):
                    return
                begun += more
            self.heads.append(begun.partition(b"\r\n\r\n")[0])
            if self.refusal is not None:
                near.sendall(self.refusal)
                near.shutdown(socket.SHUT_RDWR)
                return
            method, target = begun.split()[:2]
            is_tunnel = method == b"CONNECT"
            to = urlsplit(f"//{target.decode()}" if is_tunnel else target.decode())
            far = socket.create_connection((to.hostname, to.port))
            self.opened.append(far)
            if is_tunnel:
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far.sendall(begun)
            threading.Thread(target=_pump, args=(far, near), daemon=True).start()
            _pump(near, far)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
