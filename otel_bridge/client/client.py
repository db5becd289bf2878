"""
The client of an app: takes recordings, and sees to it that they reach the bridge.

Invariants
* What an app's thread calls while it works (`record`) does not wait, does not touch disk or network, and does not raise.
* What is written wrongly is refused when the client is made (`ConfigError`).
* In a child process that was forked, an inherited client is inert: it takes nothing, waits for nothing, and leaves connection
  and buffer to the parent. The child makes a client of its own.
"""

import asyncio
import atexit
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet

from otel_bridge.client.connection import Connection
from otel_bridge.client.counters import ClientStats, Counters, Reason
from otel_bridge.client.recording import ROW_BYTES, Recording
from otel_bridge.client.sender import Sender
from otel_bridge.client.settings import ClientSettings
from otel_bridge.client.stream import EventStream, attributes_of, model_of
from otel_bridge.errors import BridgeError, ConfigError
from otel_bridge.model.stream import Clock

_STOP_S = 5.0


class Source(Protocol):
    """Something that gathers events before it hands them over."""

    def drain(self) -> bool:
        """Hand over what there is; does not raise."""
        ...


class BridgeClient:
    """
    A client of one bridge; it may be used from several threads.

    server, token, ca, cert, key, plain_token   see `Connection`
    resource   OpenTelemetry resource attributes of app and device, such as `service.name`
    settings   see `ClientSettings`

    Raises ConfigError. Whether the bridge is there shows in `stats` and in the log, never here.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        plain_token: bool = False,
        resource: Mapping[str, object] | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self._settings = settings or ClientSettings()
        buffer = self._settings.buffer
        if buffer is not None and not buffer.parent.is_dir():
            raise ConfigError(f"buffer: the folder of {buffer} is not there; make it, or name another file")
        connection = Connection(
            server, token=token, ca=ca, cert=cert, key=key, plain_token=plain_token, gzip=self._settings.gzip
        )
        self._resource = attributes_of(resource or {})
        self._counters = Counters()
        self._sender = Sender(connection, self._settings, self._counters)
        self._sources: WeakSet[Source] = WeakSet()
        self._is_closed = False
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def stats(self) -> ClientStats:
        """What became of the events so far; nothing in a forked child."""
        if not self._sender.intake.is_here:
            return ClientStats()
        return self._counters.stats(self._sender.waiting)

    def open_stream(
        self,
        *,
        model: str | None = None,
        build_id: str | None = None,
        clocks: tuple[Clock, ...] = (Clock(),),
        runtime_version: str | None = None,
    ) -> EventStream:
        """A stream for one run of one model; `model` is NAME@VERSION, and `build_id` wins over it."""
        return EventStream(
            model=model_of(model, build_id), resource=self._resource, clocks=clocks, runtime_version=runtime_version
        )

    def record(self, recording: Recording) -> bool:
        """Take events; False: they were dropped, and counted."""
        return self._sender.intake.offer(recording)

    def attach(self, source: "Source") -> None:
        """Let `close` ask a source for what it has not handed over; it is forgotten when nobody else holds it."""
        self._sources.add(source)

    @property
    def max_rows(self) -> int:
        """Rows that a single block may hold: what the queue has memory for."""
        return max(1, self._settings.queue_bytes // ROW_BYTES - 1)

    def overflow(self, events: int) -> None:
        """Count events that were dropped before they were in a recording."""
        if events and self._sender.intake.is_here:
            self._counters.record(events)
            self._counters.drop(events, Reason.QUEUE_FULL)

    def lose_dump(self) -> None:
        """Count an ETDump that the runtime did not give out."""
        self._counters.lose_dump()

    def flush(self, timeout_s: float | None = None) -> bool:
        """
        Send what was recorded now, and wait until it has ended: accepted, or given up; False: not within `timeout_s`.

        None: as long as it takes.
        """
        try:
            return self.begin_flush().result(timeout_s)
        except NotInTime:
            return False

    def close(self, timeout_s: float | None = None) -> None:
        """
        Send what was recorded, for `timeout_s` at most (None: the setting `close_timeout_s`), and stop.

        Programs that are profiled are drained before; the open blocks of tracers are theirs.
        What is left then stays in the buffer; without a buffer it is lost, and counted.
        """
        if self._is_closed or not self._sender.intake.is_here:
            return
        for source in list(self._sources):
            source.drain()
        self._sender.intake.close()
        self.flush(self._settings.close_timeout_s if timeout_s is None else timeout_s)
        self._is_closed = True
        self._sender.stop(_STOP_S)
        atexit.unregister(self.close)

    def begin_flush(self) -> "Future[bool]":
        """`flush` without waiting."""
        if self._is_closed or not self._sender.intake.is_here:
            nothing: Future[bool] = Future()
            nothing.set_result(True)
            return nothing
        return self._sender.flush()


class AsyncBridgeClient:
    """
    The same for an event loop, as `async with AsyncBridgeClient(...) as client`. Nothing of it blocks the loop.

    The arguments are those of `BridgeClient`; what it raises is raised when the block is entered. Tracers and programs take
    `sync`, whose `record` does not wait.
    """

    def __init__(self, server: str, **arguments: object) -> None:
        self._make = partial(BridgeClient, server, **arguments)  # type: ignore[arg-type]  # checked where it is called
        self._client: BridgeClient | None = None

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(self._make)  # it reads files
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        await self.close()

    @property
    def sync(self) -> BridgeClient:
        """The client underneath. Raises BridgeError outside the block."""
        if self._client is None:
            raise BridgeError("the client is not open; use it inside `async with`")
        return self._client

    @property
    def stats(self) -> ClientStats:
        """See `BridgeClient.stats`."""
        return self.sync.stats

    def record(self, recording: Recording) -> bool:
        """See `BridgeClient.record`: it does not wait."""
        return self.sync.record(recording)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """See `BridgeClient.flush`."""
        done = asyncio.wrap_future(self.sync.begin_flush())
        finished, _ = await asyncio.wait([done], timeout=timeout_s)
        return done.result() if finished else False

    async def close(self, timeout_s: float | None = None) -> None:
        """See `BridgeClient.close`."""
        await asyncio.to_thread(self.sync.close, timeout_s)
