"""
The tokens of a running bridge.

Invariants
* `refresh` reads the files that changed, off the event loop; `find` looks at what was read, and never waits.
* A file that cannot be read or understood changes nothing: the tokens that it had go on, and an error is logged once.
  A file that is gone holds no tokens.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from otel_bridge.auth.book import Tokens, read_tokens
from otel_bridge.auth.file_state import FileState, state_of
from otel_bridge.auth.token import Token
from otel_bridge.errors import ConfigError

_log = logging.getLogger(__name__)


class Keyring:
    """The tokens in some files; of two with one id that of the earlier file counts. Raises `ConfigError`."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        self._read: dict[Path, tuple[FileState | None, Tokens]] = {}
        self._told: dict[Path, str] = {}
        self._by_id: dict[str, Token] = {}
        for file in self._files:
            self._look(file)
        self._index()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, token_id: str) -> Token | None:
        """The token of that id."""
        return self._by_id.get(token_id)

    def refresh(self) -> None:
        """Read what changed."""
        for file in self._files:
            try:
                self._look(file)
                self._told.pop(file, None)
            except ConfigError as error:
                if self._told.get(file) != str(error):
                    _log.error("%s; it is tried again, and until then the tokens count that were read before", error)
                self._told[file] = str(error)
        self._index()

    def _look(self, file: Path) -> None:
        found = state_of(file)  # before reading: what changes meanwhile is read next time
        if file not in self._read or found != self._read[file][0]:
            self._read[file] = (found, read_tokens(file))

    def _index(self) -> None:
        # Replaced, never changed: this is another thread than that of the readers.
        self._by_id = {token.id: token for file in reversed(self._files) for token in self._read[file][1]}
