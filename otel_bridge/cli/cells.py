"""Foreign text in tables: on one line, without escape sequences, and never taken for the markup of `rich`."""

from rich.text import Text

from otel_bridge.telemetry.logs import escape


def cell(text: str) -> Text:
    """The text as a cell of a table."""
    return Text(escape(text))
