"""
What uvicorn gets to see of the transport of a connection.

Invariants
* Nothing is read as long as requests wait behind the one that is answered.
* A connection that is to end while its client still sends ends in two steps: the answer and its end are sent, and what comes
  is thrown away until the client closes, or has sent or taken too much. What arrives after the end of a connection resets it,
  and takes along what the client has not read (RFC 9112, 9.6).
"""

import asyncio
from collections.abc import Collection

from uvicorn.protocols.http.flow_control import FlowControl

PARTING_S = 5.0
PARTING_BYTES = 16 << 20
"""How long a client may go on after its answer, and how much it may send; neither holds any memory."""


class Flow(FlowControl):
    """Reads while no request is in `pipeline`."""

    def __init__(self, transport: asyncio.Transport, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Read on, if nothing waits."""
        if not self._pipeline:
            super().resume_reading()


class Parting:
    """
    Takes the place of a transport where answers are written and, after the last, the connection is closed.

    is_sending   whether the client has more to send than has come; to be set: a question to who knows would be a cycle
    longest_s    how long it may do so after its answer
    """

    def __init__(self, transport: asyncio.Transport, longest_s: float) -> None:
        self.write, self.is_closing = transport.write, transport.is_closing
        self.has_begun = self.is_sending = False
        self._transport = transport
        self._longest_s = min(longest_s, PARTING_S)
        self._left_bytes = PARTING_BYTES

    def close(self) -> None:
        """End the connection once the client has read what was written, or has had its time."""
        if self.has_begun or self.is_closing() or not self.is_sending:
            self._transport.close()
            return
        self.has_begun = True
        if self._transport.can_write_eof():  # TLS has no half of a connection: there the answer has to say that it is the last
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(self._longest_s, self._transport.abort)

    def discard(self, data: bytes) -> None:
        """Throw away what came since."""
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self._transport.abort()
