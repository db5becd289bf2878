"""What keeps a bridge from starting, all of it at once: whoever repairs one thing wants to know of the next."""

import contextlib
from collections.abc import Iterator

from otel_bridge.errors import ConfigError


class Faults:
    """Tries parts that do not need each other, and remembers what each says."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """One of them: a `ConfigError` in the block ends the block and waits for `tell`."""
        try:
            yield
        except ConfigError as error:
            self._found.append(str(error))

    @property
    def are_none(self) -> bool:
        """Whether all is well so far."""
        return not self._found

    def tell(self) -> None:
        """Raises `ConfigError` with all of them, a line each, where there are any."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise ConfigError(self._found[0])
        raise ConfigError(
            "\n".join([f"{len(self._found)} things keep the bridge from starting:", *(f"  {each}" for each in self._found)])
        )
