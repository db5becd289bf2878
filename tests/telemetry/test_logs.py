"""Logs: one record, one line, whatever stands in it."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import unchanged

from otel_bridge.telemetry import logs

logger = logging.getLogger("otel_bridge.test")


@pytest.fixture
def log_to() -> Iterator[Callable[..., io.StringIO]]:
    """Set logging up into a buffer, and put everything back afterwards."""

    def configure(**settings: str) -> io.StringIO:
        stream = io.StringIO()
        logs.configure(stream=stream, **settings)
        return stream

    with unchanged():
        yield configure


def test_text_is_one_line_a_record(log_to: Callable[..., io.StringIO]) -> None:
    """A line has time, level, logger and message; a line end in a message cannot start a new line."""
    stream = log_to(form="text")
    logger.warning("stream %s is odd", "a\n2026-01-01 ERROR forged\x1b[2J")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING otel_bridge.test: stream a\\n2026-01-01 ERROR forged\\x1b[2J is odd")


@given(st.text())
def test_json_is_one_object_a_record(text: str) -> None:
    """Any message makes one line of JSON that reads back, in ASCII."""
    line = logs.JsonFormatter().format(logging.LogRecord("otel_bridge.test", logging.ERROR, "", 0, "%s", (text,), None))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == logs.escape(text)


@given(st.text(alphabet=st.characters(codec=None)))
def test_escaped_text_can_be_printed(text: str) -> None:
    """What is escaped is printable, lone surrogates included, and printable text is left alone."""
    shown = logs.escape(text)
    assert shown.isprintable()
    assert (shown == text) == text.isprintable()


def test_messages_are_bounded() -> None:
    """A message is cut at the bound and says how much is missing."""
    assert logs.escape("x" * 5000) == "x" * logs.MAX_MESSAGE_LENGTH + f"... ({5000 - logs.MAX_MESSAGE_LENGTH} characters more)"


@pytest.mark.parametrize("form", ["text", "json"])
def test_tracebacks_are_kept(log_to: Callable[..., io.StringIO], form: str) -> None:
    """An exception's traceback follows its message, each line escaped."""
    stream = log_to(form=form)
    try:
        int("bad\x07value")
    except ValueError:
        logger.exception("it failed")
    written = stream.getvalue()
    lines = json.loads(written)["traceback"] if form == "json" else written.splitlines()
    assert lines[-1].strip() == "ValueError: invalid literal for int() with base 10: 'bad\\x07value'"
    assert any("test_tracebacks_are_kept" in line for line in lines)


def test_libraries_are_quiet(log_to: Callable[..., io.StringIO]) -> None:
    """The asked level is the bridge's own; libraries are heard from WARNING on."""
    stream = log_to(level="DEBUG")
    logger.debug("ours")
    logging.getLogger("httpx").info("each request")
    logging.getLogger("httpx").warning("trouble")
    assert [line.split(": ")[1] for line in stream.getvalue().splitlines()] == ["ours", "trouble"]


def test_setting_up_again_replaces(log_to: Callable[..., io.StringIO]) -> None:
    """The last set-up counts, and no record is written twice."""
    first, second = log_to(), log_to(level="ERROR")
    logger.warning("too low")
    logger.error("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_an_unknown_level_is_refused() -> None:
    """A level that `logging` does not know raises."""
    with pytest.raises(ValueError, match="LOUD"):
        logs.configure(level="LOUD")
