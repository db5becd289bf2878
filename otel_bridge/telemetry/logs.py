"""
Logs: one line a record on standard error, as text or JSON.

Invariants
* A record cannot forge another: characters that are not printable, line ends included, are escaped in messages.
* A record has a bound: a message is cut at `MAX_MESSAGE_LENGTH` characters, and says so.
* The same thing is not said without end: repeats.py has the bound, and a line says how many were left out.
* `otel_bridge` logs at the level that is asked for; libraries only from WARNING, because some log every request.
"""

import json
import logging
import sys
import traceback
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Literal, TextIO

from otel_bridge.telemetry.repeats import Repeats

Form = Literal["text", "json"]

MAX_MESSAGE_LENGTH = 4096
"""Characters of a message; the rest is cut."""


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again."""

    def __init__(self, stream: TextIO, repeats: Repeats) -> None:
        super().__init__(stream)
        self._repeats = repeats

    def emit(self, record: logging.LogRecord) -> None:
        for each in self._repeats.sift(record):
            super().emit(each)

    def close(self) -> None:
        with self.lock or nullcontext():
            for each in self._repeats.rest():
                super().emit(each)
        super().close()


class TextFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z WARNING otel_bridge.wire: message`, then the traceback, if any, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines of a record."""
        line = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}"
        return "\n".join([line, *(f"  {each}" for each in _traceback(record))])


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and `traceback` (list of lines) where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields: dict[str, str | list[str]] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        trace = _traceback(record)
        if trace:
            fields["traceback"] = trace
        return json.dumps(fields)


def configure(
    *, level: str = "info", form: Form = "text", stream: TextIO | None = None, burst: int = 10, period_s: float = 10.0
) -> None:
    """
    Log to `stream` (standard error if None). Called again, it replaces what it set up before.

    `level` is a name of `logging`, in any case; ValueError for what is none. Of records of one kind, `burst` are written within
    `period_s`; 0: all.
    """
    root = logging.getLogger()
    bridge = logging.getLogger("otel_bridge")
    bridge.setLevel(level.upper())
    root.setLevel(max(logging.WARNING, bridge.level))
    handler = _Handler(stream or sys.stderr, Repeats(burst, period_s))
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    for earlier in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(earlier)
        earlier.close()
    root.addHandler(handler)
    logging.captureWarnings(capture=True)


def escape(text: str, length: int = MAX_MESSAGE_LENGTH) -> str:
    """`text` with what is not printable written as Python escapes, cut at `length` characters."""
    cut = len(text) - length
    shown = text if cut <= 0 else text[:length]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
    return shown if cut <= 0 else f"{shown}... ({cut} characters more)"


def _message(record: logging.LogRecord) -> str:
    return escape(record.getMessage())


def _traceback(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[0] is None:
        return []
    lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
    return [escape(line) for line in lines]


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"
