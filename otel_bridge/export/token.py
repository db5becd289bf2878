"""
A bearer token, given or kept in a file.

Invariants
* A token in a file is read again when the file changes, so whoever renews it need not restart the program that sends it; while
  the file holds none, the last good one is used (config/reload.py).
* A token is never part of a message.
"""

from pathlib import Path
from typing import Protocol

from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import ConfigError


class Token(Protocol):
    """Where a token comes from."""

    def __call__(self) -> str:
        """The token as it is now."""
        ...


def open_token(token: str | Path, *, name: str = "token") -> Token:
    """
    The token itself, or the file that holds it; `name` is what the user calls it, for errors.

    Raises ConfigError where there is none to begin with.
    """
    if isinstance(token, Path):
        return Reloaded([token], lambda: _read(token, name)).refresh
    checked = _checked(token, name)
    return lambda: checked


def _read(path: Path, name: str) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise ConfigError(f"{name}: the file {path} cannot be read: {error.strerror}") from error
    return _checked(text.strip(), f"{name}: the file {path}")


def _checked(token: str, what: str) -> str:
    if not token or not all("!" <= each <= "~" for each in token):
        raise ConfigError(f"{what} must hold one token of printable ASCII without spaces")
    return token
