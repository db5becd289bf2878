"""Watching requests. Exporters know nothing of metrics; this wrapper tells a `Watch` how each request went."""

import time
from collections.abc import Callable
from typing import Protocol

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.protocol import Exporter, Sent


class Watch(Protocol):
    """Who is told. One call for each request, at its end (a request that is cancelled is not told), and what else happens."""

    def request_sent(self, *, payload_bytes: int, rejected_spans: int, seconds: float) -> None:
        """The back end took the payload, but for `rejected_spans`. `seconds` is the time to its answer."""
        ...

    def request_failed(self, *, reason: str, payload_bytes: int, seconds: float) -> None:
        """The back end did not take the payload; `reason` is that of the error."""
        ...

    def request_halved(self, *, reason: str) -> None:
        """A refused request is sent again in two halves."""
        ...

    def circuit_changed(self, state: str) -> None:
        """Whether requests may go: a `circuit.State` by its value."""
        ...


class Observed:
    """Tells `watch` of every request that `inner` makes."""

    def __init__(self, inner: Exporter, watch: Watch, *, now: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._watch = watch
        self._now = now

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        started = self._now()
        try:
            sent = await self._inner.send(payload, tenant)
        except (BackEndUnavailable, ExportRejected) as error:
            self._watch.request_failed(reason=error.reason, payload_bytes=len(payload), seconds=self._now() - started)
            raise
        self._watch.request_sent(payload_bytes=len(payload), rejected_spans=sent.rejected_spans, seconds=self._now() - started)
        return sent

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._inner.close()
