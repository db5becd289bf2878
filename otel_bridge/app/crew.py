"""
A bridge among the workers of one: what it knows of the others, and how it asks them.

Invariants
* A bridge that is alone asks nobody, and nothing of this costs it anything.
* What is asked goes by way of the supervisor, who knows which workers there are. One that is gone has nothing to say.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_bridge.app.line import PATIENCE_S, Line
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.wire.elsewhere import Elsewhere, Owners
from otel_bridge.wire.repeats import Name

WORKERS = "workers"
"""The directory, in the data directory, of what each worker but the first keeps for itself."""


def home_of(data_dir: Path, number: int) -> Path:
    """Where a worker has its spool and dead letters. The first has those of a bridge that is alone."""
    return data_dir / WORKERS / str(number) if number else data_dir


def homes_in(data_dir: Path) -> list[Path]:
    """Where there may be a spool, or dead letters: the first worker's home, and those of all others there ever were."""
    found = [each for each in (data_dir / WORKERS).glob("*") if each.name.isdecimal() and each.is_dir()]
    return [data_dir, *sorted(found, key=lambda home: int(home.name))]


@dataclass(frozen=True, slots=True)
class Seat:
    """
    What the supervisor tells a worker when it begins.

    number   of the worker, from 0
    config   the settings, with addresses whose ports are taken
    table    descriptor of the table of requests (wire/elsewhere.py); None: none are remembered
    """

    number: int
    config: BridgeConfig
    table: int | None


class Crew:
    """
    The others.

    number   of this worker
    count    of all
    line     to the supervisor; set before the doors open
    """

    line: Line

    def __init__(self, number: int = 0, count: int = 1, table: int | None = None) -> None:
        self.number = number
        self.is_alone = count == 1
        self._count = count
        self._table = table

    def home(self, data_dir: Path | None) -> Path | None:
        """Where this worker's spool is."""
        return home_of(data_dir, self.number) if data_dir is not None else None

    def left_in(self, data_dir: Path | None) -> list[Path]:
        """The homes of workers that are not any more, which this one is to take over."""
        if data_dir is None or self.number:
            return []
        return [home for home in homes_in(data_dir) if home != data_dir and int(home.name) >= self._count]

    def elsewhere(self) -> Elsewhere | None:
        """What the others have taken; None: nobody has anything."""
        if self._table is None:
            return None
        return Elsewhere(Owners(self._table, self.number), self.number, self._answer_of)

    async def ask_others(self, question: str, argument: object = None) -> list[Any]:
        """
        What each of the others that is there answers.

        Raises `OSError` where one that is there does not answer.
        """
        if self.is_alone:
            return []
        answers: list[Any] = await self.line.ask("others", (question, argument), patience_s=2 * PATIENCE_S)
        return answers

    async def _answer_of(self, worker: int, name: Name) -> bytes | None:
        answer: bytes | None = await self.line.ask("one", (worker, "request", name), patience_s=2 * PATIENCE_S)
        return answer
