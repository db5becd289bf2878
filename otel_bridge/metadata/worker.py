"""
A delegate author's decoder, in a process of its own.

Invariants
* Whatever the decoder does (raise, loop for ever, use up memory, crash the interpreter), the bridge goes on.
* One that does not answer in time is ended and stays off: it would hang again, and every hang costs the time limit.
* The process is spawned, never forked: a fork of a process that runs gRPC can deadlock.
"""

import importlib
import logging
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection

from otel_bridge.errors import ConfigError
from otel_bridge.metadata.decoder import Content, Parser, content_of, undecoded

_log = logging.getLogger(__name__)

_START_S = 60.0
"""The decoder's module may import torch, which takes many seconds."""
_ENDED = object()


class Worker:
    """
    Runs `module:function`. Not thread-safe: one pipeline calls it at a time.

    Raises `ConfigError` where the function cannot be imported.
    """

    def __init__(self, target: str, time_limit_s: float) -> None:
        self._target = target
        self._time_limit_s = time_limit_s
        self._off = ""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (target, theirs, list(sys.path))
        self._process = context.Process(target=_serve, args=arguments, daemon=True, name=f"decoder {target}")
        self._process.start()
        theirs.close()
        fault = self._receive(_START_S)
        if fault != "":
            self.close()
            found = fault if isinstance(fault, str) else "did not become ready"
            raise ConfigError(f"metadata parser {target!r} {found}")

    def decode(self, data: bytes) -> Content:
        """What the decoder makes of the bytes; undecoded with the reason where it fails."""
        if self._off:
            return undecoded(data, self._off)
        try:
            self._connection.send_bytes(data)
            answer = self._receive(self._time_limit_s)
        except OSError:
            answer = _ENDED
        if isinstance(answer, Content):
            return answer
        why = "its process ended" if answer is _ENDED else f"no answer within {self._time_limit_s:g} s"
        self._off = f"the decoder was switched off: {why}"
        self.close()
        _log.warning("metadata parser %s: %s; its metadata stays raw until the bridge starts again", self._target, self._off)
        return undecoded(data, self._off)

    @property
    def is_off(self) -> bool:
        """Whether the decoder was ended for good."""
        return bool(self._off)

    def close(self) -> None:
        """End the process."""
        if self._connection.closed:
            return
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()

    def _receive(self, time_limit_s: float) -> object:
        """The worker's next answer; None: none in time; `_ENDED`: its process is gone."""
        try:
            return self._connection.recv() if self._connection.poll(time_limit_s) else None
        except (EOFError, OSError):
            return _ENDED


def load_parser(target: str) -> Parser:
    """
    Import `module:function`.

    Raises `ValueError` in words that complete "metadata parser 'x' ...".
    """
    module, colon, function = target.partition(":")
    if not colon or not module or not function:
        raise ValueError("must look like module:function")
    try:
        parser = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ValueError(f"cannot be imported: {error}") from error
    except AttributeError as error:
        raise ValueError(f"has no function {function!r} in module {module!r}") from error
    if not callable(parser):
        raise ValueError("is not callable")  # noqa: TRY004 - one exception for all that a setting can have wrong
    loaded: Parser = parser
    return loaded


def _serve(target: str, connection: Connection, path: list[str]) -> None:
    """The worker's own main: answer each byte string with its `Content` until the pipe closes."""
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the bridge still has events to decode
    os.dup2(2, 1)  # what a decoder prints must not end up among the spans that go to standard output
    try:
        parser = load_parser(target)
    except ValueError as error:
        connection.send(str(error))
        return
    except Exception as error:  # noqa: BLE001 - a module may raise anything while it is imported
        connection.send(f"raised {type(error).__name__} while it was imported: {str(error)[:200]}")
        return
    connection.send("")
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        try:
            content = content_of(parser([data]), data)
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            content = undecoded(data, f"the decoder raised {type(error).__name__}: {str(error)[:200]}")
        connection.send(content)
