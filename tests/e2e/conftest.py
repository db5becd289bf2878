"""One bridge and one back end for the tests of a module."""

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
