"""
A file of tokens: JSON with their hashes, in the data directory or wherever a deployment keeps it.

Invariants
* The file is replaced as a whole (files.py), so a reader sees the old or the new one; writers take turns.
* A change is on disk before it is told: what was said to be revoked does not come back with the power.
* What was revoked stays for a while, so that a log can say that a revoked token is still in use.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from otel_bridge.auth.token import State, Token
from otel_bridge.errors import ConfigError
from otel_bridge.files import replace_file

FILE_NAME = "tokens.json"
"""The file's name in the data directory."""

REMEMBERED = timedelta(days=90)
"""How long a token is listed after its end."""

Tokens = tuple[Token, ...]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    tokens: Tokens = ()


def read_tokens(path: Path) -> Tokens:
    """The tokens in a file; none where there is no file. Raises `ConfigError` where it cannot be read or understood."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"the tokens in {path} cannot be read: {error.strerror}") from error
    try:
        return _Document.model_validate_json(text).tokens
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the start"
        raise ConfigError(
            f"{path} holds no tokens as `otel-bridge token create` writes them: at {place}: {first['msg']}"
        ) from error


def change_tokens(path: Path, change: Callable[[Tokens], Sequence[Token]], now: datetime) -> None:
    """
    Replace the tokens in a file by what `change` makes of them; nobody else writes meanwhile.

    Raises `ConfigError` where the file cannot be read or written, and what `change` raises; then nothing is changed.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _turn(path) as folder:
            kept = [each for each in change(read_tokens(path)) if not _is_forgotten(each, now)]
            replace_file(path, (_Document(tokens=tuple(kept)).model_dump_json(indent=2) + "\n").encode())
            os.fsync(folder)
    except OSError as error:
        raise ConfigError(f"the tokens in {path} cannot be written: {error.strerror}") from error


def _is_forgotten(token: Token, now: datetime) -> bool:
    return token.state(now - REMEMBERED) is not State.ACTIVE


@contextmanager
def _turn(path: Path) -> Iterator[int]:
    """The folder, open, which is locked, since the file is another one after each change."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(folder)
