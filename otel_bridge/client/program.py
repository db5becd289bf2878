"""
A program of ExecuTorch's Python runtime whose executions are profiled (executorch/runtime/__init__.py).

Invariants
* A method executes as before: same arguments, same outputs, same errors. What goes wrong with profiling is logged and counted.
* Executions of one program exclude each other: its methods share one tracer, which is not thread-safe.
"""

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from otel_bridge.client.client import AsyncBridgeClient, BridgeClient
from otel_bridge.client.current_span import current_context
from otel_bridge.client.drained import Execution
from otel_bridge.client.drains import Drains, NothingToDrain
from otel_bridge.client.stream import attributes_of
from otel_bridge.model.stream import Attributes, Clock

_log = logging.getLogger(__name__)

_ERROR_CODE = re.compile(r"\berror 0x([0-9a-fA-F]{1,8})\b")
_ATTRIBUTES = Mapping[str, object]


class NotProfiled(ValueError):
    """The program was loaded without `enable_etdump=True`."""


def profile_program(
    program: Any,
    client: BridgeClient | AsyncBridgeClient,
    *,
    model: str | None = None,
    build_id: str | None = None,
    every: int = 16,
    every_s: float = 5.0,
    attributes: _ATTRIBUTES | Callable[[], _ATTRIBUTES] | None = None,
) -> "ProfiledProgram":
    """
    A program that executes as `program` does, and whose events go to `client`.

    program     of `Runtime.get().load_program(..., enable_etdump=True)`; not with `debug_buffer_size`: the runtime aborts the
                process when such a program is executed after a drain
    model       NAME@VERSION, the alias of its mapping
    build_id    names the build itself, and wins
    every       executions after which the runtime is drained: one drain takes some 50 us
    every_s     it is also drained by the first execution that ends so long after the last drain, in seconds
    attributes  of each inference, or a function that tells them after it, such as the thermal state

    Raises NotProfiled; ValueError where `every` is below 1.
    """
    has_etdump = getattr(getattr(program, "_program", None), "has_etdump", None)
    if has_etdump is not None and not has_etdump():
        raise NotProfiled("the program has no ETDump; load it by load_program(..., enable_etdump=True)")
    if every < 1:
        raise ValueError(f"every: is {every}; it must be 1 or more")
    taker = client.sync if isinstance(client, AsyncBridgeClient) else client
    # ExecuTorch's ticks on POSIX are nanoseconds (runtime/platform/default/posix.cpp).
    stream = taker.open_stream(model=model, build_id=build_id, clocks=(Clock(name="host"),), runtime_version=_runtime_version())
    drains = Drains(program, taker, stream, every=every, every_s=every_s)
    profiled = ProfiledProgram(program, drains, attributes)
    taker.attach(profiled)
    return profiled


class ProfiledProgram:
    """
    A program that is profiled; what is not here is the program's own.

    The last events are handed over by `drain`, at the end of a `with` block, and when the client is closed.
    """

    def __init__(
        self, program: Any, drains: Drains, attributes: _ATTRIBUTES | Callable[[], _ATTRIBUTES] | None
    ) -> None:  # fmt: skip
        self._wrapped = program
        self._drains = drains
        self._attributes = attributes
        self._lock = threading.RLock()  # a kernel written in Python may call the program that it runs in
        self._depth = 0
        self._runs: Counter[str] = Counter()
        self._methods: dict[str, ProfiledMethod] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.drain()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def load_method(self, name: str) -> "ProfiledMethod":
        """The method of that name, loaded if it is not; a failure is the program's own."""
        with self._lock:  # loading writes events
            method = self._wrapped.load_method(name)
            return self._methods.setdefault(name, ProfiledMethod(method, partial(self._execute, method, name)))

    def _execute(self, method: Any, name: str, inputs: Sequence[Any]) -> Sequence[Any]:
        with self._lock:
            context = current_context()
            error: BaseException | None = None
            self._depth += 1
            try:
                outputs: Sequence[Any] = method.execute(inputs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                returned_ns = time.monotonic_ns()
                self._depth -= 1
                index, self._runs[name] = self._runs[name], self._runs[name] + 1
                self._drains.note(
                    Execution(name, index, context, self._told(), error is not None, _code_of(error), returned_ns)
                )
                if not self._depth:
                    self._drains.drain_if_due()
            return outputs

    def drain(self) -> bool:
        """Hand over what was executed since the last drain; False: nothing was, or the runtime did not give it out."""
        with self._lock:
            return not self._depth and self._drains.drain()

    def write_etdump_result_to_file(self, etdump_path: str | Path, debug_buffer_path: str | Path) -> None:
        """
        Write the ETDump since the last drain to a file, too.

        Raises NothingToDrain where the runtime itself would crash.
        """
        with self._lock:
            if self._depth:
                raise NothingToDrain("a method of the program is being executed on this thread: drain after it has returned")
            self._drains.write(etdump_path, debug_buffer_path)

    def _told(self) -> Attributes:
        if self._attributes is None:
            return ()
        try:
            return attributes_of(self._attributes() if callable(self._attributes) else self._attributes)
        except Exception:  # noqa: BLE001 - the function is the app's, and the inference is over: nothing of it may fail now
            _log.exception("the attributes of an inference could not be told")
            return ()


class ProfiledMethod:
    """A method of a profiled program; what is not here is the method's own."""

    def __init__(self, method: Any, execute: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._wrapped = method
        self._execute = execute

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """What the method makes of the inputs; raises what it raises."""
        return self._execute(inputs)


def _code_of(error: BaseException | None) -> int | None:
    """The `executorch::runtime::Error` in a message (extension/pybindings/pybindings.cpp); None: there is none."""
    found = _ERROR_CODE.search(str(error)) if isinstance(error, RuntimeError) else None
    return int(found[1], 16) if found else None


def _runtime_version() -> str | None:
    try:
        return version("executorch")
    except PackageNotFoundError:
        return None
