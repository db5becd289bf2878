"""What every test gets: no settings of this machine, a loop that may not block, captures, and engines where there are any."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings
from support.engines import EngineMissing, jaeger_can_be_built, require
from support.engines import jaeger as build_jaeger
from support.jaeger import Jaeger, running_jaeger
from support.processes import Process

try:
    from uvloop import new_event_loop
except ImportError:  # there is none for this platform; the service then runs on asyncio's own loop, too
    new_event_loop = None

FIXTURES = Path(__file__).parent / "fixtures"

# A busy machine is no fault of what is tested: no example has a time of its own, the test as a whole has.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "OTEL_BRIDGE_")) and name != "OTEL_BRIDGE_REQUIRE_ENGINES":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """A call from `otel_bridge` that blocks a running event loop raises `blockbuster.BlockingError`."""
    with blockbuster_ctx("otel_bridge") as buster:
        yield buster


@pytest.fixture(scope="session", autouse=True)
def _grpc_stays() -> None:
    """The poller of gRPC lives as long as the tests: a collection of garbage may end it, and wait for it, in a loop of ours."""
    grpc.aio.init_grpc_aio()


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Run a coroutine to its end on the loop that the service uses; all calls of one test share that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        yield runner.run


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real captures; see its README."""
    return FIXTURES


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One Jaeger for the whole session: tests keep apart by their own service names."""
    with running_jaeger(require("jaeger"), log=tmp_path_factory.mktemp("jaeger") / "jaeger.log") as running:
        yield running


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build Jaeger before the first test, where one will need it: no test's time limit may count the minutes it takes."""
    wanted = any("jaeger" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly or not jaeger_can_be_built():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("building Jaeger, once; this takes some minutes")
    with contextlib.suppress(EngineMissing):  # the tests that need it say so
        build_jaeger()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the end of the log of each program that it was given."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            process = value.process if isinstance(value, Jaeger) else value
            if isinstance(process, Process):
                report.sections.append((f"end of the log of {process.command[0]}", process.log_tail()))
    return report
