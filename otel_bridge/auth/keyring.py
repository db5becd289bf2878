"""
The tokens of a running bridge.

Invariants
* `refresh` reads the files that changed, off the event loop; `find` looks at what was read, and never waits.
* A file that cannot be read or understood changes nothing: the tokens that it had go on, which is logged once
  (config/reload.py). A file that is gone holds no tokens.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from otel_bridge.auth.book import read_tokens
from otel_bridge.auth.token import Token
from otel_bridge.config.reload import Reloaded


class Keyring:
    """The tokens in some files; of two with one id that of the earlier file counts. Raises `ConfigError`."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [Reloaded([file], partial(read_tokens, file)) for file in files]
        self._by_id: dict[str, Token] = {}
        self.refresh()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, token_id: str) -> Token | None:
        """The token of that id."""
        return self._by_id.get(token_id)

    def refresh(self) -> None:
        """Read what changed."""
        # Replaced, never changed: this is another thread than that of the readers.
        self._by_id = {token.id: token for file in reversed(self._files) for token in file.refresh()}
