"""Allow-lists."""

import pytest

from otel_bridge.config.keys import allow


@pytest.mark.parametrize(
    ("entries", "kept", "dropped"),
    [
        (["os.name"], ["os.name"], ["os.name.x", "os", "os.version"]),
        (["os.*"], ["os.name", "os.name.x", "os."], ["os", "osx.name"]),
        (["!os.name", "os.*"], ["os.version"], ["os.name"]),
        (["*", "!os.*"], ["host.name", ""], ["os.name"]),
        (["timing_*", "!timing_at"], ["timing_start", "timing_"], ["timing", "timing_at"]),
        ([], [], ["os.name", ""]),
    ],
)
def test_entries(entries: list[str], kept: list[str], dropped: list[str]) -> None:
    """An entry is an exact key, a prefix of keys or all; `!` takes away, whatever the order."""
    allowed = allow(entries)
    assert [key for key in kept + dropped if allowed(key)] == kept
