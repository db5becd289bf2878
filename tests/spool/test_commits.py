"""What shares a commit: all that has come meanwhile, and, after several, as many again."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_bridge.spool import commits as module
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


def test_a_lone_one_is_not_held_up_and_several_wait_for_company(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one the next commit begins at once; after several when as many are there, beside those that waited already."""
    groups: list[int] = []
    first, second = Held(), Held()

    def commit(self: Writer, group: list[Work], commit: Callable[[Writer, list[Work]], Answers] = Writer.commit) -> Answers:
        groups.append(len(group))
        return commit(self, group)

    monkeypatch.setattr(Writer, "commit", commit)
    monkeypatch.setattr(module, "COMPANY_S", 2 * PATIENCE_S)  # nothing but company ends the wait
    commits = Commits(lambda: open_file(tmp_path, ("default",), "FULL", SYSTEM).file, tmp_path, lambda _: None)

    async def submit(*acts: Callable[[SpoolFile], object]) -> "list[asyncio.Future[object]]":
        futures = [commits.submit(act) for act in acts]
        await asyncio.sleep(0)  # they are handed over in the next iteration
        return futures

    async def go() -> None:
        waiting = await submit(first.last)
        await asyncio.to_thread(first.begun.wait, PATIENCE_S)
        together = await submit(second.last, SpoolFile.note_time)
        first.may_end.set()
        await asyncio.to_thread(second.begun.wait, PATIENCE_S)
        waiting += await submit(SpoolFile.note_time)
        second.may_end.set()
        await asyncio.gather(*together)
        waiting += await submit(SpoolFile.note_time)
        waiting += await submit(SpoolFile.note_time)
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        commits.end()
        await asyncio.to_thread(commits.join)

    run(go())
    assert groups[:3] == [1, 2, 3]
