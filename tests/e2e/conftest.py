"""One bridge and one back end for the tests of a module."""

import os
import shutil
from collections.abc import Iterator

import pytest
from support.otlp_sink import OtlpSink
from support.service import Service, running

LIMIT_BYTES = 2 << 20


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    """An OTLP back end that takes everything."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def service(sink: OtlpSink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A bridge in front of it, which takes requests of 2 MiB; tests keep apart by `service.name`."""
    with running(tmp_path_factory.mktemp("bridge"), sink, SERVER__MAX_REQUEST_BYTES=str(LIMIT_BYTES)) as service:
        yield service


@pytest.fixture(scope="session")
def needs_curl() -> None:
    """Ends a test where there is no curl."""
    if shutil.which("curl") is None:
        line = "needs curl: it is not on PATH"
        if os.environ.get("OTEL_BRIDGE_REQUIRE_ENGINES") == "1":
            pytest.fail(line, pytrace=False)
        pytest.skip(line)
