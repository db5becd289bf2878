"""What the tests of the client share."""

import logging
from collections.abc import Iterator

import pytest
from support.faulty_bridge import FaultyBridge
from support.otlp_sink import OtlpSink
from support.service import Service, running


@pytest.fixture(autouse=True)
def _no_failed_step(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The client's thread survives its own mistakes, and logs them as errors: a test that brings one out fails."""
    yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def bridge() -> Iterator[FaultyBridge]:
    """A bridge that takes all, until a test tells it otherwise."""
    with FaultyBridge() as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A real bridge on a good day."""
    with OtlpSink() as sink, running(tmp_path_factory.mktemp("service"), sink) as started:
        yield started
