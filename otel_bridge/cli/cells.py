"""Tables in the terminal, and foreign text in them: on one line, without escape sequences, never taken for markup of `rich`."""

from rich.console import Console
from rich.text import Text

from otel_bridge.telemetry.logs import escape

_PIPED_WIDTH = 250


def console() -> Console:
    """Standard output; wide where it is no terminal, so that nothing is cut for whoever reads the pipe."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PIPED_WIDTH)


def cell(text: str) -> Text:
    """The text as a cell of a table."""
    return Text(escape(text))
