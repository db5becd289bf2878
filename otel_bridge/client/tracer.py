"""
ExecuTorch's `EventTracer` in Python (runtime/core/event_tracer.h): for delegates and runtimes with a Python half.

Invariants
* Each thread has its own event block, instruction and method, so one tracer may serve many threads; events of two never mix,
  and a thread that gets the number of one that has ended gets nothing else of it.
* An event costs a tuple. Nothing is encoded, sent or waited for on the thread that records.
* Misuse by the author of the instrumentation raises a `MisusedTracer` where it is written; nothing that a run brings raises.
* As in ExecuTorch: events stand in the order in which they ended; the end of a delegate's event is put down to the instruction
  that is current then (devtools/etdump/etdump_flatcc.cpp, `end_profiling_delegate`); a clock that stands still or runs back is
  recorded as it is.
* A block is bounded by the memory of the queue: what an endless one holds beyond it is dropped, and counted.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from weakref import ref

from otel_bridge.client.client import AsyncBridgeClient, BridgeClient
from otel_bridge.client.current_span import current_context
from otel_bridge.client.entry import EventTracerEntry, NoEventBlock, WrongEntry, WrongIdentifier, WrongValue
from otel_bridge.client.event_block import OpenBlock, error_code, instruction_of
from otel_bridge.client.recording import CALL, DELEGATE, RUNTIME, SCOPE
from otel_bridge.model.events import CALL_NAMES, Identifier
from otel_bridge.model.stream import Anchor, Clock

_U64 = 2**64 - 1
_NO_CHAIN, _NO_HANDLE = -1, 0
_FEW = 16
"""Open blocks among which nobody looks for those of threads that have ended."""

_HOST = Clock(name="host")


class _Life:
    """As long as it is there, so is a thread: their numbers are given out again, and foreign ones have no `Thread`."""


class _Current(threading.local):
    """What a thread has of its own."""

    def __init__(self) -> None:
        self.block: OpenBlock | None = None
        self.method: str | None = None
        self._life = _Life()
        self.life = ref(self._life)


class EventTracer:
    """
    Records events of one model and gives each finished block to `client`.

    model            NAME@VERSION, the alias of its mapping
    build_id         names the build itself, and wins
    runtime_version  version of ExecuTorch
    ticks            the host's tick counter; by default `time.perf_counter_ns`
    clock            what a tick is: a ratio to nanoseconds, and the width of the counter
    more_clocks      of delegates that count for themselves; the first one is clock 1 of `log_profiling_delegate`
    """

    def __init__(
        self,
        client: BridgeClient | AsyncBridgeClient,
        *,
        model: str | None = None,
        build_id: str | None = None,
        runtime_version: str | None = None,
        ticks: Callable[[], int] = time.perf_counter_ns,
        clock: Clock = _HOST,
        more_clocks: tuple[Clock, ...] = (),
    ) -> None:
        self._client = client.sync if isinstance(client, AsyncBridgeClient) else client
        self._clocks = 1 + len(more_clocks)
        self._stream = self._client.open_stream(
            model=model, build_id=build_id, clocks=(clock, *more_clocks), runtime_version=runtime_version
        )
        self._ticks = ticks
        self._current = _Current()
        self._open: dict[OpenBlock, ref[_Life]] = {}  # of all threads, those included that have ended
        self._room = _FEW
        self._max_rows = self._client.max_rows

    def current_ticks(self) -> int:
        """The host's tick counter."""
        return self._ticks()

    def set_method(self, name: str | None) -> None:
        """The method that this thread runs from now on, in the current block and in those that follow; None: not known."""
        self._current.method = name
        if self._current.block is not None:
            self._current.block.method = name

    def create_event_block(
        self, name: str, *, run_index: int | None = None, attributes: Mapping[str, object] | None = None
    ) -> None:  # fmt: skip
        """
        Begin a block on this thread, and end the one before: "Default" for a load, "Execute" for an inference, or another name.

        If an OpenTelemetry span is current, the inference becomes its child. `run_index` counts executions since the load.
        """
        if not isinstance(name, str) or not name:
            raise WrongValue(f"create_event_block: the name is {name!r}; it must be a text of one character or more")
        if run_index is not None and not 0 <= run_index < 2**63:
            raise WrongValue(f"create_event_block: run_index is {run_index}; it must be 0 to 2^63 - 1")
        self.end_event_block()
        block = OpenBlock(name, self._max_rows)
        block.method, block.run_index, block.context = self._current.method, run_index, current_context()
        block.attributes.update(attributes or {})
        self._current.block = block
        self._open[block] = self._current.life
        if len(self._open) > self._room:
            self._end_orphans()

    def end_event_block(self) -> None:
        """End this thread's block, if there is one, and give it to the client."""
        block, self._current.block = self._current.block, None
        if block is not None:
            self._end(block)

    @contextmanager
    def event_block(
        self, name: str, *, run_index: int | None = None, attributes: Mapping[str, object] | None = None
    ) -> Generator[None, None, None]:
        """`create_event_block`, and `end_event_block` at the end of the `with` block."""
        self.create_event_block(name, run_index=run_index, attributes=attributes)
        try:
            yield
        finally:
            self.end_event_block()

    def set_error(self, code: int) -> None:
        """The inference of this thread's block returned this `executorch::runtime::Error` (runtime/core/error.h)."""
        self._block().error = error_code(code)

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Attributes of this thread's inference, such as the thermal state."""
        self._block().attributes.update(attributes)

    def set_chain_debug_handle(self, chain_id: int, debug_handle: int) -> None:
        """The instruction that this thread runs from now on; chain -1: none (`EventTracer::set_chain_debug_handle`)."""
        self._block().enter(chain_id, debug_handle)

    @contextmanager
    def instruction(self, debug_handle: int, chain_id: int = 0) -> Generator[None, None, None]:
        """An instruction that runs as long as the `with` block (`EventTracerProfileInstructionScope`)."""
        self._block().enter(chain_id, debug_handle)
        try:
            yield
        finally:
            self._block().enter(_NO_CHAIN, _NO_HANDLE)

    def start_profiling(self, name: str, chain_id: int = _NO_CHAIN, debug_handle: int = _NO_HANDLE) -> EventTracerEntry:
        """An event of the runtime begins; without a chain it belongs to this thread's instruction, if there is one."""
        if name.__class__ is not str or not name:
            raise WrongIdentifier(f"start_profiling: the name is {name!r}; it must be a text of one character or more")
        block = self._block()
        if chain_id == _NO_CHAIN:
            chain_id, debug_handle = block.chain_id, block.debug_handle
        else:
            instruction_of(chain_id, debug_handle)
        return EventTracerEntry(name, SCOPE, chain_id, debug_handle, self._ticks())

    def end_profiling(self, entry: EventTracerEntry) -> None:
        """An event of the runtime ends."""
        end = self._ticks()
        if entry.kind != SCOPE or not entry.is_open:
            raise _wrong(entry, "end_profiling")
        entry.is_open = False
        block = self._block()
        if entry.chain_id == _NO_CHAIN:
            kind, instruction, chain = RUNTIME, -1, 0
        else:
            kind, instruction, chain = CALL if entry.name in CALL_NAMES else SCOPE, entry.debug_handle, entry.chain_id
        block.add((kind, instruction, chain, entry.name, entry.start_time & _U64, end & _U64, 0, b""))

    def start_profiling_delegate(self, name: str | None = None, delegate_debug_id: int | None = None) -> EventTracerEntry:
        """A delegate's event begins, under a name or a number: exactly one of the two."""
        identifier = _identifier(name, delegate_debug_id)
        block = self._current.block
        if block is None or block not in self._open:
            raise _no_block()
        return EventTracerEntry(identifier, DELEGATE, block.chain_id, block.debug_handle, self._ticks())

    def end_profiling_delegate(self, entry: EventTracerEntry, metadata: bytes | None = None) -> None:
        """A delegate's event ends; `metadata` is for the delegate's own decoder, and copied."""
        end = self._ticks()
        if entry.kind != DELEGATE or not entry.is_open:
            raise _wrong(entry, "end_profiling_delegate")
        entry.is_open = False
        block = self._current.block
        if block is None or block not in self._open:
            raise _no_block()
        payload = b"" if metadata is None else block.keep(metadata)
        start = entry.start_time & _U64
        block.add((DELEGATE, block.row_instruction, block.row_chain, entry.name, start, end & _U64, 0, payload))

    def log_profiling_delegate(
        self,
        name: str | None,
        delegate_debug_id: int | None,
        start_time: int,
        end_time: int,
        metadata: bytes | None = None,
        *,
        clock: int = 0,
    ) -> None:
        """A delegate's event that has happened, in ticks of `clock` (0: the host's)."""
        identifier = _identifier(name, delegate_debug_id)
        block = self._current.block
        if block is None or block not in self._open:
            raise _no_block()
        if not 0 <= clock < self._clocks:
            raise WrongValue(f"log_profiling_delegate: clock is {clock}; the tracer has {self._clocks}, from 0")
        try:
            start, end = start_time & _U64, end_time & _U64
        except TypeError as error:
            raise WrongValue("log_profiling_delegate: start_time and end_time must be whole ticks") from error
        payload = b"" if metadata is None else block.keep(metadata)
        block.add((DELEGATE, block.row_instruction, block.row_chain, identifier, start, end, clock, payload))

    def close(self) -> None:
        """End the blocks of all threads. The tracer may be used again."""
        for block in list(self._open):
            self._end(block)

    def _block(self) -> OpenBlock:
        block = self._current.block
        if block is None or block not in self._open:
            raise _no_block()
        return block

    def _end_orphans(self) -> None:
        """End the blocks of threads that are no more, now and then: what is open stays in proportion to the threads."""
        for block, life in list(self._open.items()):
            if life() is None:
                self._end(block)
        self._room = _FEW + 2 * len(self._open)

    def _end(self, block: OpenBlock) -> None:
        if self._open.pop(block, None) is None:  # another thread has ended it
            return
        before, unix_ns, after = self._ticks(), time.time_ns(), self._ticks()
        anchor = Anchor((before + after >> 1) & _U64, unix_ns)
        self._client.overflow(block.overflow)
        self._client.record(block.finish(self._stream, anchor))


def _identifier(name: str | None, delegate_debug_id: int | None) -> Identifier:
    """The one that is given; checked in the order in which it is cheap."""
    if delegate_debug_id is None:
        if name.__class__ is str and name:
            return name
    elif (
        name is None
        and delegate_debug_id.__class__ is int
        and -(2**31) <= delegate_debug_id < 2**31
        and delegate_debug_id != -1
    ):
        return delegate_debug_id
    raise WrongIdentifier(
        f"name is {name!r} and delegate_debug_id is {delegate_debug_id!r}; exactly one of them must be given: a text of one "
        "character or more, or an int of 32 bits that is not -1 (which is ExecuTorch's word for none)"
    )


def _no_block() -> NoEventBlock:
    return NoEventBlock("no event block is open on this thread; call create_event_block here before the first event")


def _wrong(entry: EventTracerEntry, called: str) -> WrongEntry:
    if not entry.is_open:
        return WrongEntry(f"{called}: the entry of {entry.name!r} was ended before; an entry is ended once")
    return WrongEntry(f"{called}: the entry of {entry.name!r} was begun by the other kind of start; end it by its own kind")
