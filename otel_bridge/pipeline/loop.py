"""
From the spool to the back end, for as long as the bridge runs.

Invariants
* Each event that leaves the spool ends once: emitted, or dropped with a reason. `Ledger` is told how.
* A batch that cannot be processed costs itself: its neighbours are processed one by one.
* Resolving runs in a thread, so the event loop goes on taking requests.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from otel_bridge.errors import BridgeError
from otel_bridge.export.protocol import Exporter
from otel_bridge.model.events import EventBatch, concatenate
from otel_bridge.pipeline.stages import Stages, count_by_status
from otel_bridge.spans.assemble import Payload, assemble
from otel_bridge.spool.protocol import Record, Spool

_log = logging.getLogger(__name__)

BATCH_EVENTS = 4096
"""Events that are resolved in one pass: enough to spread the cost of a pass, little enough to fit a processor's cache."""


class Ledger(Protocol):
    """Told how events end."""

    def emitted(self, events: int, spans: int) -> None:
        """The back end took the spans of these events."""

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:
        """Events were given up, and so many of their spans were refused by the back end or not taken in time."""

    def resolved(self, events: int, status: str, delegate: str) -> None:
        """Delegate events of a backend (or "") got this status."""


class Pipeline:
    """
    Takes records from the spool, resolves them and sends the spans.

    limit_bytes   size of a request to the back end
    """

    def __init__(self, spool: Spool, stages: Stages, exporter: Exporter, ledger: Ledger, limit_bytes: int) -> None:
        self._spool = spool
        self._stages = stages
        self._exporter = exporter
        self._ledger = ledger
        self._limit_bytes = limit_bytes

    async def run(self, workers: int = 2) -> None:
        """Work until the spool is closed and empty; `workers` records are on their way at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while records := await self._spool.read(BATCH_EVENTS):
            left = sum(len(record.batch) for record in records)
            try:
                payloads = await self._resolve(records)
                left = sum(payload.events for payload in payloads)
                for payload in payloads:
                    await self._deliver(payload)
                    left -= payload.events
            except asyncio.CancelledError:
                _log.error("%d events were on their way when the time to stop was up, and are dropped", left)
                self._ledger.dropped(left, "shutdown")
                raise
            finally:
                await self._spool.done(records)

    async def _resolve(self, records: Sequence[Record]) -> list[Payload]:
        batches = [record.batch for record in records]
        try:
            return await asyncio.to_thread(self._payloads, batches)
        except Exception:  # noqa: BLE001 - a fault in one batch must not cost its neighbours, or the service
            _log.exception("a pass over %d batches failed; they are processed one by one", len(batches))
        payloads = []
        for batch in batches:
            try:
                payloads += await asyncio.to_thread(self._payloads, [batch])
            except Exception:  # noqa: BLE001 - as above
                _log.exception("a batch of %d events cannot be processed and is dropped", len(batch))
                self._ledger.dropped(len(batch), "internal")
        return payloads

    def _payloads(self, batches: list[EventBatch]) -> list[Payload]:
        scene = self._stages.run(concatenate(batches))
        payloads = assemble(scene, self._limit_bytes)
        for (status, delegate), events in count_by_status(scene).items():
            self._ledger.resolved(events, status, delegate)
        return payloads

    async def _deliver(self, payload: Payload) -> None:
        try:
            sent = await self._exporter.send(payload.data)
        except BridgeError as error:
            _log.warning("%d events were dropped: %s", payload.events, error)
            self._ledger.dropped(payload.events, error.reason, payload.spans)
            return
        refused_spans = min(sent.rejected_spans, payload.spans)
        refused = min(refused_spans, payload.events)  # which spans were refused is not told; nearly all are events
        if refused_spans:
            _log.warning("the back end refused %d of %d spans: %s", refused_spans, payload.spans, sent.message)
            self._ledger.dropped(refused, "partial_success", refused_spans)
        self._ledger.emitted(payload.events - refused, payload.spans - refused_spans)
