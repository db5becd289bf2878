"""What stands around a pipeline: books, back ends, and a sieve that keeps nothing back."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from support.scenes import batch_of, call, execute, runtime
from support.spools import NOTHING, outlet_of

from otel_bridge.export.protocol import Sent
from otel_bridge.model.events import EventBatch
from otel_bridge.pipeline.loop import Pipeline
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Record


@dataclass
class Books:
    """A ledger that remembers."""

    emitted_events: int = 0
    emitted_spans: int = 0
    cut_texts: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def emitted(self, events: int, spans: int) -> None:
        """The back end took the spans of these events."""
        self.emitted_events += events
        self.emitted_spans += spans

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:  # noqa: ARG002 - as the protocol says
        """Events were given up."""
        self.drops[reason] += events

    def resolved(self, events: int, status: str, delegate: str) -> None:  # noqa: ARG002 - as the protocol says
        """Delegate events got a status."""
        self.statuses[status] += events

    def cut(self, texts: int) -> None:
        """Texts were cut."""
        self.cut_texts += texts


class BackEnd:
    """An exporter that answers by a script, and then takes everything."""

    def __init__(self, *answers: Sent | Exception) -> None:
        self.answers = list(answers)
        self.taken: list[bytes] = []
        self.tenants: list[str] = []

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """Answer as the script says."""
        answer = self.answers.pop(0) if self.answers else Sent()
        if isinstance(answer, Exception):
            raise answer
        self.taken.append(payload)
        self.tenants.append(tenant)
        return answer

    async def close(self) -> None:
        """Nothing to let go of."""


class Stuck(BackEnd):
    """A back end that never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
        """Wait for ever."""
        self.taken.append(payload)
        self.reached.set()
        await asyncio.Event().wait()
        return Sent()


async def everything(records: Sequence[Record]) -> list[Record]:
    """No record waits."""
    return list(records)


def inference(position: int, events: int = 4) -> EventBatch:
    """A batch of one inference."""
    calls = [call("OPERATOR_CALL", n, n, n + 1) for n in range(events - 1)]
    return batch_of((execute(position), [*calls, runtime("Method::execute", 0, 99)]))


async def drain(
    batches: list[EventBatch], back_end: BackEnd, stages: Stages, limit: int = 10**6, *, by_tenant: bool = False
) -> Books:
    """Run a pipeline over the batches until nothing is left."""
    books = Books()
    spool = MemorySpool(10**9, NOTHING)
    for batch in batches:
        await spool.append(batch)
    spool.close()
    await Pipeline(outlet_of(spool), stages, back_end, books, sift=everything, limit_bytes=limit, by_tenant=by_tenant).run()
    assert outlet_of(spool).events == 0
    return books
