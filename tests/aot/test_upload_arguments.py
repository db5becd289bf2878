"""What `upload_mapping` refuses before it looks at a program."""

import pytest

from otel_bridge.aot import upload_mapping
from otel_bridge.errors import ConfigError

FAR = {"model": "net", "version": "1", "server": "bridge.example:4417", "token": "t0ken"}


class Untouched:
    """A program at which nobody looks, unless an upload is about to begin."""

    def __getattr__(self, name: str) -> object:
        raise LookupError(name)


def test_a_token_does_not_travel_in_plain_text() -> None:
    """Where a token would be read on the way nothing is sent, and what the error offers as a way out is one."""
    with pytest.raises(ConfigError, match="plain_token=True"):
        upload_mapping(Untouched(), **FAR)
    with pytest.raises(LookupError):
        upload_mapping(Untouched(), **FAR, plain_token=True)
