"""
A bearer token, given or kept in a file.

Invariants
* A token in a file is read again when the file changes, so whoever renews it need not restart the app.
* While the file cannot be read, or holds no token, the last good one is used: a moment between two writes is not an outage.
* A token is never part of a message.
"""

import logging
from pathlib import Path
from typing import Protocol

from otel_bridge.errors import ConfigError

_log = logging.getLogger(__name__)


class Token(Protocol):
    """Where a token comes from."""

    def __call__(self) -> str:
        """The token as it is now."""
        ...


def open_token(token: str | Path) -> Token:
    """The token itself, or the file that holds it. Raises ConfigError where there is none to begin with."""
    if isinstance(token, Path):
        return _FileToken(token)
    checked = _checked(token, "token")
    return lambda: checked


class _FileToken:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._token = ""
        self._is_lost = False
        try:
            self._read()
        except OSError as error:
            raise ConfigError(f"token: the file {path} cannot be read: {error.strerror}") from error

    def __call__(self) -> str:
        try:
            self._read()
            self._is_lost = False
        except (OSError, ConfigError) as error:
            if not self._is_lost:
                _log.warning("%s; the last token that was read is used", error)
            self._is_lost = True
        return self._token

    def _read(self) -> None:
        found = self._path.stat()
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            self._token = _checked(self._path.read_text(errors="replace").strip(), f"token: the file {self._path}")
            self._seen = seen


def _checked(token: str, what: str) -> str:
    if not token or not all("!" <= each <= "~" for each in token):
        raise ConfigError(f"{what} must hold one token of printable ASCII without spaces")
    return token
