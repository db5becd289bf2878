"""A listener on loopback that hands each connection over, inside a `with` block, after which nothing of it is open."""

import socket
import threading
from contextlib import suppress
from typing import Self

from support.processes import LOOPBACK


class Listener:
    """
    What takes connections. Whoever derives from it says what becomes of one, in `meet`.

    address   `host:port`, from the start of the block
    """

    def __enter__(self) -> Self:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.opened = [self._listener]
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.opened:
            with suppress(OSError):  # the peer was quicker
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def meet(self, client: socket.socket) -> None:
        """A connection is there. What is to be closed at the end goes into `opened`."""
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                self.meet(self._listener.accept()[0])
