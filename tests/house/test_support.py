"""The tools of the tests: a test that relies on them may trust them."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockingError
from support import engines
from support.processes import Process, ProcessFailed, accepts, free_port, free_ports

import otel_bridge

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def of_the_house(source: str) -> Callable[[], None]:
    """A function `f` that looks as if it stood in a file of the package."""
    names: dict[str, Any] = {}
    exec(compile(source, str(Path(otel_bridge.__file__).with_name("made_up.py")), "exec"), names)  # noqa: S102 - our own text
    return names["f"]  # type: ignore[no-any-return]  # exec knows no types


def test_a_blocked_loop_fails(run: Callable[..., Any]) -> None:
    """A call of the package that blocks raises on a running loop, and not elsewhere."""
    sleep = of_the_house("import time\ndef f(): time.sleep(0)")
    sleep()

    async def on_the_loop() -> None:
        sleep()

    with pytest.raises(BlockingError, match=r"time\.sleep"):
        run(on_the_loop())


def test_one_test_has_one_loop(run: Callable[..., Any]) -> None:
    """All coroutines of a test run on the same loop, and results come back."""

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert run(loop()) is run(loop())


def test_a_process_ends_with_its_block(tmp_path: Path) -> None:
    """A program is gone after its block, even one that ignores SIGTERM, and what it printed is in the log."""
    log = tmp_path / "log"
    with Process([sys.executable, "-c", STUBBORN], log=log) as process:
        process.wait_until(lambda: "up" in process.log_tail())
        assert process.returncode is None
        assert process.stop(grace_s=0.1) == -signal.SIGKILL
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_ends_early_says_why(tmp_path: Path) -> None:
    """Waiting for a program that has ended raises at once, with its exit code and log."""
    with (
        Process([sys.executable, "-c", "print('no such port'); raise SystemExit(3)"], log=tmp_path / "log") as process,
        pytest.raises(ProcessFailed, match=r"ended with 3 .*\n.*no such port"),
    ):
        process.wait_until(lambda: False)


def test_a_process_can_start_again(tmp_path: Path) -> None:
    """After its end a program can be started again, and its log goes on."""
    with Process([sys.executable, "-c", "print('hello')"], log=tmp_path / "log") as process:
        assert process.wait() == 0
        process.start()
        assert process.wait() == 0
    assert process.log_tail().splitlines() == ["hello", "hello"]


def test_settings_of_the_machine_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A started program sees no OTEL_* variable but those that the test gives it."""
    monkeypatch.setenv("OTEL_BRIDGE_HTTP", "machine")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "machine")
    command = [sys.executable, "-c", "import os; print([name for name in os.environ if name.startswith('OTEL_')])"]
    with Process(command, log=tmp_path / "log", environment={"OTEL_BRIDGE_GRPC": "test"}) as process:
        process.wait()
    assert process.log_tail() == "['OTEL_BRIDGE_GRPC']"


def test_free_ports_are_free() -> None:
    """Ports that are handed out together differ, and nobody listens on them."""
    ports = [*free_ports(20), free_port()]
    assert len(set(ports[:20])) == 20
    assert not any(accepts(port) for port in ports)


@pytest.mark.parametrize(("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_missing_engine_is_never_silent(required: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its engine a test is skipped, and fails where engines are required; either way it says what is missing."""

    def absent() -> Path:
        raise engines.EngineMissing("it is not installed; install it")

    monkeypatch.setitem(engines.ENGINES, "made_up", absent)
    monkeypatch.setenv("OTEL_BRIDGE_REQUIRE_ENGINES", required)
    with pytest.raises(outcome, match="needs made_up: it is not installed; install it"):
        engines.require("made_up")


def test_a_built_engine_is_never_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a built engine changes with the files that it is built from."""
    before = engines.jaeger_program()
    folder = tmp_path / "jaeger"
    folder.mkdir()
    for name in ("go.mod", "go.sum"):
        (folder / name).write_bytes((engines.SOURCES / "jaeger" / name).read_bytes())
    monkeypatch.setattr(engines, "SOURCES", tmp_path)
    assert engines.jaeger_program() == before
    (folder / "go.sum").write_bytes(b"changed")
    assert engines.jaeger_program() != before
