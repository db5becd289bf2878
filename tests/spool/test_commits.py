"""What shares a commit: all that has come meanwhile, and, after several, as many again."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_bridge.spool import commits as commits_module
from otel_bridge.spool.commits import Commits
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.opening import SYSTEM, open_file
from otel_bridge.spool.writer import Answers, Work, Writer

Run = Callable[[Any], Any]

PATIENCE_S = 20


class Held:
    """Work that lasts until it is told to end."""

    def __init__(self) -> None:
        """It has not begun."""
        self.begun, self.may_end = threading.Event(), threading.Event()

    def last(self, _: SpoolFile) -> None:
        """Do it."""
        self.begun.set()
        self.may_end.wait(PATIENCE_S)


def test_a_lone_one_is_not_held_up_and_several_wait_for_as_many(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one, and where as many are there already, the next commit begins at once; else the thread waits for them."""
    steps: list[int | str] = []
    first, second = Held(), Held()
    slept = threading.Event()

    def commit(self: Writer, group: list[Work], commit: Callable[[Writer, list[Work]], Answers] = Writer.commit) -> Answers:
        steps.append(len(group))
        return commit(self, group)

    def sleep(_: float) -> None:
        steps.append("sleep")
        slept.set()

    commits = Commits(lambda: open_file(tmp_path, ("default",), "FULL", SYSTEM).file, tmp_path, lambda _: None)

    async def submit(*acts: Callable[[SpoolFile], object]) -> "list[asyncio.Future[object]]":
        futures = [commits.submit(act) for act in acts]
        await asyncio.sleep(0)  # they are handed over in the next iteration
        return futures

    async def go() -> None:
        waiting = await submit(first.last)
        await asyncio.to_thread(first.begun.wait, PATIENCE_S)
        waiting += await submit(second.last, *[SpoolFile.note_time] * 2)
        first.may_end.set()
        await asyncio.to_thread(second.begun.wait, PATIENCE_S)
        waiting += await submit(*[SpoolFile.note_time] * 3)
        second.may_end.set()
        await asyncio.gather(*waiting)
        assert await asyncio.to_thread(slept.wait, PATIENCE_S)
        commits.end()
        await asyncio.to_thread(commits.join)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "commit", commit)
        patch.setattr(commits_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        run(go())
    assert steps[:4] == [1, 3, 3, "sleep"]
