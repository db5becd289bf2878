"""
One bridge, one data directory: two would send the same events, and each miss what the other keeps.

Invariant: the kernel holds the claim, so it ends with the process, whatever ends that, and with the last of the workers that
inherited it. The number in the file is for people.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from otel_bridge.errors import ConfigError

FILE_NAME = "bridge.pid"
"""The file that is locked, in the data directory."""


class Claim:
    """
    The data directory is this process's, until `release`.

    Raises `ConfigError` where another process has it.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / FILE_NAME
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # what devices said, in files that others could read
            self._file: IO[bytes] = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(
                f"server.data_dir ({directory}) cannot be used: {error.strerror}; name a directory that can be written"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(20).decode("ascii", "replace").strip()
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise ConfigError(
                    f"server.data_dir ({directory}) cannot be locked: {error.strerror}; name a directory on a local disk"
                ) from error
            raise ConfigError(f"server.data_dir ({directory}) is in use by {_named(holder)}") from error
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n".encode())

    def fileno(self) -> int:
        """The descriptor; a process that inherits it has the claim too."""
        return self._file.fileno()

    def release(self) -> None:
        """Let another process have it."""
        self._file.close()


def _named(holder: str) -> str:
    """Who has the directory, and the way out."""
    with suppress(ValueError, PermissionError):
        try:
            os.kill(int(holder), 0)
        except ProcessLookupError:
            return f"workers of process {int(holder)}, which is gone; they end once they have drained: try again then"
    return f"process {ascii(holder)[1:-1] or 'unknown'}; stop that one, or name another directory"
