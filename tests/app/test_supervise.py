"""The supervisor of several workers, with processes that only talk to it."""

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_bridge.app import supervise
from otel_bridge.app.supervise import Supervisor
from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError

Run = Callable[[Any], Any]

WORKER = """
import asyncio, os, socket, sys
from otel_bridge.app.line import Line, read_now

end = socket.socket(fileno=int(sys.argv[-1]))
seat = read_now(end)

async def answer(question, argument):
    if question == "stop":
        os._exit(0)
    return f"{seat.number}: {question}"

async def main():
    line = await Line.over(end, answer)
    talking = asyncio.create_task(line.run())
"""


def supervisor(folder: Path, work: str) -> Supervisor:
    """Of two workers that do this, in a coroutine, with their `seat` and their `line`."""
    config = load(
        None,
        {
            "server.workers": 2,
            "server.data_dir": folder / "data",
            "server.grpc_address": "127.0.0.1:0",
            "server.http_address": "127.0.0.1:0",
        },
    )
    body = "".join(f"    {line}\n" for line in work.strip().splitlines())
    return Supervisor(config, (sys.executable, "-c", f"{WORKER}{body}\nasyncio.run(main())"))


def test_an_upload_is_told_to_a_worker_that_is_about_to_open(run: Run, tmp_path: Path) -> None:
    """It has read the registry; of what is in it, or how it is, nobody asks before its doors are open."""
    work = """
await line.ask("go", patience_s=None)
if seat.number:
    await talking
line.tell("open", None)
told = [await line.ask("others", (question, None)) for question in ("uploaded", "condition")]
await line.ask("fault", str(told))
sys.exit(3)
"""
    with pytest.raises(ConfigError) as told:
        run(supervisor(tmp_path, work).run(asyncio.Event()))
    assert str(told.value) == "[['1: uploaded'], []]"


def test_a_worker_that_ends_without_a_word(run: Run, tmp_path: Path) -> None:
    """The bridge does not start, and what is told says where to look."""
    with pytest.raises(ConfigError, match="worker 0 has ended with 5 as it started; see what it has logged"):
        run(supervisor(tmp_path, "sys.exit(5)").run(asyncio.Event()))


def test_pauses_grow_while_a_worker_cannot_be_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long that takes: only one that has lived for long begins anew. A stop meanwhile is obeyed."""
    monkeypatch.setattr(supervise, "FIRST_PAUSE_S", 1 / 64)
    monkeypatch.setattr(supervise, "MOST_PAUSE_S", 1 / 8)
    work = """
await line.ask("go", patience_s=None)
line.tell("open", None)
await talking
"""
    workers = supervisor(tmp_path, work)

    def pauses() -> list[float]:
        return [float(pause) for pause in re.findall(r"cannot be started: .* tried again in (\S+) s", caplog.text)]

    async def main() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(workers.run(stop))
        while not workers._workers or not all(each.is_open for each in workers._workers.values()):  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.01)
        workers._command = (str(tmp_path / "nothing"),)
        workers._workers[1].process.kill()
        while len(pauses()) < 8:  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.01)
        stop.set()
        await running

    run(main())
    first, *others = pauses()
    assert others == [min(2**power * first, 1 / 8) for power in range(1, len(others) + 1)]
    assert caplog.text.count("has ended with -9; it is started again") == 1
