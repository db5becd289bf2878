"""What every test gets: no environment of the machine, and the captures."""

import os
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "OTEL_BRIDGE_")) and name != "OTEL_BRIDGE_REQUIRE_ENGINES":
            monkeypatch.delenv(name)
